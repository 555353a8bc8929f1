"""The snapshot that copies read under: what it shows, how long it lives, and that it goes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from penstock.changelog.changelog import ChangeLog
from penstock.config import load_pipeline
from penstock.config.connection_url import ConnectionUrl
from penstock.model.errors import LogError, SlotError, SourceError
from penstock.model.lsn import format_lsn
from penstock.objects import bucket
from penstock.source.postgres.snapshot import shared_read
from penstock.source.postgres.snapshot.held_snapshot import (
    Keeper,
    ProcessSnapshotKeeper,
    SnapshotKeeper,
    process_start,
    xmin_age,
)
from penstock.source.postgres.snapshot.held_snapshots import HeldSnapshots
from penstock.source.postgres.snapshot.shared_read import SnapshotReaders
from penstock.source.postgres.snapshot.snapshot_record import SNAPSHOT_FILE, HeldSnapshot
from tests.application_session import connect
from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.fix_postgres import FreshServer
from tests.logged_changes import LoggedChange
from tests.objects_proxy import Fault
from tests.objects_server import ObjectServer
from tests.pipelines import logged

Connection = psycopg.Connection[tuple[Any, ...]]
Rows = dict[str | None, str | None]
MakeKeeper = Callable[..., SnapshotKeeper]

ITEMS = "CREATE TABLE items (id bigint PRIMARY KEY, value text)"


@pytest.fixture
def admin(database: str) -> Iterator[Connection]:
    with connect(database, application_name="test") as conn:
        yield conn


@pytest.fixture
def make_keeper(pipeline: PipelineUnderTest) -> Iterator[MakeKeeper]:
    """Keepers of the test's pipeline; whatever is held goes after the test."""

    def make(**options: Any) -> SnapshotKeeper:
        return SnapshotKeeper(pipeline.config, pipeline.file, "snapshots/1", **options)

    yield make
    make().release()


def imported(url: str, held: HeldSnapshot) -> Connection:
    conn = psycopg.connect(url)
    conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    conn.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(held.name)))
    return conn


def rows_under(url: str, held: HeldSnapshot) -> Rows:
    with closing(imported(url, held)) as conn:
        return rows_of(conn)


def rows_of(conn: Connection) -> Rows:
    return dict(conn.execute("SELECT id::text, value FROM items").fetchall())


def is_held(admin: Connection, held: HeldSnapshot) -> bool:
    return xmin_age(admin, held) is not None


def expect_nothing_left(admin: Connection, held: HeldSnapshot) -> None:
    """Neither process nor session nor slot: nothing that keeps the source from cleaning up."""
    wait_until(lambda: not is_held(admin, held), "the server has ended the session")
    wait_until(lambda: process_start(held.pid) is None, "the holder has ended")
    assert temporary_slots(admin) == []


def temporary_slots(admin: Connection) -> list[str]:
    rows = admin.execute(
        "SELECT slot_name::text FROM pg_replication_slots"
        " WHERE temporary AND database = current_database()"
    ).fetchall()
    return [name for (name,) in rows]


# -- what it shows ---------------------------------------------------------------------------------


def folded(changes: list[LoggedChange], rows: Rows) -> Rows:
    """Rows after changes. Strict: each change must find just what it says that was there."""
    rows = dict(rows)
    for change in changes:
        if change.op == "insert":
            assert change.new is not None
            assert change.new["id"] not in rows, change
            rows[change.new["id"]] = change.new["value"]
        elif change.op == "delete":
            assert change.old is not None
            del rows[change.old["id"]]
        else:
            assert change.new is not None
            del rows[change.old["id"] if change.old else change.new["id"]]
            assert change.new["id"] not in rows, change
            rows[change.new["id"]] = change.new["value"]
    return rows


def expect_consistent(pipeline: PipelineUnderTest, shown: Rows, lsn: int) -> list[LoggedChange]:
    """What the snapshot showed is all that a slot delivers of commits before ``lsn``, and with the
    rest of it the table; the rest is returned.
    """
    changes = pipeline.capture_all()
    before = [change for change in changes if change.position.commit_lsn < lsn]
    after = [change for change in changes if change.position.commit_lsn >= lsn]
    assert folded(before, {}) == shown
    with psycopg.connect(pipeline.url) as conn:
        assert folded(after, shown) == rows_of(conn)
    return after


