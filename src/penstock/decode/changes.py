"""The changes of a run of segments, table by table, as lazily decoded Arrow columns.

Values stay where they are in the payload until they are asked for. Tables with the same column
types are walked and decoded together, so that many small tables cost little more than one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.decode.given_image import GivenColumn, GivenImage
from penstock.decode.image import ImageGroup, Mask, images_of, within
from penstock.decode.text_image import Layout, TextImage
from penstock.decode.typed import TypedColumn
from penstock.model.errors import DecodeError
from penstock.model.lsn import Position
from penstock.model.schema_message import SCHEMA_CHANGE
from penstock.model.table_schema import TableSchema
from penstock.pgoutput import messages, tuples
from penstock.pgoutput.tuples import Bytes, Ints

_KNOWN = np.zeros(256, bool)
# Schema changes are for the driver alone.
_KNOWN[[*b"IUDTM", SCHEMA_CHANGE]] = True


@dataclass(frozen=True)
class Stamp:
    """When and by whom a change was made."""

    position: Position
    lsn: int
    xid: int
    commit_micros: int
    origin: str | None


@dataclass(frozen=True)
class TruncateEvent:
    """One TRUNCATE, of all its tables at once."""

    stamp: Stamp
    tables: tuple[TableSchema, ...]
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True)
class MessageEvent:
    """One pg_logical_emit_message."""

    stamp: Stamp
    transactional: bool
    prefix: str
    content: bytes


@dataclass(frozen=True)
class _Stamps:
    """The columns that all changes have, for some rows of the run."""

    lsn: Ints
    commit_lsn: Ints
    ordinal: Ints
    xid: Ints
    commit_micros: Ints
    origin: Ints

    def take(self, rows: Ints | slice) -> _Stamps:
        return _Stamps(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


class TableChanges:
    """Inserts, updates and deletes of one table under one definition, in position order."""

    def __init__(
        self,
        table: TableSchema,
        group: ImageGroup,
        rows: slice,
        stamps: _Stamps,
        origins: Sequence[str],
    ) -> None:
        self.table = table
        self._group = group
        self._rows = rows
        self._stamps = stamps
        self._origins = origins
        self._new = within(group.new_rows, rows)
        self._old = within(group.old_rows, rows)

    def __len__(self) -> int:
        return int(self._rows.stop - self._rows.start)

    def part(self, first: int, last: int) -> TableChanges:
        """The changes ``first`` up to ``last``, which is not among them."""
        rows = slice(self._rows.start + first, self._rows.start + last)
        stamps = self._stamps.take(slice(first, last))
        return TableChanges(self.table, self._group, rows, stamps, self._origins)

    def take(self, rows: Ints) -> TableChanges:
        """Some of the changes, in this order, in columns of their own. Nothing is decoded."""
        return take_rows([self], [rows])[0]

    def select(self, columns: Sequence[int]) -> TableChanges:
        """The same changes with these columns alone. Nothing is decoded."""
        return self.with_columns(
            replace(self.table, columns=tuple(self.table.columns[c] for c in columns)), columns
        )

    def with_columns(
        self, table: TableSchema, columns: Sequence[int | GivenColumn]
    ) -> TableChanges:
        """The same changes under another definition, whatever it calls the table and its columns.

        For each of its columns, ``columns`` has the number of the one that takes its place, or the
        column itself. Nothing is decoded; where all stay in their places, nothing is copied.
        """
        if list(columns) == list(range(len(self.table.columns))):
            return TableChanges(table, self._group, self._rows, self._stamps, self._origins)
        kept = [column for column in columns if isinstance(column, int)]
        source = replace(self.table, columns=tuple(self.table.columns[c] for c in kept))
        group = self._group.cut(self._rows, kept, source)
        if len(kept) < len(columns):
            places = iter(range(len(kept)))
            given = [next(places) if isinstance(c, int) else c for c in columns]
            new = [c if isinstance(c, int) else c.new for c in given]
            old = [c if isinstance(c, int) else c.old for c in given]
            group = replace(
                group,
                new=GivenImage(table, new, group.new, source),
                old=GivenImage(table, old, group.old, source),
            )
        return TableChanges(table, group, slice(0, len(self)), self._stamps, self._origins)

    def told_as(self, op: Bytes) -> TableChanges:
        """The same changes under other operations: an update may become an insert, which has no
        old image, or a delete, which has no new one. Nothing is decoded.
        """
        every = list(range(len(self.table.columns)))
        group = self._group.cut(self._rows, every, self.table)
        new = np.flatnonzero(op[group.new_rows] != tuples.DELETE)
        old = np.flatnonzero(op[group.old_rows] != tuples.INSERT)
        told = ImageGroup(
            op,
            group.new.pick(new, None, [(self.table, slice(0, len(new)))]),
            group.new_rows[new],
            group.old.pick(old, None, [(self.table, slice(0, len(old)))]),
            group.old_rows[old],
            group.old_is_full[old],
        )
        return TableChanges(self.table, told, slice(0, len(self)), self._stamps, self._origins)

    def follows(self, other: TableChanges) -> bool:
        """Whether its rows lie right behind the other's, in the same columns."""
        return self._group is other._group and self._rows.start == other._rows.stop

    def _chosen(self, rows: Ints | None) -> Ints:
        """Where some of its changes, or all, lie in the group."""
        every = np.arange(self._rows.start, self._rows.stop)
        return every if rows is None else every[rows]

    # What every change has, one entry a change.

    @property
    def op(self) -> Bytes:
        """``I``, ``U`` or ``D`` as a byte."""
        return self._group.op[self._rows]

    @property
    def commit_lsn(self) -> Ints:
        return self._stamps.commit_lsn

    @property
    def ordinal(self) -> Ints:
        return self._stamps.ordinal

    @property
    def xid(self) -> Ints:
        return self._stamps.xid

    @property
    def lsn(self) -> Ints:
        return self._stamps.lsn

    @property
    def commit_micros(self) -> Ints:
        """Microseconds since 1970, UTC."""
        return self._stamps.commit_micros

    # Images: inserts and updates have a new one; deletes and some updates an old one.

    @cached_property
    def new_rows(self) -> Ints:
        """Which changes have a new image, in order."""
        rows: Ints = self._group.new_rows[self._new] - self._rows.start
        return rows

    @cached_property
    def old_rows(self) -> Ints:
        """Which changes have an old image, in order."""
        rows: Ints = self._group.old_rows[self._old] - self._rows.start
        return rows

    @property
    def old_is_full(self) -> Mask:
        """For each old image: all columns (true), or only those of the replica identity."""
        return self._group.old_is_full[self._old]

    def new_text(self, column: int) -> pa.Array:
        return _slice(self._group.new.text(column), self._new)

    def new_typed(self, column: int) -> TypedColumn:
        return _slice_typed(self._group.new.typed(column), self._new)

    def new_unset(self, column: int) -> Mask:
        """For each new image: true where the column was not sent. It is null in ``new_text``."""
        return self._group.new.unset(column)[self._new]

    def new_lines(self) -> pa.Array | None:
        """The new images as lines of COPY, all columns in order; None where that is not to be had
        at once, without the columns.
        """
        return self._group.new.lines(self._new)

    def old_text(self, column: int) -> pa.Array:
        return _slice(self._group.old.text(column), self._old)

    def old_typed(self, column: int) -> TypedColumn:
        return _slice_typed(self._group.old.typed(column), self._old)

    def old_unset(self, column: int) -> Mask:
        return self._group.old.unset(column)[self._old]


