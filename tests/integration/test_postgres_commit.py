"""Commits that are cut short: by a crash of the server, another driver or a lost connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from penstock.answer_limit import cut
from penstock.config.connection_url import ConnectionUrl
from penstock.destination.postgres import commits
from penstock.destination.postgres import progress as progress_module
from penstock.destination.postgres.destination import PostgresDestination
from penstock.destination.postgres.sessions.session import open_session
from penstock.destination.postgres.staging import staging_tables
from penstock.failpoints import failpoint
from penstock.model.errors import BatchAgain, DestinationUnavailable, Fenced
from penstock.model.source_identity import SourceIdentity
from penstock.model.watermarks import Watermarks
from penstock.testing.change_builder import ChangeBuilder, Column, table
from penstock.testing.contract.deliveries import definition, deliver, deliver_cut
from tests.fix_pipeline import wait_until
from tests.fix_postgres import FreshServer
from tests.fix_target import Target, end_task_sessions, tasks_elsewhere

ITEMS = table("items", Column("id", "int8", key=True), Column("v", "text"))
LOOSE = table("loose", Column("a", "text"), identity="f")


@pytest.fixture
def builder() -> ChangeBuilder:
    return ChangeBuilder()


def opened(target: Target) -> PostgresDestination:
    return target.opened(definition(ITEMS), definition(LOOSE))


def write(builder: ChangeBuilder, number: int) -> None:
    with builder.transaction():
        builder.insert(ITEMS, str(number), "a")
        builder.insert(LOOSE, "equal")


def held(target: Target) -> tuple[int, int]:
    return target.rows("items").total(), target.rows("loose").total()


def _staging(target: Target, oid: int) -> list[tuple[Any, ...]]:
    return target.all(
        f"SELECT oid::regclass::text FROM pg_class WHERE relname LIKE 'stage_shop_{oid}%'"  # noqa: S608
    )


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks_elsewhere(monkeypatch)


@pytest.mark.usefixtures("elsewhere")
def test_staging_that_was_emptied_is_staged_again(target: Target, builder: ChangeBuilder) -> None:
    destination = opened(target)
    write(builder, 1)
    run = builder.cut()
    receipt = destination.writer().write([run])
    for (name,) in _staging(target, LOOSE.oid):
        target.execute(f"TRUNCATE {name}")
    with pytest.raises(BatchAgain, match="staged again"):
        destination.commit([receipt], Watermarks(builder.frontier))
    assert held(target) == (0, 0)
    assert destination.committed() is None
    deliver(destination, builder.frontier, [run])
    assert held(target) == (1, 1)


@pytest.mark.slow
@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("oids", [(500_001, 500_002), (500_002, 500_001)])
def test_rows_are_counted_table_by_table(
    target: Target, builder: ChangeBuilder, oids: tuple[int, int]
) -> None:
    """Tables of one run, whichever comes first, with different numbers of rows."""
    columns = (Column("id", "int8", key=True), Column("v", "text"))
    few, many = table("few", *columns, oid=oids[0]), table("many", *columns, oid=oids[1])
    destination = target.opened(definition(few), definition(many))
    with builder.transaction():
        builder.insert(few, "1", None)
        for number in range(3):
            builder.insert(many, str(number), None)
    run = builder.cut()
    deliver(destination, builder.frontier, [run])
    assert (target.rows("few").total(), target.rows("many").total()) == (1, 3)

    with builder.transaction():
        builder.insert(few, "2", None)
        builder.insert(many, "7", None)
    for lost in (few, many):
        receipt = destination.writer().write([run := builder.cut()] if lost is few else [run])
        for (name,) in _staging(target, lost.oid):
            target.execute(f"TRUNCATE {name}")
        with pytest.raises(BatchAgain, match="staged again"):
            destination.commit([receipt], Watermarks(builder.frontier))
    deliver(destination, builder.frontier, [run])
    assert (target.rows("few").total(), target.rows("many").total()) == (2, 4)


def test_a_server_that_lost_commits_is_asked_and_goes_on(
    target: Target, builder: ChangeBuilder
) -> None:
    """Its epoch, its position, rows and staging tables are those of before."""
    destination = opened(target)
    write(builder, 1)
    deliver_cut(destination, builder)
    early = target.all("SELECT epoch, commit_lsn, end_lsn FROM penstock.progress")[0]
    first = destination.committed()
    write(builder, 2)
    second = builder.cut()
    deliver(destination, builder.frontier, [second])
    target.conn.execute(
        "UPDATE penstock.progress SET epoch = %s - 1, commit_lsn = %s, end_lsn = %s", early
    )
    target.execute("DELETE FROM items WHERE id = 2")
    target.execute("DELETE FROM loose WHERE ctid = (SELECT max(ctid) FROM loose)")
    for (name,) in _staging(target, ITEMS.oid):
        target.execute(f"DROP TABLE {name}")
    with pytest.raises(DestinationUnavailable, match="this server has lost commits"):
        destination.commit([], Watermarks(builder.frontier))
    assert destination.committed() == first
    destination.prepare([definition(ITEMS), definition(LOOSE)])
    deliver(destination, builder.frontier, [second])
    assert held(target) == (2, 2)
    # A later driver is one still.
    later = opened(target)
    with pytest.raises(Fenced):
        destination.commit([], Watermarks(builder.frontier))
    later.commit([], Watermarks(builder.frontier))


def test_a_position_of_an_older_version_gets_its_source(
    target: Target, builder: ChangeBuilder
) -> None:
    destination = opened(target)
    write(builder, 1)
    deliver_cut(destination, builder)
    target.execute("ALTER TABLE penstock.progress DROP COLUMN source")
    assert target.make().committed() == Watermarks(builder.frontier)
    again = opened(target)
    at = Watermarks(builder.frontier, source=SourceIdentity("7", 1, "shop", "uuid"))
    again.commit([], at)
    assert target.make().committed() == at


def test_rows_that_a_later_run_truncates_are_not_missed(
    target: Target, builder: ChangeBuilder
) -> None:
    """They are staged under the number that the run's other tables have."""
    destination = opened(target)
    write(builder, 1)
    deliver_cut(destination, builder)
    # The row is there already, which makes it a batch that is merged the thorough way.
    write(builder, 1)
    first = builder.cut()
    with builder.transaction():
        builder.truncate(LOOSE)
        builder.insert(LOOSE, "other")
    deliver(destination, builder.frontier, [first, builder.cut()])
    assert dict(target.rows("items")) == {("1", "a"): 1}
    assert dict(target.rows("loose")) == {("other",): 1}


