"""What drivers of warehouses must survive and views must show, for the tests of members of the
family.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from penstock import failpoints
from penstock.decode.changes import ChangeSet
from penstock.destination.contract import Rows, SchemaChange
from penstock.destination.families.warehouse.destination import WarehouseDestination
from penstock.destination.protocols import TakesCopies
from penstock.model.errors import BatchAgain, DestinationUnavailable, Fenced, TableRefused
from penstock.model.lsn import Frontier, Position
from penstock.model.schema_change import TableChange
from penstock.model.watermarks import Watermarks
from penstock.testing import Adapter
from penstock.testing.change_builder import UNSET, ChangeBuilder, Column, table
from penstock.testing.contract.chunk_rows import ChunkRows, copy_chunks
from penstock.testing.contract.deliveries import (
    ITEMS,
    LOOSE,
    NOTES,
    assert_delivered,
    definition,
    deliver,
    insert_items,
    opened,
    reference,
)
from penstock.testing.merge_model import MergeModel, frozen
from tests.crash.passed_failpoints import passed_failpoints

PLACES = table(
    "places",
    Column("Area", "text", key=True),
    Column("nr", "int8", key=True),
    Column("open", "bool"),
    Column("x", "text"),
    Column("y", "text"),
)


def expect_none_lost_at_failpoints(
    adapter: Adapter, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the commit nothing is kept, after it everything; the next driver goes on from there.
    A process of its own would not reach the stand-in: the driver ends by an error.
    """
    builder, written = ChangeBuilder(), list[ChangeSet]()
    opened(adapter).close()
    for point in passed_failpoints(name):
        if not point.startswith(f"{name}."):
            continue
        written.append(insert_items(builder, 10 * len(written), 3))
        monkeypatch.setitem(failpoints._points, point, ("error", 1))
        with pytest.raises(RuntimeError, match=point):
            deliver(opened(adapter), builder.frontier, written[-1:])
        assert point not in failpoints._points  # it fired
        destination = opened(adapter)
        at = destination.committed()
        is_kept = at is not None and at.frontier == builder.frontier
        assert is_kept == (point == f"{name}.committed")
        if not is_kept:
            deliver(destination, builder.frontier, written[-1:])
        assert_delivered(adapter, reference(*written))


def expect_stale_driver_refused(adapter: Adapter) -> None:
    """Another one takes over between what tasks of the first wrote and its commit."""
    stale, builder = opened(adapter), ChangeBuilder()
    changes = insert_items(builder, 0, 2)
    receipt = stale.writer().write([changes])
    current = opened(adapter)
    # By the number alone: that its files are gone, too, is another matter.
    assert isinstance(stale, WarehouseDestination)
    with pytest.raises(Fenced, match="taken over"):
        stale.ledger.write(stale._driver, {"a note": "of a stale driver"})
    with pytest.raises(Fenced, match="taken over"):
        stale.commit([receipt], Watermarks(builder.frontier))
    deliver(current, builder.frontier, [changes])
    assert_delivered(adapter, reference(changes))