def side_by_side(tables: Sequence[TableChanges]) -> TableChanges:
    """The changes of tables that follow each other as if they were one table's, in that order.

    It goes by the first one's definition, of which only the columns' types hold for the others.
    """
    if len(tables) == 1:
        return tables[0]
    first, last = tables[0], tables[-1]
    names = _Stamps.__dataclass_fields__
    stamps = _Stamps(
        *(np.concatenate([getattr(table._stamps, name) for table in tables]) for name in names)
    )
    rows = slice(first._rows.start, last._rows.stop)
    return TableChanges(first.table, first._group, rows, stamps, first._origins)


def take_rows(
    tables: Sequence[TableChanges], rows: Sequence[Ints | None]
) -> tuple[TableChanges, ...]:
    """Of each table these changes, or with None all of them. Nothing is decoded.

    Tables that are decoded together still are; what was not taken is decoded with none of them. A
    table of which nothing is taken is there without changes.
    """
    shared: dict[ImageGroup, list[int]] = {}
    for number, table in enumerate(tables):
        shared.setdefault(table._group, []).append(number)
    taken = list(tables)
    for group, numbers in shared.items():
        if all(rows[number] is None for number in numbers):
            continue
        chosen = [tables[number]._chosen(rows[number]) for number in numbers]
        bounds = pairwise(np.cumsum([0, *map(len, chosen)]).tolist())
        parts = [(tables[n].table, slice(*bound)) for n, bound in zip(numbers, bounds, strict=True)]
        fewer = group.take(np.concatenate(chosen), parts)
        for number, (_table, part) in zip(numbers, parts, strict=True):
            old, some = tables[number], rows[number]
            stamps = old._stamps if some is None else old._stamps.take(some)
            taken[number] = TableChanges(old.table, fewer, part, stamps, old._origins)
    return tuple(taken)


