"""The destination hears of tables that stand where all others do, once, and what it says of them is
kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from penstock.destination.discard import DiscardDestination, DiscardOptions
from penstock.model.errors import DestinationUnavailable
from penstock.model.lsn import Frontier
from penstock.model.table_definition import TableDefinition
from penstock.model.table_state import Errored, Ready
from penstock.model.watermarks import Watermarks
from penstock.pipeline.copy.copy_target import CopyTarget
from penstock.pipeline.copy.joined_tables import JoinedTables
from penstock.pipeline.tables.registry import TableRegistry
from penstock.store import MemoryStore
from tests.fix_pipeline import wait_until
from tests.kept_tables import KeptTables
from tests.run_context import Nobody

ASIDE = Errored("as the test wants it")


class Keys(DiscardDestination, KeptTables):
    """Goes on when it ``may``; says of table 1 what ``note`` is, and that old notes are outdated.
    ``told`` are the calls.
    """

    def __init__(self) -> None:
        super().__init__(DiscardOptions(), "shop")
        self.told: list[tuple[set[int], set[int]]] = []
        self.note = ""
        self.may = Event()
        self.may.set()
        self.failures: list[Exception] = []

    def complete_together(self, tables: Collection[int], new: Collection[int]) -> None:
        self.told.append((set(tables), set(new)))
        self.may.wait(60)
        if self.failures:
            raise self.failures.pop()

    def notes(self, table: int) -> list[str]:
        return [self.note] if self.note and table == 1 else []

    def is_outdated(self, table: int, note: str) -> bool:
        return note.startswith("old")


class Run(Nobody):
    """Three tables, of which 1 and 2 are ready."""

    standing = Watermarks()

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.store = MemoryStore("joined")
        self.store.open()
        self.tables = TableRegistry(self.store, merges=True, copies=False)
        self.tables.enrol([TableDefinition(n, "public", f"t{n}", "d", ()) for n in (1, 2, 3)], 0)
        self.store.update_table_states({3: ASIDE})
        self.destination = Keys()
        self.joined = JoinedTables(CopyTarget(self.destination), self.tables, self, pool)

    def look(self) -> list[tuple[set[int], set[int]]]:
        """What is told until nothing is left to be told."""
        before = len(self.destination.told)

        def is_settled() -> bool:
            self.joined.look()
            return self.joined.is_settled

        wait_until(is_settled, "all is told", 30)
        self.joined.look()
        return self.destination.told[before:]

    def until(self, condition: Callable[[], bool]) -> None:
        def met() -> bool:
            self.joined.look()
            return condition()

        wait_until(met, "the test goes on", 30)


@pytest.fixture
def run() -> Iterator[Run]:
    with ThreadPoolExecutor(1) as pool:
        run = Run(pool)
        yield run
        run.destination.may.set()


def test_tables_are_told_once(run: Run) -> None:
    assert not run.joined.is_settled
    assert run.look() == [({1, 2}, {1, 2})]
    assert run.look() == []
    # It is ready, and catches up.
    run.standing = Watermarks(Frontier(9, 9), {3: Frontier(5, 5)})
    run.store.retry_table(3)
    assert isinstance(run.store.get_table_states()[3], Ready)
    assert run.look() == []
    run.standing = Watermarks(Frontier(9, 9))
    assert run.look() == [({1, 2, 3}, {3})]
    # One that left comes back.
    run.store.update_table_states({2: ASIDE})
    assert run.look() == []
    run.tables.leave([1])
    assert run.look() == []
    run.tables.leave([])
    assert run.look() == [({1, 3}, {1})]


def test_what_it_says_takes_the_place_of_what_was_said(run: Run) -> None:
    run.store.set_notes(1, ["other", "old"])
    run.store.set_notes(2, ["old"])
    run.store.set_notes(3, ["old"])
    run.destination.note = "new"
    run.look()
    assert run.store.get_notes(1) == ("other", "new")
    assert run.store.get_notes(2) == ()
    assert run.store.get_notes(3) == ("old",), "nobody knows"
    assert run.tables.note_count == 3


def test_what_was_found_while_a_table_left_means_nothing(run: Run) -> None:
    """Though it is back before that comes to its end. It was told of before."""
    run.look()
    run.store.retry_table(3)
    run.destination.may.clear()
    run.destination.note = "new"
    run.until(lambda: len(run.destination.told) > 1)
    run.store.update_table_states({2: ASIDE})
    run.joined.look()
    run.store.retry_table(2)
    run.destination.may.set()
    run.until(lambda: len(run.destination.told) > 2 or bool(run.store.get_notes(1)))
    assert run.destination.told[1:] == [({1, 2, 3}, {3}), ({1, 2, 3}, {2, 3})]
    run.look()
    assert run.store.get_notes(1) == ("new",)


def test_who_does_not_answer_is_told_again(run: Run) -> None:
    run.destination.failures = [DestinationUnavailable("as the test wants it", remedy="")]
    with pytest.raises(DestinationUnavailable):
        run.look()
    assert not run.joined.is_settled
    assert run.look() == [({1, 2}, {1, 2})]
