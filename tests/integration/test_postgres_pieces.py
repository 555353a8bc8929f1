"""Pieces of a batch that are at their targets before its commit: invisible, undone if need be."""

from __future__ import annotations

import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from penstock.destination.postgres import begun_batch
from penstock.destination.postgres.destination import PostgresDestination
from penstock.destination.postgres.merging.batch_merge import copy_handed
from penstock.metrics.written import JobResult
from penstock.model.errors import BatchAgain, DestinationUnavailable, Fenced, TableRefused
from penstock.model.lsn import NOTHING
from penstock.model.watermarks import Watermarks
from penstock.pipeline.run import batch_committer
from penstock.pipeline.run.batch_committer import BatchCommitter
from penstock.pipeline.run.pieces import Pieces as TakenPieces
from penstock.testing.change_builder import ChangeBuilder, Column, table
from penstock.testing.contract.deliveries import definition
from tests.fix_target import Target, tasks_elsewhere
from tests.run_context import run_context

_OPEN = (
    "SELECT FROM pg_stat_activity WHERE datname = current_database()"
    " AND state = 'idle in transaction'"
)
ITEMS = table("items", Column("id", "int8", key=True), Column("v", "text"))
LOOSE = table("loose", Column("a", "text"), identity="f")


class Pieces:
    """A batch that is written piece by piece, and how much of each was taken."""

    def __init__(self, target: Target, builder: ChangeBuilder, url: str = "") -> None:
        self.url = url
        self.destination = target.opened(definition(ITEMS), definition(LOOSE), url=url)
        self.target = target
        self.builder = builder
        self.writer = self.destination.writer()
        self.receipts: list[bytes] = []

    def add(self, *numbers: int, v: str = "a", take: bool = True) -> None:
        """A piece with rows to add."""
        with self.builder.transaction():
            for number in numbers:
                self.builder.insert(ITEMS, str(number), v)
                self.builder.insert(LOOSE, f"loose {number}")
        self.write(take=take)

    def write(self, *, take: bool = True) -> None:
        """What the builder has, as a piece."""
        self.receipts.append(self.writer.write([self.builder.cut()]))
        if take:
            self.destination.take_piece(self.receipts[-1:])

    @property
    def is_open(self) -> bool:
        """Whether the target's server has a transaction open with a part of the batch."""
        return self.target.all(
            "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'penstock shop"
            " pieces' AND datname = current_database() AND state LIKE 'idle in transaction%'"
        ) == [(True,)]

    def commit(self, destination: PostgresDestination | None = None) -> None:
        (destination or self.destination).commit(self.receipts, Watermarks(self.builder.frontier))

    @property
    def ids(self) -> list[int]:
        return [row[0] for row in self.target.all("SELECT id FROM items ORDER BY id")]

    def expect(self, *numbers: int) -> None:
        """These rows, all of them and each once, the position with them, and nothing left over."""
        assert self.ids == [*numbers]
        assert self.target.rows("loose") == {(f"loose {number}",): 1 for number in numbers}
        held = self.destination.committed()
        assert held is not None
        assert held.frontier == self.builder.frontier
        assert not self.is_open


@pytest.fixture
def pieces(target: Target) -> Pieces:
    return Pieces(target, ChangeBuilder())


def test_nobody_sees_a_piece_before_the_commit(pieces: Pieces) -> None:
    pieces.add(1, 2)
    pieces.add(3)
    assert pieces.is_open
    assert (pieces.ids, pieces.destination.committed()) == ([], None)
    pieces.add(4, take=False)
    pieces.commit()
    pieces.expect(1, 2, 3, 4)
    # The next batch has nothing to do with it.
    pieces.writer, pieces.receipts = pieces.destination.writer(), []
    pieces.add(5)
    pieces.commit()
    pieces.expect(1, 2, 3, 4, 5)