def expect_late_commit_found(adapter: Adapter, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to a COMMIT is lost, and the warehouse is asked before that is done: the same rows
    come again, and are there by then.
    """
    destination, builder = opened(adapter), ChangeBuilder()
    assert isinstance(destination, WarehouseDestination)
    changes, before = insert_items(builder, 0, 2), destination.ledger._all()
    with monkeypatch.context() as patch:
        commit = destination.session.commit

        def lost() -> None:
            commit()
            raise DestinationUnavailable("as the test wants it", remedy="")

        patch.setattr(destination.session, "commit", lost)
        with pytest.raises(DestinationUnavailable):
            deliver(destination, builder.frontier, [changes])
        patch.setattr(destination.ledger, "_all", lambda: before)
        assert destination.committed() is None
    with pytest.raises(BatchAgain, match="was lost"):
        deliver(destination, builder.frontier, [changes])
    assert destination.committed() == Watermarks(builder.frontier)
    assert_delivered(adapter, reference(changes))


def expect_tables_recreated(adapter: Adapter) -> None:
    """The source drops a table and makes another one of its name, with a column more. Rows that
    were kept are somebody else's to it; history goes on.
    """
    destination, builder, name = opened(adapter), ChangeBuilder(), (ITEMS.schema, ITEMS.name)
    assert isinstance(destination, WarehouseDestination)
    with builder.transaction():
        builder.insert(ITEMS, "1", "former")
    deliver(destination, builder.frontier, [builder.cut()])
    merges = destination.capabilities.merges
    again = replace(ITEMS, oid=ITEMS.oid + 1)
    if not merges:
        again = replace(again, columns=(*ITEMS.columns, Column("more", "text")))
    destination.let_go(definition(ITEMS))
    destination.fit_table(definition(again), [])
    destination.prepare([definition(again)])
    assert destination.has_foreign_rows(definition(again)) == merges
    with builder.transaction():
        builder.insert(again, *(["9", "new", "more"][: len(again.columns)]))
    deliver(destination, builder.frontier, [builder.cut()])
    rows = [dict(row) for row in adapter.rows(name).elements()]
    assert sorted(row["name"] or "" for row in rows) == ["former", "new"]
    assert [row.get("more") for row in rows if row["name"] == "new"] == [None if merges else "more"]
    # What it was is of no account any more.
    destination.prepare([definition(replace(ITEMS, name="other"))])
    assert not adapter.rows((ITEMS.schema, "other"))
    assert adapter.rows(name).total() == 2


def expect_table_taken_back(adapter: Adapter) -> None:
    """One that was removed, and stayed, is added again: its rows are the pipeline's own."""
    destination, builder, table = opened(adapter), ChangeBuilder(), definition(ITEMS)
    assert isinstance(destination, WarehouseDestination)
    destination.truncate_table(table)
    first = insert_items(builder, 0, 2)
    deliver(destination, builder.frontier, [first])
    destination.let_go(table)
    destination = opened(adapter, NOTES)
    assert isinstance(destination, WarehouseDestination)
    destination.fit_table(table, [])
    destination.prepare([table])
    assert not destination.has_foreign_rows(table)
    second = insert_items(builder, 2, 1)
    deliver(destination, builder.frontier, [second])
    assert_delivered(adapter, reference(first, second))


def expect_names_handed_on(adapter: Adapter) -> None:
    """In one transaction a table gives its name up, and another one takes it."""
    former, other = replace(ITEMS, name="items_old"), table("items_new", *ITEMS.columns)
    taken, builder = replace(other, name="items"), ChangeBuilder()
    destination = opened(adapter, other)
    with builder.transaction():
        builder.insert(ITEMS, "1", "former")
        builder.insert(other, "2", "new")
    rows = Rows((destination.writer().write([builder.cut()]),))
    changes = [
        SchemaChange(Position(1, number), 0, "ALTER TABLE", (change,))
        for number, change in enumerate(
            TableChange(definition(before), definition(after))
            for before, after in ((ITEMS, former), (other, taken))
        )
    ]
    assert isinstance(destination, WarehouseDestination)
    destination.commit_sections([rows, *changes], Watermarks(builder.frontier))
    assert [row["name"] for row in map(dict, adapter.rows(("public", "items_old")))] == ["former"]
    assert [row["name"] for row in map(dict, adapter.rows(("public", "items")))] == ["new"]


def expect_rename_refused(adapter: Adapter) -> None:
    """A table is to have the name of one that was let go and stayed, with the same columns."""
    former, renamed = table("items_old", *ITEMS.columns), replace(ITEMS, name="items_old")
    destination, builder = opened(adapter, former), ChangeBuilder()
    assert isinstance(destination, WarehouseDestination)
    with builder.transaction():
        builder.insert(ITEMS, "1", "live")
        builder.insert(former, "2", "former")
    deliver(destination, builder.frontier, [builder.cut()])
    destination.let_go(definition(former))
    change = TableChange(definition(ITEMS), definition(renamed))
    renames = SchemaChange(Position(1, 1), 0, "ALTER TABLE", (change,))
    with pytest.raises(TableRefused, match="items_old already") as refused:
        destination.commit_sections([renames], Watermarks(Frontier(2**40, 2**40)))
    assert refused.value.table == ITEMS.oid
    assert [row["name"] for row in map(dict, adapter.rows(("public", "items")))] == ["live"]


def every_kind_of_change(builder: ChangeBuilder) -> ChangeSet:
    """For change tables: rows that come, move, stay in part and go, a table that is emptied, and
    rows without a key.
    """
    with builder.transaction():
        builder.insert(ITEMS, "1", "one")
        builder.insert(ITEMS, "2", None)
        builder.insert(NOTES, "1", 'it\'s "so"\\')
        builder.insert(LOOSE, "same", None)
        builder.insert(LOOSE, "same", None)
    with builder.transaction():
        builder.update(NOTES, "1", UNSET)
        builder.update(NOTES, "3", UNSET, key=["1", None])
        builder.delete(LOOSE, full=["same", None])
        builder.truncate(ITEMS)
        builder.insert(ITEMS, "1", "again")
        builder.delete(ITEMS, key=["1", None])
    return builder.cut()


def expect_rows_left(adapter: Adapter) -> None:
    """The view over a change table shows the source's rows: after a copy, moves from key to key,
    keys that are exchanged, columns that were not sent, TRUNCATE, and another copy.
    """
    destination, builder, name = opened(adapter, PLACES), ChangeBuilder(), ("public", "places")
    model = MergeModel({name: ["Area", "nr"]})

    def expect(changes: ChangeSet) -> None:
        model.apply(reference(changes))
        deliver(destination, builder.frontier, [changes])
        assert adapter.rows(name) == model.rows(name)

    with builder.transaction():
        builder.insert(PLACES, "a", "1", "t", "x", "long")
        builder.insert(PLACES, "a ", "1", "f", None, "other")  # another key, with a blank
        builder.insert(PLACES, "b", "2", None, "", "b")
        builder.insert(PLACES, "c", "3", "t", "gone", None)
    expect(builder.cut())
    with builder.transaction():
        builder.update(PLACES, "a", "1", "f", "not y", UNSET)
        builder.update(PLACES, "d", "1", "f", UNSET, UNSET, key=["a", "1", None, None, None])
        builder.update(PLACES, "a", "1", "t", "from b", UNSET, key=["b", "2", None, None, None])
        builder.update(PLACES, "b", "2", "t", UNSET, UNSET, key=["d", "1", None, None, None])
        builder.delete(PLACES, key=["c", "3", None, None, None])
    expect(builder.cut())
    with builder.transaction():
        builder.update(PLACES, "b", "2", "t", None, UNSET)
        builder.insert(PLACES, "c", "3", None, "again", None)
    expect(builder.cut())
    with builder.transaction():
        builder.truncate(PLACES)
        builder.insert(PLACES, "b", "2", "f", "new", "new")
    expect(builder.cut())
    assert isinstance(destination, TakesCopies)
    destination.truncate_table(definition(PLACES))
    read = [("b", "2", "t", "read", "read"), ("e", "5", None, None, "")]
    at = Frontier(builder.frontier.end_lsn, builder.frontier.end_lsn + 1)
    copy_chunks(destination, ChunkRows(PLACES, "0", read, at))
    names = [column.name for column in PLACES.columns]
    left = [dict(zip(names, row, strict=True)) for row in read]
    assert adapter.rows(name) == Counter(map(frozen, left))