@pytest.mark.every_postgres
def test_it_shows_what_was_committed_before_its_point(
    pipeline: PipelineUnderTest, make_keeper: MakeKeeper
) -> None:
    pipeline.execute(ITEMS)
    pipeline.subscribe()
    done = threading.Event()
    counts = [0] * 3

    def write(worker: int) -> None:
        rng = random.Random(worker)
        mine: list[int] = []
        with psycopg.connect(pipeline.url) as conn:
            while not done.is_set():
                for _ in range(rng.randint(1, 6)):
                    new = worker + 3 * (1 + rng.randrange(10**6))
                    action = rng.random()
                    if action < 0.5 and new not in mine:
                        conn.execute("INSERT INTO items VALUES (%s, %s)", [new, str(counts)])
                        mine.append(new)
                    elif mine and action < 0.7:
                        conn.execute(
                            "UPDATE items SET value = %s WHERE id = %s",
                            [str(counts), rng.choice(mine)],
                        )
                    elif mine and action < 0.85 and new not in mine:
                        old = mine.pop(rng.randrange(len(mine)))
                        conn.execute("UPDATE items SET id = %s WHERE id = %s", [new, old])
                        mine.append(new)
                    elif mine:
                        conn.execute(
                            "DELETE FROM items WHERE id = %s", [mine.pop(rng.randrange(len(mine)))]
                        )
                conn.commit()
                counts[worker] += 1

    def wait_for_writes() -> None:
        goal = [count + 20 for count in counts]
        wait_until(
            lambda: all(a >= b for a, b in zip(counts, goal, strict=True)), "all have written"
        )

    taken = []
    keeper = make_keeper()
    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(write, worker) for worker in range(3)]
        try:
            for _ in range(2):
                wait_for_writes()
                held = keeper.take()
                wait_for_writes()
                # Read late: the temporary slot is long gone, and others have written since.
                taken.append((rows_under(pipeline.url, held), held.lsn))
        finally:
            done.set()
        for writer in writers:
            writer.result()
    for shown, lsn in taken:
        assert expect_consistent(pipeline, shown, lsn), "writers were at work"


def waits_for(admin: Connection, xid: int) -> bool:
    """Whether somebody waits for the end of this transaction."""
    row = admin.execute(
        "SELECT count(*) FROM pg_locks WHERE transactionid = %s::text::xid AND NOT granted", [xid]
    ).fetchone()
    return row is not None and row[0] > 0


@pytest.mark.every_postgres
def test_transactions_that_are_open_across_its_creation(
    pipeline: PipelineUnderTest, make_keeper: MakeKeeper, admin: Connection
) -> None:
    pipeline.execute(ITEMS)
    pipeline.subscribe()

    def begin(number: int) -> tuple[Connection, int]:
        conn = psycopg.connect(pipeline.url)
        row = conn.execute(
            "INSERT INTO items VALUES (%s, 'open') RETURNING txid_current()", [number]
        ).fetchone()
        assert row is not None
        return conn, row[0]

    first, first_xid = begin(1)
    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(make_keeper().take)
        wait_until(lambda: waits_for(admin, first_xid), "the slot waits for the first")
        second, second_xid = begin(2)
        first.execute("INSERT INTO items VALUES (10, 'late')")
        first.commit()
        # A slot waits twice: also for those that began while it waited.
        wait_until(lambda: waits_for(admin, second_xid), "the slot waits for the second")
        third, _ = begin(3)
        second.commit()
        held = taking.result()
    third.execute("INSERT INTO items VALUES (30, 'late')")
    third.commit()
    shown = rows_under(pipeline.url, held)
    assert set(shown) == {"1", "10", "2"}
    after = expect_consistent(pipeline, shown, held.lsn)
    assert [change.new for change in after] == [
        {"id": "3", "value": "open"},
        {"id": "30", "value": "late"},
    ]
    for conn in (first, second, third):
        conn.close()