@dataclass(frozen=True)
class ChangeSet:
    """The changes of a run of whole or partial transactions: what a task writer gets."""

    tables: tuple[TableChanges, ...]
    truncates: tuple[TruncateEvent, ...]
    messages: tuple[MessageEvent, ...]

    def __len__(self) -> int:
        return sum(map(len, self.tables)) + len(self.truncates) + len(self.messages)


def decode_changes(
    rows: pa.RecordBatch, tables: Sequence[TableSchema], origins: Sequence[str] = ()
) -> ChangeSet:
    """The changes in segment rows (see changelog/segment.py), grouped by table.

    Checks that every message is well-formed; values are decoded when asked for.
    """
    payload = rows.column("payload")
    offsets = np.frombuffer(payload.buffers()[1], np.int32)[
        payload.offset : payload.offset + len(payload) + 1
    ].astype(np.int64)
    base, top = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    raw = payload.buffers()[2]
    if raw is not None and raw.size - top >= tuples.PADDING:
        data = np.frombuffer(raw, np.uint8)[base : top + tuples.PADDING]
    else:
        data = tuples.pad(memoryview(raw)[base:top] if raw is not None else b"")
    start, end = offsets[:-1] - base, offsets[1:] - base
    if (end <= start).any():
        raise DecodeError("a change without bytes")
    op = data[start]
    if not _KNOWN[op].all():
        raise DecodeError(f"a change of unknown kind {chr(int(op[~_KNOWN[op]][0]))!r}")
    if (op != rows.column("op").to_numpy()).any():
        raise DecodeError("a change is of another kind than its row says")
    stamps = _Stamps(
        lsn=_ints(rows, "lsn"),
        commit_lsn=_ints(rows, "commit_lsn"),
        ordinal=_ints(rows, "ordinal"),
        xid=_ints(rows, "xid"),
        commit_micros=_ints(rows, "commit_ts"),
        origin=_ints(rows, "origin"),
    )
    version = _ints(rows, "schema_version")
    if len(version) and (version.min() < -1 or version.max() >= len(tables)):
        raise DecodeError("a change names a table definition that its segment does not have")
    if len(stamps.origin) and not (-1 <= stamps.origin.min() <= stamps.origin.max() < len(origins)):
        raise DecodeError("a change names an origin that its segment does not have")
    payloads = _Payloads(data, op, start, end)
    events = _Events(payloads, version, stamps, tables, origins)
    return ChangeSet(
        tuple(_by_table(payloads, version, stamps, tables, origins)),
        tuple(events.truncate_events(np.flatnonzero(op == ord("T")))),
        tuple(events.message_events(np.flatnonzero(op == ord("M")))),
    )


class _Payloads(NamedTuple):
    """The messages' bytes, one after the other; where each begins and ends, and its kind."""

    data: Bytes
    op: Bytes
    start: Ints
    end: Ints


