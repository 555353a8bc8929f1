"""What warehouses whose schema changes commit must survive of transactions that change several
tables, for the tests of members of the family.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from penstock.destination.contract import Rows, SchemaChange
from penstock.destination.families.kept_tables import Notes
from penstock.destination.families.warehouse.destination import WarehouseDestination
from penstock.model.errors import DestinationError, TableRefused
from penstock.model.lsn import Frontier, Position
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import ColumnDefinition, TableDefinition, TypeName
from penstock.model.watermarks import Watermarks
from penstock.testing import Adapter
from penstock.testing.change_builder import ChangeBuilder, table
from penstock.testing.contract.deliveries import ITEMS, LOOSE, definition, opened
from tests.lake_drivers import items_with

_TEXT, _NUMBER = TypeName("pg_catalog", "text"), TypeName("pg_catalog", "bigint")
_KEY = (1, "id", _NUMBER, None)
_OTHER, _OLD = table("others", *ITEMS.columns), table("items_old", *ITEMS.columns)
_AT = Frontier(2**40, 2**40)

LoseConnection = Callable[[str], None]
"""Lets the next statement fail that fits a pattern, as one does whose connection is lost."""


def expect_none_skipped_without_a_refused_table(adapter: Adapter) -> None:
    """A table is changed, then refused, and its transaction comes again without it."""
    destination = _opened(adapter)
    wider = _wider(ITEMS)
    renamed = replace(wider, name="items_old")
    refused = [(definition(ITEMS), wider), (wider, renamed)]
    with pytest.raises(TableRefused, match="items_old already") as found:
        _commit(destination, [*refused, (definition(_OTHER), _wider(_OTHER))])
    assert found.value.table == ITEMS.oid
    _commit(destination, [None, None, (definition(_OTHER), _wider(_OTHER))])
    assert _columns(adapter, "others") == {"id", "name", "more"}
    # It is one column wider than the ledger knows; when it comes back, that is not done again.
    _commit(destination, [refused[0]])
    assert _columns(adapter, "items") == {"id", "name", "more"}


def expect_none_skipped_with_a_table_more(adapter: Adapter, lose: LoseConnection) -> None:
    """A driver dies in a transaction that came without a table, and it comes again with it."""
    more, most = _wider(_OTHER), _wider(_wider(_OTHER), "most")
    others = [(definition(_OTHER), more), (more, most)]
    lose(r"^ALTER TABLE .*(?i:others).* ADD COLUMN .(?i:most)")
    with pytest.raises(DestinationError):
        _commit(_opened(adapter), [None, *others])
    _commit(_opened(adapter), [(definition(ITEMS), _wider(ITEMS)), *others])
    assert _columns(adapter, "items") == {"id", "name", "more"}
    assert _columns(adapter, "others") == {"id", "name", "more", "most"}


def expect_done_once_around_another_commit(adapter: Adapter, lose: LoseConnection) -> None:
    """A driver dies behind rows and columns that exchanged their names. Before the transaction
    comes again another commit brings a table on that was behind.
    """
    states, builder = _exchanges(), ChangeBuilder()
    changes = [*states, (definition(_OTHER), _wider(_OTHER))]
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
    rows = builder.cut()
    lose("^ALTER TABLE .*(?i:others)")
    destination = _opened(adapter)
    first = Rows((destination.writer().write([rows]),))
    with pytest.raises(DestinationError):
        _commit(destination, changes, first)
    destination = _opened(adapter)
    at = destination.committed() or Watermarks()
    with builder.transaction():
        builder.insert(LOOSE, "caught up", None)
    receipt = destination.catchup_writer([LOOSE.oid]).write([builder.cut()])
    destination.commit([receipt], at.placed({LOOSE.oid: builder.frontier}))
    first = Rows((destination.writer().write([rows]),))
    _commit(destination, changes, first)
    rows_there = [dict(row) for row in adapter.rows(("public", "items")).elements()]
    assert rows_there == [{"id": "1", "name": "x", "b": "a"}]
    assert _columns(adapter, "others") == {"id", "name", "more"}


def expect_counts_of_older_versions_understood(
    adapter: Adapter, lose: LoseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They counted what was done of a transaction, over all its tables, and tables that were made
    anew had the number of their change as their mark.
    """
    (widened, exchanged), other = _exchanges(), (definition(_OTHER), _wider(_OTHER))
    destination, builder = _opened(adapter), ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
    rows = Rows((destination.writer().write([builder.cut()]),))
    destination.commit_sections([rows], Watermarks(builder.frontier))
    with monkeypatch.context() as patch:
        # The second change is done, and the count does not tell.
        patch.setattr(type(destination._done), "mark", lambda *_: "penstock shop 2/2")
        lose("^ALTER TABLE .*(?i:others)")
        with pytest.raises(DestinationError):
            _commit(destination, [widened, exchanged, other])
    destination = _opened(adapter)
    notes: Notes = dict.fromkeys(destination.ledger.read("altered/"))
    assert notes
    notes["altered"] = json.dumps([2, 1])
    destination.ledger.write(destination._driver, notes)
    lose("^ALTER TABLE .*(?i:others)")
    with pytest.raises(DestinationError):
        _commit(destination, [widened, exchanged, other])
    destination = _opened(adapter)
    _commit(destination, [None, None, other])
    assert _columns(adapter, "others") == {"id", "name", "more"}
    _commit(destination, [widened, exchanged])
    rows_there = [dict(row) for row in adapter.rows(("public", "items")).elements()]
    assert rows_there == [{"id": "1", "name": "x", "b": "a"}]