@pytest.mark.every_postgres
def test_streaming_does_not_end_it(pipeline: PipelineUnderTest, make_keeper: MakeKeeper) -> None:
    pipeline.execute(
        "CREATE TABLE items (id bigint PRIMARY KEY, value text)",
        "INSERT INTO items VALUES (1, 'a')",
    )
    pipeline.subscribe()
    held = make_keeper().take()
    with pipeline.capturing() as capture:
        pipeline.execute("INSERT INTO items VALUES (2, 'b')")
        pipeline.sync(capture)
        assert rows_under(pipeline.url, held) == {"1": "a"}
    assert make_keeper().current() == held
    assert rows_under(pipeline.url, held) == {"1": "a"}


# -- waiting, and what refuses ---------------------------------------------------------------------


@pytest.mark.every_postgres
def test_who_is_waited_for_is_told(
    pipeline: PipelineUnderTest, make_keeper: MakeKeeper, admin: Connection
) -> None:
    pipeline.execute(ITEMS)
    said: list[str] = []

    with psycopg.connect(pipeline.url, application_name="forgotten") as open_one:
        open_one.execute("INSERT INTO items VALUES (1)")

        def say(text: str) -> None:
            said.append(text)
            open_one.commit()

        with logged(say):
            held = make_keeper().take()
        who = f"pid {open_one.info.backend_pid} (user {open_one.info.user}, application forgotten)"
    assert len(said) == 1
    assert who in said[0]
    assert is_held(admin, held)


@pytest.mark.every_postgres
def test_waiting_has_an_end(
    pipeline: PipelineUnderTest, make_keeper: MakeKeeper, admin: Connection
) -> None:
    pipeline.execute(ITEMS)
    keeper = make_keeper()
    before = keeper.take()
    with psycopg.connect(pipeline.url, application_name="forgotten") as open_one:
        open_one.execute("INSERT INTO items VALUES (1)")
        with pytest.raises(SlotError) as caught:
            keeper.take(wait=0.5)
        assert f"pid {open_one.info.backend_pid} " in caught.value.message
        assert "within 0.5 s" in caught.value.message
        assert caught.value.remedy
        # No session still waits for it, though the transaction is open.
        wait_until(lambda: not temporary_slots(admin), "the slot is gone")
        assert keeper.current() == before, "what was there is not lost with the attempt"


class Interrupted(Exception):
    pass


def test_waiting_can_be_ended(
    pipeline: PipelineUnderTest, make_keeper: MakeKeeper, admin: Connection
) -> None:
    pipeline.execute(ITEMS)

    def check() -> None:
        if temporary_slots(admin):
            raise Interrupted

    with psycopg.connect(pipeline.url) as open_one:
        open_one.execute("INSERT INTO items VALUES (1)")
        with pytest.raises(Interrupted):
            make_keeper().take(check=check)
        wait_until(lambda: not temporary_slots(admin), "the slot is gone")
        assert make_keeper().current() is None


def test_limits_of_the_server_are_named(fresh_server: FreshServer, tmp_path: Path) -> None:
    url = fresh_server(max_replication_slots="1", max_wal_senders="1").url()
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"name: t\nsource:\n  url: {url}\ndestination:\n  type: discard\n"
        f"change_log:\n  path: {tmp_path / 'log'}\n"
    )
    keeper = SnapshotKeeper(load_pipeline(file), file, "snapshots/1")
    with closing(connect(url, replication=True)), pytest.raises(SourceError) as caught:
        keeper.take()
    assert "max_wal_senders" in caught.value.remedy
    with connect(url) as conn:
        conn.execute("SELECT pg_create_logical_replication_slot('taken', 'pgoutput')")
    with pytest.raises(SourceError, match="replication slots are in use") as caught:
        keeper.take()
    assert "max_replication_slots" in caught.value.remedy
    assert keeper.current() is None


# -- how long it lives -----------------------------------------------------------------------------

_DRIVER = """
import sys, time
from pathlib import Path
from penstock.changelog.changelog import ChangeLog
from penstock.config import load_pipeline
from penstock.source.postgres.snapshot.held_snapshot import SnapshotKeeper

file = Path(sys.argv[1])
keeper = SnapshotKeeper(
    load_pipeline(file), file, "snapshots/1", orphan_seconds=float(sys.argv[2])
)
print(keeper.take().name, flush=True)
while True:
    keeper.keep()
    time.sleep(0.1)
"""