def _by_table(
    payloads: _Payloads,
    version: Ints,
    stamps: _Stamps,
    tables: Sequence[TableSchema],
    origins: Sequence[str],
) -> Iterator[TableChanges]:
    data, op, start, end = payloads
    layouts: dict[Layout, int] = {}
    layout_of = np.array(
        [layouts.setdefault(_layout(table), len(layouts)) for table in tables] or [0], np.int64
    )
    is_row = (op == tuples.INSERT) | (op == tuples.UPDATE) | (op == tuples.DELETE)
    if (version[is_row] < 0).any():
        raise DecodeError("a row change without a table definition")
    for layout, number in layouts.items():
        rows = np.flatnonzero(is_row & (layout_of[version] == number))
        if not len(rows):
            continue
        rows = rows[np.argsort(version[rows], kind="stable")]
        versions, firsts = np.unique(version[rows], return_index=True)
        bounds = pairwise([*firsts.tolist(), len(rows)])
        parts = [
            (tables[number], slice(*bound))
            for number, bound in zip(versions.tolist(), bounds, strict=True)
        ]
        images = tuples.split_rows(data, op[rows], start[rows], end[rows], len(layout))
        group = ImageGroup(
            op[rows],
            TextImage(data, images.new, layout, images_of(parts, images.new_rows)),
            images.new_rows,
            TextImage(data, images.old, layout, images_of(parts, images.old_rows)),
            images.old_rows,
            images.old_is_full,
        )
        for table, part in parts:
            yield TableChanges(table, group, part, stamps.take(rows[part]), origins)


class _Events:
    """Truncates and logical messages: rare, so one at a time."""

    def __init__(
        self,
        payloads: _Payloads,
        version: Ints,
        stamps: _Stamps,
        tables: Sequence[TableSchema],
        origins: Sequence[str],
    ) -> None:
        self._payloads, self._version, self._stamps = payloads, version, stamps
        self._tables, self._origins = tables, origins

    def truncate_events(self, rows: Ints) -> Iterator[TruncateEvent]:
        for row in rows.tolist():
            message = self._parse(row)
            if not isinstance(message, messages.Truncate):
                raise DecodeError("expected a Truncate message")
            first = max(int(self._version[row]), 0)
            tables = tuple(self._tables[first : first + len(message.relations)])
            if tuple(table.oid for table in tables) != message.relations:
                raise DecodeError(f"the segment does not describe relations {message.relations}")
            yield TruncateEvent(
                self._stamp(row),
                tables,
                message.cascade,
                message.restart_identity,
            )

    def message_events(self, rows: Ints) -> Iterator[MessageEvent]:
        for row in rows.tolist():
            message = self._parse(row)
            if not isinstance(message, messages.LogicalMessage):
                raise DecodeError("expected a logical message")
            yield MessageEvent(
                self._stamp(row), message.transactional, message.prefix, message.content
            )

    def _parse(self, row: int) -> messages.Message:
        data, _, start, end = self._payloads
        return messages.parse_message(data[start[row] : end[row]].tobytes())

    def _stamp(self, row: int) -> Stamp:
        stamps = self._stamps
        origin = int(stamps.origin[row])
        return Stamp(
            Position(int(stamps.commit_lsn[row]), int(stamps.ordinal[row])),
            int(stamps.lsn[row]),
            int(stamps.xid[row]),
            int(stamps.commit_micros[row]),
            self._origins[origin] if origin >= 0 else None,
        )


def _layout(table: TableSchema) -> Layout:
    return tuple((column.type, column.typmod) for column in table.columns)


def _ints(rows: pa.RecordBatch, name: str) -> Ints:
    column = rows.column(name)
    if pa.types.is_timestamp(column.type):
        column = column.view(pa.int64())
    return np.asarray(column.to_numpy(zero_copy_only=True)).astype(np.int64)


def _slice(values: pa.Array, part: slice) -> pa.Array:
    return values.slice(part.start, part.stop - part.start)


def _slice_typed(column: TypedColumn, part: slice) -> TypedColumn:
    odd = column.unrepresentable
    return TypedColumn(_slice(column.values, part), None if odd is None else _slice(odd, part))
