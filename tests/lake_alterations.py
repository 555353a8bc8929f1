"""Transactions that change tables of a lake, and drivers that die everywhere in them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.decode.changes import ChangeSet
from penstock.destination.contract import Rows, SchemaChange
from penstock.destination.families.staged_merge.destination import StagedMergeDestination
from penstock.model.errors import TableRefused
from penstock.model.lsn import Position
from penstock.model.schema_change import TableChange
from penstock.model.watermarks import Watermarks
from penstock.testing import Adapter, FrozenRow, frozen
from penstock.testing.change_builder import ChangeBuilder, Column, Table, table
from penstock.testing.contract.deliveries import (
    ITEMS,
    LOOSE,
    NOTES,
    definition,
    deliver,
    insert_items,
    opened,
)
from penstock.transform.floors import Floors
from penstock.transform.section import Section
from tests.lake_drivers import DriverDiedError


class Deaths:
    """A driver dies at the call with this number of those that are watched, before it is made."""

    def __init__(self, number: int) -> None:
        self._left = number
        self._lock = threading.Lock()

    @property
    def came(self) -> bool:
        return self._left <= 0

    def watch(self, of: object, *methods: str) -> None:
        for name in methods:
            setattr(of, name, self._watched(getattr(of, name)))

    def _watched(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def dying(*arguments: Any, **named: Any) -> Any:
            with self._lock:
                self._left -= 1
                if self.came:
                    raise DriverDiedError
            return method(*arguments, **named)

        return dying


class AlteringTransaction:
    """Rows of two tables, with these changes of them in between: a column comes, another one gets a
    new name, rows come with both, and the two tables exchange their names.
    """

    def __init__(self, builder: ChangeBuilder) -> None:
        wider = _like(ITEMS, "items", Column("name", "text"), Column("x", "text"))
        titled = _like(ITEMS, "items", Column("title", "text"), Column("x", "text"))
        self._states = [
            wider,
            titled,
            replace(titled, name="between"),
            replace(NOTES, name="items"),
            replace(titled, name="notes"),
        ]
        with builder.transaction():
            builder.insert(ITEMS, "10", "before")
            builder.insert(NOTES, "10", "before")
            for each in self._states:
                builder.message("penstock", b"ALTER TABLE")
                if each is titled:
                    builder.insert(titled, "11", "between", "1")
            builder.insert(self._states[4], "12", "behind", "2")
            builder.insert(self._states[3], "12", "behind")
        self.rows, self.end = builder.cut(), builder.frontier

    def deliver(self, destination: StagedMergeDestination) -> None:
        """As the pipeline does it: what a table has is left out."""
        at = destination.committed()
        assert at is not None
        floors = Floors.of_stream(at, set(), {ITEMS.oid, NOTES.oid})
        changes = self._changes(floors)
        rows = floors.apply(self.rows)
        sections: list[SchemaChange | Rows] = [self._rows(destination, [], rows, 0, 2)]
        sections += changes[:2]
        sections.append(self._rows(destination, changes[:2], rows, 4, 5))
        sections += changes[2:]
        sections.append(self._rows(destination, changes, rows, 8, 10))
        destination.commit_sections(sections, Watermarks(self.end))

    def _changes(self, floors: Floors) -> list[SchemaChange]:
        known, found = {of.oid: of for of in (ITEMS, NOTES)}, []
        for ordinal, after in zip((2, 3, 5, 6, 7), self._states, strict=True):
            # Columns are numbered by their place: one of another name is the same.
            change = TableChange(definition(known[after.oid]), definition(after))
            wanted = (change,) if floors.wants(after.oid, self.end.commit_lsn) else ()
            position = Position(self.end.commit_lsn, ordinal)
            found.append(SchemaChange(position, 0, "ALTER TABLE", wanted))
            known[after.oid] = after
        return found

    def _rows(
        self,
        destination: StagedMergeDestination,
        changes: Sequence[SchemaChange],
        rows: ChangeSet,
        first: int,
        end: int,
    ) -> Rows:
        writer = destination.section_writer(changes)
        return Rows((writer.write([Section(first, end).apply(rows)]),))


def _like(of: Table, name: str, *columns: Column) -> Table:
    return replace(of, name=name, columns=(of.columns[0], *columns))


def expect_once_wherever_it_dies(
    make: Callable[[Path], Any], folder: Path, *, every: int = 1
) -> None:
    """At each call, or ``every`` so many. The next driver brings the rest: nothing is done twice,
    and no table is taken for another.
    """
    number, came = 0, True
    while came:
        number += every
        came = _dies_at(number, make(folder / str(number)))
    assert number > 15, "there were not that many calls to die at"


def _dies_at(number: int, adapter: Any) -> bool:
    """Whether there was such a call."""
    builder = ChangeBuilder(leave_out=[LOOSE])
    destination = opened(adapter)
    assert isinstance(destination, StagedMergeDestination)
    deliver(destination, builder.frontier, [insert_items(builder, 0, 1)])
    transaction, deaths = AlteringTransaction(builder), Deaths(number)
    deaths.watch(destination, "apply", "alter")
    deaths.watch(destination.ledger, "_put")
    deaths.watch(destination._transactions, "table")  # type: ignore[attr-defined]
    try:
        transaction.deliver(destination)
    except DriverDiedError:
        destination = opened(adapter)
        assert isinstance(destination, StagedMergeDestination)
        transaction.deliver(destination)
    assert adapter.rows(("public", "notes")) == _counted(("id", "title", "x"), _TITLED), number
    assert adapter.rows(("public", "items")) == _counted(("id", "body"), _NOTES), number
    adapter.close()
    return deaths.came


_TITLED = (
    ("0", "renamed", None),
    ("10", "before", None),
    ("11", "between", "1"),
    ("12", "behind", "2"),
)
_NOTES = (("0", None), ("10", "before"), ("12", "behind"))


def _counted(names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> Counter[FrozenRow]:
    return Counter(frozen(dict(zip(names, row, strict=True))) for row in rows)


def expect_name_refused_that_is_taken(adapter: Adapter, move_away: Callable[[str], None]) -> None:
    """By a table that is followed no longer, and that looks the same. Once that is gone the table
    can have the name; its rows are there all the time.
    """
    before = definition(ITEMS)
    after, left = (replace(before, name="items_old", oid=before.oid + n) for n in (0, 1))
    destination = opened(adapter)
    assert isinstance(destination, StagedMergeDestination)
    destination.prepare([left])
    builder = ChangeBuilder(leave_out=[LOOSE])
    deliver(destination, builder.frontier, [insert_items(builder, 0, 1)])
    with builder.transaction():
        builder.message("penstock", b"ALTER TABLE")
    position, end = Position(builder.frontier.commit_lsn, 0), Watermarks(builder.frontier)
    change = SchemaChange(position, 0, "ALTER TABLE", (TableChange(before, after),))
    rows = Counter([frozen({"id": "0", "name": "renamed"})])
    for _ in range(2):
        with pytest.raises(TableRefused, match=r"public\.items was renamed to public\.items_old"):
            destination.commit_sections([change], end)
        assert adapter.rows(("public", "items")) == rows
        destination = opened(adapter)
        assert isinstance(destination, StagedMergeDestination)
    move_away("items_old")
    destination.commit_sections([change], end)
    assert adapter.rows(("public", "items_old")) == rows
    assert destination.committed() == end
    destination.close()


def expect_table_of_others_left(adapter: Any) -> None:
    """A table is renamed, and somebody else's has the name, with the same columns: it is neither
    taken for the renamed one, however often drivers start, nor removed by what resync does.
    """
    other, theirs = type(adapter.make())(adapter.options, "other"), ChangeBuilder()
    taken = table("items_old", *ITEMS.columns)
    other.open()
    other.prepare([definition(taken)])
    with theirs.transaction():
        theirs.insert(taken, "7", "theirs")
    deliver(other, theirs.frontier, [theirs.cut()])
    other.close()
    destination, builder = opened(adapter), ChangeBuilder(leave_out=[LOOSE])
    deliver(destination, builder.frontier, [insert_items(builder, 0, 1)])
    ours, before = adapter.rows(("public", "items")), definition(ITEMS)
    after = replace(before, name="items_old")
    with builder.transaction():
        builder.message("penstock", b"ALTER TABLE")
    position, end = Position(builder.frontier.commit_lsn, 0), Watermarks(builder.frontier)
    change = SchemaChange(position, 0, "ALTER TABLE", (TableChange(before, after),))
    for _ in range(2):
        assert isinstance(destination, StagedMergeDestination)
        with pytest.raises(TableRefused, match="already"):
            destination.commit_sections([change], end)
        destination.close()
        assert adapter.rows(("public", "items")) == ours
        destination = opened(adapter)
    assert isinstance(destination, StagedMergeDestination)
    destination.fit_table(replace(after, name="goods"), ())
    destination.close()
    kept = Counter([frozen({"id": "7", "name": "theirs"})])
    assert adapter.rows(("public", "items_old")) == kept