def start_driver(pipeline: PipelineUnderTest, orphan_seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _DRIVER, str(pipeline.file), str(orphan_seconds)],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_driver_goes_on_with_what_a_killed_one_held(
    pipeline: PipelineUnderTest, make_keeper: MakeKeeper, admin: Connection
) -> None:
    pipeline.execute(
        "CREATE TABLE items (id bigint PRIMARY KEY, value text)",
        "INSERT INTO items VALUES (1, 'a')",
    )
    keeper = make_keeper()
    assert keeper.current() is None
    with start_driver(pipeline, 600) as driver:
        assert driver.stdout is not None
        name = driver.stdout.readline().strip()
        pipeline.execute("INSERT INTO items VALUES (2, 'b')")
        driver.kill()
    held = keeper.current()
    assert held is not None
    assert held.name == name
    assert rows_under(pipeline.url, held) == {"1": "a"}

    new = keeper.take()
    assert new.lsn > held.lsn, (format_lsn(new.lsn), format_lsn(held.lsn))
    assert rows_under(pipeline.url, new) == {"1": "a", "2": "b"}
    assert not is_held(admin, held), "the one before is let go when take() returns"
    expect_nothing_left(admin, held)
    assert keeper.current() == new

    keeper.release()
    assert not is_held(admin, new), "nothing is kept when release() returns"
    expect_nothing_left(admin, new)
    assert keeper.current() is None
    assert not Path(keeper.record.storage.path).exists()
    keeper.release()


def test_without_a_driver_it_ends(
    pipeline: PipelineUnderTest, make_keeper: MakeKeeper, admin: Connection
) -> None:
    record = make_keeper().record
    with start_driver(pipeline, 2) as driver:
        assert driver.stdout is not None
        driver.stdout.readline()
        held = record.read()
        assert held is not None
        # A driver that lives is heard, for longer than the time after which silence counts.
        heard = {record.heard()}

        def often() -> bool:
            heard.add(record.heard())
            return len(heard) > 15

        wait_until(often, "the driver goes on")
        assert is_held(admin, held)
        driver.kill()
    expect_nothing_left(admin, held)
    assert record.read() is None
    assert "No driver" in (record.why_ended() or "")


def test_without_a_driver_it_stays_while_somebody_reads(
    pipeline: PipelineUnderTest, make_keeper: MakeKeeper, admin: Connection
) -> None:
    """As a worker does, which has nothing to do with the holder's record."""
    with start_driver(pipeline, 4) as driver:
        assert driver.stdout is not None
        driver.stdout.readline()
        held = make_keeper().record.read()
        assert held is not None
        with closing(connect(pipeline.url, application_name="reader")) as reader:
            reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            reader.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(held.name)))
            reader.execute("SELECT 1")
            driver.kill()
            killed = time.monotonic()
            wait_until(lambda: time.monotonic() > killed + 9, "silence would have counted twice")
            assert is_held(admin, held)
    expect_nothing_left(admin, held)