def test_rows_are_copied_when_the_piece_is_taken(
    pieces: Pieces, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is what it is for: the commit copies only those that were not taken."""
    pieces.add(1, 2)
    copied: list[int] = []
    merge = PostgresDestination._merge

    def spy(*args: Any, **more: Any) -> None:
        copied.append(sum(part.handed.rows for part in args[3].all_parts))
        merge(*args, **more)

    monkeypatch.setattr(PostgresDestination, "_merge", spy)
    pieces.add(3, take=False)
    pieces.commit()
    pieces.expect(1, 2, 3)
    assert copied == [2]  # a row of each table


def test_what_is_undone_leaves_nothing(pieces: Pieces) -> None:
    pieces.add(1, 2)
    pieces.destination.undo_pieces()
    assert (pieces.ids, pieces.is_open) == ([], False)
    # The same batch, as a whole.
    pieces.commit()
    pieces.expect(1, 2)


def test_pieces_of_a_batch_that_was_left_hold_up_no_other_one(pieces: Pieces) -> None:
    """The driver would wait for itself."""
    pieces.add(1, 2)
    left, pieces.receipts = pieces.receipts, []
    assert left
    pieces.writer = pieces.destination.writer()
    with pieces.builder.transaction():
        for number in (1, 2):
            pieces.builder.insert(ITEMS, str(number), "a")
            pieces.builder.insert(LOOSE, f"loose {number}")
    pieces.write(take=False)
    pieces.commit()
    pieces.expect(1, 2)


def test_a_piece_with_changes_and_all_behind_it_wait_for_the_commit(pieces: Pieces) -> None:
    pieces.add(1, 2)
    with pieces.builder.transaction():
        pieces.builder.update(ITEMS, "1", "changed")
        pieces.builder.delete(ITEMS, key=["2", None])
        pieces.builder.delete(LOOSE, full=["loose 2"])
    pieces.write()
    pieces.add(2, 3, v="again")
    pieces.commit()
    pieces.expect(1, 2, 3)
    assert pieces.target.rows("items") == {
        ("1", "changed"): 1,
        ("2", "again"): 1,
        ("3", "again"): 1,
    }


def test_so_do_those_of_a_table_without_a_key(pieces: Pieces) -> None:
    """No key would tell that rows came twice."""
    for line in ("first", "second"):
        with pieces.builder.transaction():
            pieces.builder.insert(LOOSE, line)
        pieces.write()
        with pieces.builder.transaction():
            pieces.builder.delete(LOOSE, full=[line])
        pieces.write()
    with pieces.builder.transaction():
        pieces.builder.insert(LOOSE, "third")
    pieces.write()
    pieces.commit()
    assert pieces.target.rows("loose") == {("third",): 1}


def test_a_truncate_takes_what_was_taken_before_it(pieces: Pieces) -> None:
    pieces.add(1, 2)
    with pieces.builder.transaction():
        pieces.builder.truncate(ITEMS)
        pieces.builder.truncate(LOOSE)
    pieces.write()
    pieces.add(3)
    pieces.commit()
    pieces.expect(3)


def test_a_row_in_the_way_undoes_the_pieces_and_the_batch_comes_as_ever(pieces: Pieces) -> None:
    pieces.target.execute("INSERT INTO items VALUES (3, 'in the way')")
    pieces.add(1, 2)
    pieces.add(3)
    assert not pieces.is_open
    pieces.add(4)
    pieces.commit()
    pieces.expect(1, 2, 3, 4)


def test_so_does_one_in_the_way_of_the_rest(pieces: Pieces) -> None:
    pieces.target.execute("INSERT INTO items VALUES (3, 'in the way')")
    pieces.add(1, 2)
    pieces.add(3, take=False)
    pieces.commit()
    pieces.expect(1, 2, 3)


def test_a_refused_row_is_named_and_nothing_of_the_pieces_stays(pieces: Pieces) -> None:
    pieces.target.execute("ALTER TABLE items ADD CHECK (v <> 'bad')")
    pieces.add(1)
    pieces.add(7, v="bad")
    with pytest.raises(TableRefused, match=r"public\.items.*id = 7"):
        pieces.commit()
    assert (pieces.ids, pieces.is_open) == ([], False)
    assert pieces.destination.committed() is None


def test_a_session_that_is_ended_meanwhile_costs_nothing_but_time(pieces: Pieces) -> None:
    pieces.add(1)
    pieces.target.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        " WHERE application_name = 'penstock shop pieces' AND datname = current_database()"
    )
    pieces.add(2)
    pieces.commit()
    pieces.expect(1, 2)


def test_one_that_is_ended_before_the_commit_is_asked_for_again(pieces: Pieces) -> None:
    """Whether it was committed nobody can say at that moment."""
    pieces.add(1)
    pieces.target.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        " WHERE application_name = 'penstock shop pieces' AND datname = current_database()"
    )
    with pytest.raises(DestinationUnavailable):
        pieces.commit()
    assert pieces.destination.committed() is None
    with pytest.raises(BatchAgain):
        # Its rows were not kept: it is written again.
        pieces.commit()


def test_a_driver_that_takes_over_ends_the_pieces_of_the_one_before(pieces: Pieces) -> None:
    """They would hold up its own rows of the same keys."""
    pieces.add(1, 2)
    second = Pieces(pieces.target, ChangeBuilder())
    assert not pieces.is_open
    second.add(1, 2)
    with pytest.raises((Fenced, DestinationUnavailable)):
        pieces.commit()
    second.commit()
    second.expect(1, 2)


def test_it_does_so_whatever_the_url_calls_its_sessions(target: Target) -> None:
    pieces = Pieces(target, ChangeBuilder(), make_conninfo(target.url, application_name="etl"))
    pieces.add(1, 2)
    assert len(target.all(_OPEN)) == 1
    pieces.target.opened(definition(ITEMS), definition(LOOSE), url=pieces.url)
    assert target.all(_OPEN) == []


def test_and_whatever_role_they_have_taken(target: Target) -> None:
    """One who owns the tables, say. The server shows who logged in, and to whoever may see it."""
    owner = f"owner_{uuid.uuid4().hex}"
    target.execute(f"CREATE ROLE {owner}")
    try:
        target.execute(f"GRANT ALL ON SCHEMA public TO {owner}")
        target.execute(
            f"DO $$BEGIN EXECUTE format('GRANT ALL ON DATABASE %I TO {owner}', current_database());"
            " END$$"
        )
        pieces = with_default(target, f"role={owner}")
        pieces.add(1, 2)
        assert len(target.all(_OPEN)) == 1
        pieces.target.opened(definition(ITEMS), definition(LOOSE), url=pieces.url)
        assert target.all(_OPEN) == []
    finally:
        for destination in target._made:
            destination.close()
        target.execute(f"DROP OWNED BY {owner} CASCADE; DROP ROLE {owner}")


def test_a_driver_that_was_overtaken_takes_no_pieces(pieces: Pieces) -> None:
    """Nobody would end them, and frozen in its batch it would hold up the next driver's rows of the
    same keys for as long as it is.
    """
    second = Pieces(pieces.target, ChangeBuilder())
    pieces.add(1, 2)
    assert not pieces.is_open
    second.add(1, 2)
    second.commit()
    second.expect(1, 2)
    with pytest.raises(Fenced):
        pieces.commit()
    second.expect(1, 2)


def test_a_table_that_is_brought_on_by_itself_meanwhile_makes_no_piece_visible(
    pieces: Pieces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commits are another thread's, and undo what was taken of the stream's batch."""
    committer = BatchCommitter(run_context("shop", tmp_path, destination=pieces.destination))
    committer.take_up(NOTHING, {ITEMS.oid, LOOSE.oid, 7}, (), {})
    aside = threading.Thread(
        target=committer.commit_aside, args=(JobResult(), {7: pieces.builder.frontier})
    )

    def slowly(*arguments: Any) -> None:
        aside.start()
        aside.join(0.5)
        copy_handed(*arguments)

    monkeypatch.setattr(begun_batch, "copy_handed", slowly)
    pieces.add(1, 2, take=False)
    taken = TakenPieces(pieces.destination, 1, lambda: True, committer.locked)
    taken.take(pieces.receipts, is_first=True)
    aside.join()
    assert pieces.ids == []
    committer(JobResult(pieces.receipts), pieces.builder.frontier)
    pieces.expect(1, 2)


def test_who_changes_a_table_waits_for_the_next_piece_and_not_for_the_commit(
    pieces: Pieces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a transaction of many millions that may be hours."""
    monkeypatch.setattr(batch_committer, "_LOCKED_SECONDS", 0.1)
    committer = BatchCommitter(run_context("shop", tmp_path, destination=pieces.destination))
    committer.take_up(NOTHING, {ITEMS.oid, LOOSE.oid}, (), {})
    taken = TakenPieces(pieces.destination, 1, lambda: True, committer.locked)
    pieces.add(1, take=False)
    taken.take(pieces.receipts[-1:], is_first=True)
    holds = threading.Event()

    def change() -> None:
        with committer.lock:
            holds.set()
            pieces.target.execute("ALTER TABLE items ADD extra int")

    changing = threading.Thread(target=change, daemon=True)
    changing.start()
    holds.wait()
    pieces.add(2, take=False)
    taken.take(pieces.receipts[-1:], is_first=False)
    changing.join(30)
    assert not changing.is_alive()
    committer(JobResult(pieces.receipts), pieces.builder.frontier)
    pieces.expect(1, 2)


def with_default(target: Target, setting: str) -> Pieces:
    """A batch at a server that gives the role's sessions this setting."""
    return Pieces(target, ChangeBuilder(), make_conninfo(target.url, options=f"-c {setting}"))


@pytest.mark.parametrize("level", [r"repeatable\ read", "serializable"])
def test_what_is_staged_after_the_first_piece_is_seen_whatever_the_role_s_isolation_is(
    target: Target, level: str
) -> None:
    """Else it is missed for ever: a snapshot of before does not have it."""
    pieces = with_default(target, f"default_transaction_isolation={level}")
    pieces.add(1, 2)
    with pieces.builder.transaction():
        pieces.builder.update(ITEMS, "1", "changed")
    pieces.write()
    pieces.commit()
    pieces.expect(1, 2)


@pytest.mark.parametrize("setting", ["idle_in_transaction_session_timeout", "transaction_timeout"])
def test_pieces_stay_open_whatever_the_role_s_timeouts_are(target: Target, setting: str) -> None:
    if setting == "transaction_timeout" and target.conn.info.server_version < 170000:
        pytest.skip("it came with version 17")
    pieces = with_default(target, f"{setting}=200")
    pieces.add(1, 2)
    time.sleep(0.4)
    assert pieces.is_open
    pieces.add(3)
    pieces.commit()
    pieces.expect(1, 2, 3)


def test_what_tasks_staged_is_never_taken_ahead(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks_elsewhere(monkeypatch)
    pieces = Pieces(target, ChangeBuilder())
    pieces.add(1)
    assert not pieces.is_open
    pieces.commit()
    pieces.expect(1)


@pytest.mark.parametrize(("mode", "gains"), [("append", False), ("merge", True)])
def test_a_history_gains_nothing_by_pieces(target: Target, mode: str, gains: bool) -> None:
    assert target.opened(definition(ITEMS), mode=mode).gains_by_pieces is gains