def expect_a_count_disbelieved(adapter: Adapter) -> None:
    """An older version counted the change of a table that was refused then: the table that is
    changed first now was not changed.
    """
    destination = _opened(adapter)
    destination.ledger.write(destination._driver, {"altered": json.dumps([1, 1])})
    destination = _opened(adapter)
    _commit(destination, [None, (definition(_OTHER), _wider(_OTHER))])
    assert _columns(adapter, "others") == {"id", "name", "more"}
    assert not destination.ledger.read("altered")


def _opened(adapter: Adapter) -> WarehouseDestination:
    """By a driver that takes over; ``items_old`` is there, and followed no longer."""
    destination = adapter.make()
    assert isinstance(destination, WarehouseDestination)
    destination.open()
    known = {int(name.removeprefix("table/")) for name in destination.ledger.read("table/")}
    if not known:
        opened(adapter, _OTHER, _OLD).let_go(definition(_OLD))  # type: ignore[attr-defined]
        return _opened(adapter)
    destination.prepare([definition(each) for each in (ITEMS, LOOSE, _OTHER)])
    return destination


def _exchanges() -> list[tuple[TableDefinition, TableDefinition]]:
    """A column comes, with a value for rows that are there, then two of them exchange names."""
    name, b = (2, "name", _TEXT, None), (3, "b", _TEXT, '{"x"}')
    two = items_with(_KEY, name, b, name="items")
    after = items_with(_KEY, (2, "b", _TEXT, None), (3, "name", _TEXT, None), name="items")
    return [(definition(ITEMS), two), (two, after)]


def _wider(before: object, name: str = "more") -> TableDefinition:
    found = before if isinstance(before, TableDefinition) else definition(before)  # type: ignore[arg-type]
    number = len(found.columns) + 1
    return replace(found, columns=(*found.columns, ColumnDefinition(number, name, _TEXT)))


def _commit(
    destination: WarehouseDestination,
    changes: Sequence[tuple[TableDefinition, TableDefinition] | None],
    *rows: Rows,
) -> None:
    """One transaction; a change of a table that is set aside is there, without it."""
    told = [
        SchemaChange(
            Position(1, number), 0, "ALTER TABLE", () if each is None else (TableChange(*each),)
        )
        for number, each in enumerate(changes, start=1)
    ]
    destination.commit_sections([*rows, *told], Watermarks(_AT))


def _columns(adapter: Adapter, name: str) -> set[str]:
    names, _ = adapter.read(("public", name))  # type: ignore[attr-defined]
    return {column.lower() for column in names}