def test_a_commit_without_rows_leaves_what_others_have_staged(
    target: Target, builder: ChangeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as that of a table that catches up, beside the stream."""
    destination = opened(target)
    for number in (1, 2):  # in the one lane, and in the other
        write(builder, number)
        deliver_cut(destination, builder)
    at, staged = builder.frontier, []
    for number in (3, 4):
        write(builder, number)
        staged.append((destination.writer().write([builder.cut()]), builder.frontier))
    with monkeypatch.context() as context:
        # What is left of the first batches is enough to be swept.
        context.setattr(staging_tables, "_SWEEP_BYTES", 0)
        destination.commit([], Watermarks(at))
    for receipt, frontier in staged:
        destination.commit([receipt], Watermarks(frontier))
    assert held(target) == (4, 4)


@pytest.mark.usefixtures("elsewhere")
def test_a_crash_of_the_server_between_staging_and_commit(
    fresh_server: FreshServer, builder: ChangeBuilder
) -> None:
    server = fresh_server()
    url = server.create_database("target")
    with Target(url) as target:
        destination = opened(target)
        write(builder, 1)
        deliver_cut(destination, builder)
        write(builder, 2)
        run = builder.cut()
        receipt = destination.writer().write([run])
    server.restart("immediate")
    end_task_sessions()
    with Target(url) as target:
        with pytest.raises((BatchAgain, DestinationUnavailable)):
            destination.commit([receipt], Watermarks(builder.frontier))
        with pytest.raises(BatchAgain):
            destination.commit([receipt], Watermarks(builder.frontier))
        assert held(target) == (1, 1)
        deliver(destination, builder.frontier, [run])
        assert held(target) == (2, 2)
        assert destination.committed() == Watermarks(builder.frontier)
        destination.close()
        end_task_sessions()


def _blocked(target: Target, count: int) -> None:
    """Wait until so many backends of this database wait for a lock."""
    while (
        target.all(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND wait_event_type = 'Lock'"
        )[0][0]
        < count
    ):
        threading.Event().wait(0.01)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_a_second_driver_waits_for_a_commit_and_fences_what_comes_after(
    target: Target, builder: ChangeBuilder, threads: ThreadPoolExecutor
) -> None:
    first = opened(target)
    write(builder, 1)
    run = builder.cut()
    receipt = first.writer().write([run])
    second = target.make()
    with psycopg.connect(target.url) as blocker:
        blocker.execute("LOCK TABLE items IN ACCESS EXCLUSIVE MODE")
        commit = threads.submit(first.commit, [receipt], Watermarks(builder.frontier))
        _blocked(target, 1)
        opening = threads.submit(second.open)
        _blocked(target, 2)
    commit.result()
    opening.result()
    assert second.committed() == Watermarks(builder.frontier)
    assert held(target) == (1, 1)
    write(builder, 2)
    receipt = first.writer().write([builder.cut()])
    with pytest.raises(Fenced, match="taken over"):
        first.commit([receipt], Watermarks(builder.frontier))
    assert held(target) == (1, 1)


def _at(monkeypatch: pytest.MonkeyPatch, place: str, act: Callable[[], None]) -> None:
    """Act once when the destination passes a failpoint."""
    waiting = [act]

    def passing(name: str) -> None:
        if name == place and waiting:
            waiting.pop()()
        failpoint(name)

    monkeypatch.setattr(commits, "failpoint", passing)


def _end_drivers(target: Target) -> None:
    target.execute(
        "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity"
        " WHERE application_name = 'penstock shop driver' AND datname = current_database()"
    )


def test_a_driver_that_is_frozen_in_its_commit_does_not_hold_up_the_next(
    target: Target, builder: ChangeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_module, "_PATIENCE", "200ms")
    frozen = opened(target)
    write(builder, 1)
    run = builder.cut()
    stuck = psycopg.connect(target.url, application_name="penstock shop driver")
    stuck.execute("SELECT * FROM penstock.progress FOR UPDATE")
    current = opened(target)
    stuck.close()
    deliver(current, builder.frontier, [run])
    assert held(target) == (1, 1)
    with pytest.raises((Fenced, DestinationUnavailable)):
        frozen.commit([], Watermarks(builder.frontier))


@pytest.mark.parametrize("who", ["tables", "task", "copy"])
def test_what_a_frozen_process_holds_does_not_hold_up_the_next_driver(
    target: Target, builder: ChangeBuilder, who: str
) -> None:
    """Such as a task in the middle of its COPY: staging tables are emptied at the start."""
    opened(target)
    with psycopg.connect(target.url, application_name=f"penstock shop {who}") as frozen:
        tables = frozen.execute(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables"
            " WHERE schemaname = 'penstock' AND tablename LIKE 'stage%' OR tablename = 'items'"
        ).fetchall()
        for (table,) in tables:
            frozen.execute(f"LOCK TABLE {table} IN ROW EXCLUSIVE MODE".encode())
        write(builder, 1)
        deliver(opened(target), builder.frontier, [builder.cut()])
        frozen.close()
    assert held(target) == (1, 1)


def test_a_connection_that_is_lost_before_the_commit(
    target: Target, builder: ChangeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination = opened(target)
    write(builder, 1)
    run = builder.cut()
    _at(monkeypatch, "postgres.merged", lambda: _end_drivers(target))
    with pytest.raises(DestinationUnavailable, match="committing a batch"):
        deliver(destination, builder.frontier, [run])
    assert destination.committed() is None
    assert held(target) == (0, 0)
    deliver(destination, builder.frontier, [run])
    assert held(target) == (1, 1)


def test_a_commit_whose_answer_is_lost_has_happened_once(
    target: Target, builder: ChangeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination = opened(target)
    write(builder, 1)
    run = builder.cut()
    reached = builder.frontier

    def lose() -> None:
        _end_drivers(target)
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    _at(monkeypatch, "postgres.committed", lose)
    with pytest.raises(DestinationUnavailable):
        deliver(destination, reached, [run])
    # Nobody who has not asked may send the batch again.
    with pytest.raises(Fenced):
        deliver(destination, reached, [run])
    assert destination.committed() == Watermarks(reached)
    write(builder, 2)
    deliver_cut(destination, builder)
    assert held(target) == (2, 2)


@pytest.mark.parametrize("in_pieces", [False, True])
def test_a_connection_that_is_lost_while_the_server_still_commits(
    target: Target, builder: ChangeBuilder, threads: ThreadPoolExecutor, in_pieces: bool
) -> None:
    """What it says in between is of before, and the same batch would be told that somebody else had
    taken over.
    """
    destination = opened(target)
    target.execute(
        "CREATE FUNCTION sleep() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN PERFORM pg_sleep(2); RETURN NULL; END$$;"
        " CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON items DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION sleep();"
        " ALTER TABLE items ENABLE ALWAYS TRIGGER slow"
    )
    write(builder, 1)
    receipts = [destination.writer().write([builder.cut()])]
    if in_pieces:
        destination.take_piece(receipts)
    commit = threads.submit(destination.commit, receipts, Watermarks(builder.frontier))
    _asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    wait_until(lambda: target.all(_asleep) == [(1,)], "it commits")
    session = destination._begun if in_pieces else destination._session
    assert session._conn is not None
    cut(session._conn)
    with pytest.raises(DestinationUnavailable):
        commit.result()
    assert target.all(_asleep) == [(1,)]
    assert destination.committed() == Watermarks(builder.frontier)
    assert held(target) == (1, 1)
    write(builder, 2)
    deliver_cut(destination, builder)
    assert held(target) == (2, 2)


def test_a_server_that_goes_away_after_the_commit_does_not_undo_it(
    target: Target, builder: ChangeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every commit is followed by a statement, which then fails.
    monkeypatch.setattr(staging_tables, "_SWEEP_BYTES", -1)
    destination = opened(target)
    write(builder, 1)
    _at(monkeypatch, "postgres.committed", lambda: _end_drivers(target))
    deliver_cut(destination, builder)
    write(builder, 2)
    deliver_cut(destination, builder)
    assert destination.committed() == Watermarks(builder.frontier)
    assert held(target) == (2, 2)


def test_a_commit_waits_for_the_disk_whatever_the_database_says(
    target: Target, builder: ChangeBuilder
) -> None:
    """A position is confirmed to the source after it: a crash must not take it back."""
    _set_for_database(target, "SET synchronous_commit = off")
    try:
        destination = opened(target)
        # ALWAYS: others do not fire in the sessions of a replica.
        target.execute(
            "CREATE TABLE how (waited text);"
            " CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN"
            " INSERT INTO public.how VALUES (current_setting('synchronous_commit'));"
            " RETURN NULL; END$$;"
            " CREATE TRIGGER note AFTER INSERT ON items EXECUTE FUNCTION note();"
            " ALTER TABLE items ENABLE ALWAYS TRIGGER note"
        )
        write(builder, 1)
        deliver_cut(destination, builder)
        assert target.rows("how") == {("on",): 1}
    finally:
        _set_for_database(target, "RESET synchronous_commit")


def test_a_session_is_not_ended_while_nothing_happens_whatever_the_database_says(
    target: Target, builder: ChangeBuilder
) -> None:
    _set_for_database(target, "SET idle_session_timeout = 100")
    try:
        destination = opened(target)
        for number in (1, 2):
            write(builder, number)
            deliver_cut(destination, builder)
            time.sleep(0.3)
        assert held(target) == (2, 2)
    finally:
        _set_for_database(target, "RESET idle_session_timeout")


def test_a_null_in_an_array_is_one_whatever_the_database_says(target: Target) -> None:
    """Else rows would hold the text NULL, and nobody would say so."""
    url = ConnectionUrl(make_conninfo(target.url, options="-c array_nulls=off"))
    with closing(open_session(url, "penstock test", {})) as conn:
        assert conn.execute("SELECT '{a,NULL}'::text[]").fetchone() == (["a", None],)


def _set_for_database(target: Target, setting: str) -> None:
    change = f"format('ALTER DATABASE %I {setting}', current_database())"
    target.execute(f"DO $$BEGIN EXECUTE {change}; END$$")


@pytest.mark.usefixtures("elsewhere")
def test_staging_does_not_grow_for_ever(
    target: Target, builder: ChangeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging_tables, "_SWEEP_BYTES", 20_000)
    destination = opened(target)
    sizes = []
    for number in range(6):
        with builder.transaction():
            builder.insert(ITEMS, str(number), "x" * 12_000)
        deliver_cut(destination, builder)
        counts = [target.rows(name, "part").total() for (name,) in _staging(target, ITEMS.oid)]
        sizes.append(sum(counts))
    assert max(sizes) <= 2
    assert target.rows("items").total() == 6
