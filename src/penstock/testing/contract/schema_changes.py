"""What destinations promise that follow schema changes: these stand among rows, in their order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import cast

from penstock.decode.changes import ChangeSet
from penstock.destination.contract import Destination, Rows, SchemaChange
from penstock.destination.memory import MemoryChange, Row
from penstock.destination.protocols import FollowsSchema
from penstock.model.lsn import Position
from penstock.model.schema_change import TableChange
from penstock.model.watermarks import Watermarks
from penstock.testing.adapter import Adapter
from penstock.testing.change_builder import ChangeBuilder, Column
from penstock.testing.contract.deliveries import (
    ITEMS,
    assert_delivered,
    assert_nothing_missing,
    definition,
    deliver,
    needs,
    on_executor,
    opened,
    reference,
)
from penstock.testing.merge_model import frozen
from penstock.transform.section import Section

WIDER = replace(ITEMS, columns=(*ITEMS.columns, Column("price", "text")))


class FollowingDestination(Destination, FollowsSchema):
    """What a destination that follows schema changes is to the type checker."""


@dataclass(frozen=True)
class Altered:
    """A transaction that adds a column between two of its rows."""

    before: ChangeSet
    change: SchemaChange
    after: ChangeSet

    def expected(self, adapter: Adapter) -> list[MemoryChange]:
        """What ``delivered`` is to find of it."""
        before = reference(self.before)
        if adapter.widens_old_rows:
            before = [replace(row, new={**(row.new or {}), "price": None}) for row in before]
        told = MemoryChange(self.change.position, "schema", ((ITEMS.schema, ITEMS.name),))
        return [*before, *[told] * adapter.tells_schema, *reference(self.after)]


def following(adapter: Adapter) -> FollowingDestination:
    """An open destination; skips the test where it does not follow schema changes."""
    destination = opened(adapter)
    needs(destination, FollowsSchema)
    return cast("FollowingDestination", destination)


def alter(builder: ChangeBuilder) -> Altered:
    """Two rows, a new column, and rows that have it: one is new, and one was there before."""
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
        builder.insert(ITEMS, "2", "b")
        # Penstock's event trigger tells of the change here, so this ordinal is the change's own.
        builder.message("penstock", b"ALTER TABLE")
        builder.insert(WIDER, "3", "c", "2")
        builder.update(WIDER, "1", "a", "1.5")
    whole = builder.cut()
    position = Position(builder.frontier.commit_lsn, 2)
    table = TableChange(definition(ITEMS), definition(WIDER))
    change = SchemaChange(position, builder.micros, "ALTER TABLE", (table,))
    return Altered(Section(0, 2).apply(whole), change, Section(3).apply(whole))


def write_sections(
    destination: FollowingDestination, altered: Altered
) -> list[SchemaChange | Rows]:
    """What tasks do with the rows before the change, and then with those behind it."""
    before = on_executor(destination.section_writer([])).write([altered.before])
    after = on_executor(destination.section_writer([altered.change])).write([altered.after])
    return [Rows((before,)), altered.change, Rows((after,))]


def assert_rows(adapter: Adapter, *rows: Row) -> None:
    """These rows of the table that was changed, where the destination keeps rows."""
    found = adapter.rows((ITEMS.schema, ITEMS.name))
    assert found == Counter(map(frozen, rows))


LEFT: tuple[Row, ...] = (
    {"id": "1", "name": "a", "price": "1.5"},
    {"id": "2", "name": "b", "price": None},
    {"id": "3", "name": "c", "price": "2"},
)


class SchemaChangeTests:
    """Schema changes among rows."""

    def test_a_schema_change_stands_between_the_rows_of_its_transaction(
        self, adapter: Adapter, builder: ChangeBuilder
    ) -> None:
        destination = following(adapter)
        altered = alter(builder)
        at = Watermarks(builder.frontier)
        destination.commit_sections(write_sections(destination, altered), at)
        if destination.capabilities.remembers:
            assert destination.committed() == at
        destination.prepare([definition(WIDER)])
        with builder.transaction():
            builder.insert(WIDER, "4", "d", "3")
        later = builder.cut()
        deliver(destination, builder.frontier, [later])
        if adapter.keeps == "rows":
            assert_rows(adapter, *LEFT, {"id": "4", "name": "d", "price": "3"})
        else:
            assert_delivered(adapter, [*altered.expected(adapter), *reference(later)])

    def test_a_schema_change_that_comes_again_after_a_crash(
        self, adapter: Adapter, builder: ChangeBuilder
    ) -> None:
        destination = following(adapter)
        altered = alter(builder)
        at = Watermarks(builder.frontier)
        write_sections(destination, altered)
        destination = following(adapter)
        assert destination.committed() is None
        destination.commit_sections(write_sections(destination, altered), at)
        if destination.capabilities.remembers:
            assert adapter.make().committed() == at
        if adapter.keeps == "rows":
            assert_rows(adapter, *LEFT)
        elif destination.capabilities.sends_at_once and not destination.capabilities.exactly_once:
            assert_nothing_missing(adapter, altered.expected(adapter))
        else:
            assert_delivered(adapter, altered.expected(adapter))
