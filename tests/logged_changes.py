"""What a change log holds, change by change, in a form that tests compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from penstock.changelog import chain
from penstock.changelog.changelog import ChangeLog
from penstock.changelog.segment_run import read_runs
from penstock.decode.changes import ChangeSet, TableChanges, decode_changes
from penstock.model.lsn import Position

SENTINEL = "test sentinel"
"""The prefix of messages that tests emit to see how far capture is."""

MESSAGES = (
    SENTINEL, "note", "inside", "loose", "stays", "rolled back", "the last one", "of a step",
    "workload", "workload, loose", "audit", "metrics", "",
)  # fmt: skip
"""The prefixes of logical messages that tests send and look for."""

Row = dict[str, str | None]


@dataclass(frozen=True)
class LoggedChange:
    """One change. ``table`` names all tables of a TRUNCATE and the prefix of a message."""

    position: Position
    xid: int
    op: str
    table: str
    new: Row | None = None
    old: Row | None = None
    old_is_full: bool | None = None
    unset: tuple[str, ...] = ()
    detail: tuple[object, ...] = ()


def logged_changes(log: ChangeLog, after: int | None = None) -> list[LoggedChange]:
    """Everything that readers see after ``after`` (default: all the log has), in position order.

    Checks on the way what holds for every log: positions rise, ordinals count from 0.
    """
    listing = log.list()
    if listing.frontier is None:
        return []
    first = listing.segments[0].after if after is None else after
    pointers = chain.between(listing.segments, listing.sizes, first, listing.frontier.commit_lsn)
    found: list[LoggedChange] = []
    for run in read_runs(log, pointers):
        part = list(_changes(decode_changes(run.rows, run.tables, run.origins)))
        assert len(part) == run.rows.num_rows
        found += sorted(part, key=lambda change: change.position)
    check_positions([change.position for change in found])
    return [change for change in found if change.table != SENTINEL]


def check_positions(positions: list[Position]) -> None:
    """Transactions in rising order of their commit LSN, each with the ordinals 0 to n-1."""
    assert not positions or positions[0].ordinal == 0
    for before, position in pairwise(positions):
        if position.commit_lsn == before.commit_lsn:
            assert position.ordinal == before.ordinal + 1, (before, position)
        else:
            assert position.commit_lsn > before.commit_lsn, (before, position)
            assert position.ordinal == 0, (before, position)


def _changes(part: ChangeSet) -> Iterator[LoggedChange]:
    for table in part.tables:
        yield from _rows(table)
    for event in part.truncates:
        yield LoggedChange(
            event.stamp.position,
            event.stamp.xid,
            "truncate",
            ", ".join(sorted(table.qualified_name for table in event.tables)),
            detail=(event.cascade, event.restart_identity),
        )
    for message in part.messages:
        yield LoggedChange(
            message.stamp.position,
            message.stamp.xid,
            "message",
            message.prefix,
            detail=(message.transactional, message.content),
        )


def _rows(changes: TableChanges) -> Iterator[LoggedChange]:
    columns = [column.name for column in changes.table.columns]
    new = _images(columns, changes.new_rows.tolist(), changes.new_text)
    old = _images(columns, changes.old_rows.tolist(), changes.old_text)
    unset: dict[int, list[str]] = {row: [] for row in new}
    for number, name in enumerate(columns):
        marks = changes.new_unset(number).tolist()
        for row, absent in zip(new, marks, strict=True):
            if absent:
                del new[row][name]
                unset[row].append(name)
    full = dict(zip(old, changes.old_is_full.tolist(), strict=True))
    keys = {column.name for column in changes.table.columns if column.is_key}
    for row in range(len(changes)):
        image = old.get(row)
        if image is not None and not full[row]:
            image = {name: value for name, value in image.items() if name in keys}
        yield LoggedChange(
            Position(int(changes.commit_lsn[row]), int(changes.ordinal[row])),
            int(changes.xid[row]),
            {"I": "insert", "U": "update", "D": "delete"}[chr(changes.op[row])],
            changes.table.qualified_name,
            new.get(row),
            image,
            full.get(row),
            tuple(unset.get(row, ())),
        )


def _images(columns: list[str], rows: list[int], text: Callable[[int], Any]) -> dict[int, Row]:
    images: dict[int, Row] = {row: {} for row in rows}
    for number, name in enumerate(columns):
        values = text(number).to_pylist()
        for row, value in zip(rows, values, strict=True):
            images[row][name] = value
    return images