def test_readers_are_seen_whatever_role_sessions_have_taken(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To another than that which logged in the server does not show under what they read."""
    monkeypatch.setattr(shared_read, "_POLL_SECONDS", 0.0)
    url = ConnectionUrl(make_conninfo(database, options="-c role=pg_read_all_data"))
    with shared_read.exported_snapshot(url) as (holder, name), connect(database) as reader:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        reader.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(name)))
        reader.execute("SELECT 1")
        assert shared_read.has_readers(url, "test", holder.info.backend_pid)
        readers = SnapshotReaders(url, "test", name, holder.info.backend_pid, 0.1, 0.0)
        with closing(readers):
            time.sleep(0.2)
            assert readers.why_to_end() is None


def test_it_ends_by_age(make_keeper: MakeKeeper, admin: Connection) -> None:
    keeper = make_keeper(max_age=0.5)
    held = keeper.take()
    expect_nothing_left(admin, held)
    assert keeper.current() is None
    assert "older than 0.5 s" in (keeper.record.why_ended() or "")


@pytest.mark.every_postgres
def test_it_ends_with_its_connection(make_keeper: MakeKeeper, admin: Connection) -> None:
    keeper = make_keeper()
    held = keeper.take()
    admin.execute("SELECT pg_terminate_backend(%s, 30000)", [held.backend_pid])
    expect_nothing_left(admin, held)
    assert keeper.current() is None
    assert "connection" in (keeper.record.why_ended() or "")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_holder_that_is_killed_is_noticed(
    make_keeper: MakeKeeper, admin: Connection, number: signal.Signals
) -> None:
    keeper = make_keeper()
    held = keeper.take()
    os.kill(held.pid, number)
    expect_nothing_left(admin, held)
    assert keeper.current() is None


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_it_ends_with_its_record(make_keeper: MakeKeeper, admin: Connection, how: str) -> None:
    """So does it with the whole change log, as `penstock destroy` removes it."""
    keeper = make_keeper()
    held = keeper.take()
    if how == "removed":
        keeper.record.remove()
    else:
        # By a holder of a driver that has lost the pipeline, and does not know it.
        keeper.record.write(replace(held, backend_start="1.0"))
    expect_nothing_left(admin, held)


def test_a_holder_that_is_frozen_keeps_nothing(make_keeper: MakeKeeper, admin: Connection) -> None:
    """As one on a machine that cannot be reached."""
    keeper = make_keeper()
    held = keeper.take()
    os.kill(held.pid, signal.SIGSTOP)
    try:
        keeper.release()
        assert not is_held(admin, held)
    finally:
        os.kill(held.pid, signal.SIGCONT)
    expect_nothing_left(admin, held)


@pytest.mark.every_postgres
def test_another_session_of_that_name_is_not_taken_for_it(
    pipeline: PipelineUnderTest, make_keeper: MakeKeeper, admin: Connection
) -> None:
    """A restarted server gives names of snapshots, and numbers of sessions, again."""
    with psycopg.connect(pipeline.url) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        row = other.execute("SELECT pg_export_snapshot()").fetchone()
        assert row is not None
        keeper = make_keeper()
        stale = HeldSnapshot(
            row[0], 1, other.info.backend_pid, "1.000000", "elsewhere", os.getpid()
        )
        keeper.record.write(stale)
        assert keeper.current() is None
        keeper.release()
        assert other.execute("SELECT 1").fetchone() == (1,), "it is nobody's to end"


# -- drivers on several machines -------------------------------------------------------------------


@pytest.fixture
def places(pipeline: PipelineUnderTest, object_server: ObjectServer) -> Iterator[None]:
    """The change log is in a bucket."""
    pipeline.log = ChangeLog(f"{object_server.place()}/log", object_server.options)
    pipeline.configure(copy=True, options=object_server.options)
    yield
    HeldSnapshots(pipeline.config, pipeline.file, 600.0, lambda: None).found()


def snapshots_of_a_driver(
    pipeline: PipelineUnderTest, state: Path, monkeypatch: pytest.MonkeyPatch
) -> HeldSnapshots:
    """As on a machine of its own: all that it shares with others are source and bucket."""
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    return HeldSnapshots(pipeline.config, pipeline.file, 600.0, lambda: None)


@pytest.mark.usefixtures("places")
def test_a_driver_on_another_machine_finds_what_was_held(
    pipeline: PipelineUnderTest,
    admin: Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipeline.execute(ITEMS, "INSERT INTO items VALUES (1, 'a')")
    first = snapshots_of_a_driver(pipeline, tmp_path / "one", monkeypatch)
    _, held = first.take()
    _, ended = first.take()
    admin.execute("SELECT pg_terminate_backend(%s, 30000)", [ended.backend_pid])
    pipeline.execute("INSERT INTO items VALUES (2, 'b')")

    second = snapshots_of_a_driver(pipeline, tmp_path / "two", monkeypatch)
    found = second.found()
    assert list(found.values()) == [held], "and nothing that is not held any more"
    assert rows_under(pipeline.url, held) == {"1": "a"}
    number, new = second.take()
    assert number not in found
    for each in (*found, number):
        second.release(each)
    expect_nothing_left(admin, held)
    expect_nothing_left(admin, new)
    assert "snapshots" not in pipeline.log.root.entries()
    assert second.found() == {}


@pytest.mark.usefixtures("places")
def test_a_driver_without_the_bucket_still_ends_what_it_held(
    pipeline: PipelineUnderTest,
    admin: Connection,
    object_server: ObjectServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bucket, "_RETRY_SECONDS", 1)
    bucket.opened.cache_clear()
    snapshots = HeldSnapshots(pipeline.config, pipeline.file, 600.0, lambda: None)
    number, held = snapshots.take()
    object_server.proxy.set(lambda _kind, _path: Fault(503))
    snapshots.keep()
    snapshots.release(number)
    assert not is_held(admin, held)
    bucket.opened.cache_clear()
    object_server.proxy.set()
    assert snapshots.found() == {}, "what is left of it is no snapshot"
    assert "snapshots" not in pipeline.log.root.entries()


@pytest.mark.every_postgres
def test_timeouts_of_the_database_do_not_end_it(
    pipeline: PipelineUnderTest, make_keeper: MakeKeeper, admin: Connection, pg_version: int
) -> None:
    settings = ["idle_in_transaction_session_timeout", "statement_timeout"]
    settings += ["transaction_timeout"] if pg_version >= 17 else []
    for setting in settings:
        admin.execute(
            sql.SQL("ALTER DATABASE {} SET {} = '300ms'").format(
                sql.Identifier(admin.info.dbname), sql.Identifier(setting)
            )
        )
    held = make_keeper().take()
    with closing(psycopg.connect(pipeline.url)) as other:
        other.execute("SELECT 1")
        wait_until(
            lambda: (
                not admin.execute(
                    "SELECT FROM pg_stat_activity WHERE pid = %s", [other.info.backend_pid]
                ).fetchall()
            ),
            "another idle transaction was ended",
        )
    assert make_keeper().current() == held


@pytest.mark.every_postgres
def test_its_xmin_ages(
    pipeline: PipelineUnderTest, make_keeper: MakeKeeper, admin: Connection
) -> None:
    keeper = make_keeper()
    held = keeper.take()
    first = xmin_age(admin, held)
    pipeline.execute(*["SELECT txid_current()"] * 5)
    later = xmin_age(admin, held)
    assert first is not None
    assert later is not None
    assert later >= first + 5
    keeper.release()
    assert xmin_age(admin, held) is None


# -- without a pipeline ----------------------------------------------------------------------------


def test_it_goes_with_the_process_that_it_is_for(
    database: str, tmp_path: Path, admin: Connection
) -> None:
    url = database.replace("@", ":s3cr3t@")
    folder = tmp_path / "state"

    def keeper(owner: int) -> Keeper:
        return ProcessSnapshotKeeper(ConnectionUrl(url), folder, owner=owner)

    with subprocess.Popen(["sleep", "600"]) as owner:
        held = keeper(owner.pid).take()
        arguments = Path(f"/proc/{held.pid}/cmdline").read_text()
        assert "holder_process" in arguments
        assert "s3cr3t" not in arguments
        assert "s3cr3t" not in (folder / SNAPSHOT_FILE).read_text()
        # Any process that knows the folder finds it.
        assert keeper(owner.pid).current() == held
        owner.kill()
    expect_nothing_left(admin, held)
    wait_until(lambda: not folder.exists(), "the folder is gone, too")


def test_a_process_that_is_gone_gets_none_that_stays(
    database: str, tmp_path: Path, admin: Connection
) -> None:
    with subprocess.Popen(["true"]) as owner:
        pass
    held = ProcessSnapshotKeeper(ConnectionUrl(database), tmp_path / "s", owner=owner.pid).take()
    expect_nothing_left(admin, held)


def test_a_folder_that_cannot_be_written_is_named(
    database: str, tmp_path: Path, admin: Connection
) -> None:
    folder = tmp_path / "state"
    keeper = ProcessSnapshotKeeper(ConnectionUrl(database), folder, owner=os.getpid())

    def check() -> None:
        if not folder.exists():
            folder.write_text("a file is where the folder was to be")

    with pytest.raises(LogError, match=f"cannot be written down in {folder}"):
        keeper.take(check=check)
    wait_until(lambda: not temporary_slots(admin), "the slot is gone")
