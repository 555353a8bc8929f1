"""Micro-batches as the driver and its tasks deliver them, and what is to be found afterwards."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import TypeVar, cast

import pytest

from penstock.decode.changes import ChangeSet
from penstock.destination.contract import (
    Destination,
    LanedWriter,
    Receipt,
    TaskWriter,
)
from penstock.destination.memory import MemoryChange, MemoryWriter, Row
from penstock.model.lsn import Frontier
from penstock.model.table_definition import ColumnDefinition, TableDefinition, TypeName
from penstock.model.table_schema import ReplicaIdentity
from penstock.model.watermarks import Watermarks
from penstock.testing.adapter import Adapter
from penstock.testing.change_builder import ChangeBuilder, Column, Table, table
from penstock.testing.merge_model import MergeModel

ITEMS = table("items", Column("id", "int8", key=True), Column("name", "text"))
NOTES = table("notes", Column("id", "int8", key=True), Column("body", "text"))
LOOSE = table("loose", Column("a", "text"), Column("b", "text"), identity="f")
BARE = table("bare")
TABLES = (ITEMS, NOTES, LOOSE)
KEYLESS = (LOOSE, BARE)

Writer = TypeVar("Writer", bound=TaskWriter)

_SHOWN = {"int4": "integer", "int8": "bigint", "int2": "smallint", "bool": "boolean"}
"""What format_type() calls a type whose name in pg_type is another."""


def definition(of: Table) -> TableDefinition:
    """What the source's catalogue would say of a table."""
    keys = tuple(column.name for column in of.columns if column.key)
    by_index = of.identity == "i"
    return TableDefinition(
        oid=of.oid,
        schema=of.schema,
        name=of.name,
        replica_identity=cast("ReplicaIdentity", of.identity),
        columns=tuple(
            ColumnDefinition(
                number,
                column.name,
                TypeName("pg_catalog", _SHOWN.get(column.type, column.type)),
                not_null=column.key,
            )
            for number, column in enumerate(of.columns, start=1)
        ),
        primary_key=() if by_index else keys,
        identity_key=keys if by_index else (),
    )


def followed(adapter: Adapter, *tables: Table) -> list[Table]:
    """``TABLES`` and the tables that are named, as far as the destination takes them."""
    return [of for of in (*TABLES, *tables) if adapter.takes_keyless or of not in KEYLESS]


def needs_keyless(adapter: Adapter) -> None:
    """Skip a test that is of nothing but tables whose rows nothing identifies."""
    if not adapter.takes_keyless:
        pytest.skip(f"{adapter.make().name} refuses tables whose rows nothing identifies")


def opened(adapter: Adapter, *tables: Table) -> Destination:
    """A destination that is ready for ``TABLES`` and the tables that are named."""
    destination = adapter.make()
    destination.check()
    destination.open()
    destination.prepare([definition(of) for of in followed(adapter, *tables)])
    return destination


def needs(destination: Destination, *protocols: type) -> None:
    """Skip a test of what the destination does not claim to do, and say so."""
    missing = [of.__name__ for of in protocols if not isinstance(destination, of)]
    if missing:
        pytest.skip(f"{destination.name} is not {', '.join(missing)}: it does not claim to be")


def deliver(
    destination: Destination,
    frontier: Frontier,
    *tasks: Sequence[ChangeSet],
    behind: Mapping[int, Frontier] | None = None,
) -> None:
    """A micro-batch: each task's writer goes to its executor as bytes."""
    writer = destination.writer()
    if isinstance(writer, LanedWriter) and len(tasks) > 1:
        receipts = _lane_by_lane(writer, tasks)
    else:
        receipts = [on_executor(writer).write(iter(task)) for task in tasks]
    destination.commit(receipts, Watermarks(frontier, behind or {}))


def _lane_by_lane(writer: LanedWriter, tasks: Sequence[Sequence[ChangeSet]]) -> list[Receipt]:
    """As Spark does it: encoded by tasks, sent by others, one for each lane."""
    encoded = [part for task in tasks for part in on_executor(writer).encode(iter(task))]
    lanes = {part.lane for part in encoded}
    return [
        on_executor(writer)
        .send(sorted((p for p in encoded if p.lane == lane), key=lambda part: part.first))
        .receipt
        for lane in lanes
    ]


def on_executor(writer: Writer) -> Writer:
    """The writer as an executor gets it: its pickle, read again."""
    there: Writer = pickle.loads(pickle.dumps(writer))  # noqa: S301
    return there


def deliver_cut(destination: Destination, builder: ChangeBuilder) -> ChangeSet:
    """A micro-batch of one task with all that the builder has written since its last cut."""
    changes = builder.cut()
    deliver(destination, builder.frontier, [changes])
    return changes


def reference(*changes: ChangeSet) -> list[MemoryChange]:
    """What the destination ``memory`` would hold of them."""
    found: list[MemoryChange] = pickle.loads(MemoryWriter().write(changes))  # noqa: S301
    return found


def assert_delivered(adapter: Adapter, expected: Sequence[MemoryChange], *tables: Table) -> None:
    """Every change once, or the rows that they leave in ``TABLES`` and the named tables."""
    if adapter.keeps == "a count":
        assert adapter.count() == len(expected)
    elif adapter.keeps == "rows":
        keys = {(of.schema, of.name): _key(of) for of in followed(adapter, *tables)}
        model = MergeModel(keys)
        # A change that comes again leaves the same rows.
        model.apply({change.position: change for change in expected}.values())
        for name in keys:
            assert adapter.rows(name) == model.rows(name), name
    else:
        kept = [c for c in expected if c.op != "message" or adapter.keeps_messages]
        if not adapter.keeps_all_order:
            kept.sort(key=lambda change: change.position)
        assert [_sorted(change) for change in adapter.delivered()] == list(map(_sorted, kept))


def assert_nothing_missing(adapter: Adapter, expected: Sequence[MemoryChange]) -> None:
    """Every change at least once, and in order once repetitions are left out."""
    if adapter.keeps == "rows":
        assert_delivered(adapter, expected)
        return
    if adapter.keeps == "a count":
        assert adapter.count() >= len(expected)
        return
    found: dict[object, MemoryChange] = {}
    for change in adapter.delivered():
        found.setdefault(change.position, change)
    assert [_sorted(change) for change in found.values()] == list(map(_sorted, expected))


def _key(of: Table) -> list[str]:
    return [column.name for column in of.columns if column.key]


def _sorted(change: MemoryChange) -> tuple[object, ...]:
    return (change.position, change.op, sorted(change.tables), *_rest(change))


def _rest(change: MemoryChange) -> tuple[object, ...]:
    return (change.new, change.old, change.prefix, change.content)


def rows_of(adapter: Adapter) -> list[tuple[str, Row | None, Row | None]]:
    """Op, new and old values of every change that a reader finds."""
    return [(change.op, change.new, change.old) for change in adapter.delivered()]


def insert_items(builder: ChangeBuilder, first: int, count: int) -> ChangeSet:
    """Transactions of four changes each, over three tables; rows of ``loose`` are all equal."""
    for number in range(first, first + count):
        with builder.transaction():
            builder.insert(ITEMS, str(number), f"item {number}")
            builder.insert(NOTES, str(number), None)
            builder.insert(LOOSE, "equal", None)
            builder.update(ITEMS, str(number), "renamed")
    return builder.cut()
