"""Micro-batches as the driver and its tasks deliver them, and what is to be found afterwards."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

from penstock.decode.changes import ChangeSet
from penstock.destination.contract import Destination
from penstock.destination.memory import MemoryChange, MemoryWriter, Row
from penstock.lsn import Frontier
from tests.change_builder import ChangeBuilder, Column, table
from tests.contract.adapters import Adapter

ITEMS = table("items", Column("id", "int8", key=True), Column("name", "text"))
NOTES = table("notes", Column("id", "int8", key=True), Column("body", "text"))


def opened(adapter: Adapter) -> Destination:
    destination = adapter.make()
    destination.check()
    destination.open()
    return destination


def deliver(destination: Destination, frontier: Frontier, *tasks: Sequence[ChangeSet]) -> None:
    """A micro-batch: each task's writer goes to its executor as bytes."""
    writer = pickle.dumps(destination.task_writer())
    receipts = [pickle.loads(writer).write(iter(task)) for task in tasks]  # noqa: S301
    destination.commit(receipts, frontier)


def reference(*changes: ChangeSet) -> list[MemoryChange]:
    found: list[MemoryChange] = pickle.loads(MemoryWriter().write(changes))  # noqa: S301
    return found


def assert_delivered(adapter: Adapter, expected: Sequence[MemoryChange]) -> None:
    if adapter.keeps:
        assert [_sorted(change) for change in adapter.delivered()] == list(map(_sorted, expected))
    else:
        assert adapter.count() == len(expected)


def _sorted(change: MemoryChange) -> tuple[object, ...]:
    return (change.position, change.op, sorted(change.tables), *_rest(change))


def _rest(change: MemoryChange) -> tuple[object, ...]:
    return (change.new, change.old, change.prefix, change.content)


def rows_of(adapter: Adapter) -> list[tuple[str, Row | None, Row | None]]:
    return [(change.op, change.new, change.old) for change in adapter.delivered()]


def insert_items(builder: ChangeBuilder, first: int, count: int) -> ChangeSet:
    """Transactions of three changes each, over two tables."""
    for number in range(first, first + count):
        with builder.transaction():
            builder.insert(ITEMS, str(number), f"item {number}")
            builder.insert(NOTES, str(number), None)
            builder.update(ITEMS, str(number), "renamed")
    return builder.cut()
