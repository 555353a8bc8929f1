"""Changes as events on their way to a queue: Arrow columns with all that a sender needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.decode.changes import ChangeSet, Stamp, TableChanges
from penstock.decode.row_values import READ_ORDINAL, Ints
from penstock.destination.contract import LanePart, SchemaChange
from penstock.destination.encode.json_values import TEXT, join
from penstock.destination.encode.messages import EventFormat, Messages
from penstock.destination.encode.ndjson import lsn_texts
from penstock.destination.families.queue.lanes import Hashes, hash_texts, mixed
from penstock.destination.families.queue.options import LaneOptions
from penstock.destination.families.queue.oversize import Oversize
from penstock.model.lsn import Position
from penstock.model.schema_change import TableChange
from penstock.model.table_rows import TableRows
from penstock.model.table_schema import TableSchema

_NAME = pa.dictionary(pa.int32(), pa.string())
_HEADER = "header "
# A part is a value on its way through Spark: large enough to be cheap, small enough to be many.
PART_BYTES = 8 * 2**20


class Kind(NamedTuple):
    """What events of the same operation, table and definition share."""

    op: str
    schema: str
    table: str
    schema_version: str


@dataclass(frozen=True)
class Encoder:
    """Makes events of changes, and tells their lanes. Picklable.

    With ``keys_are_lanes`` what names the lane is the message's key, where the lane is not the
    key's own.
    """

    format: EventFormat
    lanes: LaneOptions
    oversize: Oversize
    keys_are_lanes: bool = False

    def parts(self, changes: Iterable[ChangeSet]) -> Iterator[LanePart]:
        """Lane by lane, those of a lane in position order."""
        for some in changes:
            for part in self.split(self.events(some)):
                yield replace(part, content=_packed(part.content))

    def parts_here(self, changes: Iterable[ChangeSet]) -> Iterator[LanePart]:
        """The same, for a sender in this process."""
        for some in changes:
            yield from self.split(self.events(some))

    def whole(self, changes: Iterable[ChangeSet]) -> Iterator[LanePart]:
        """All lanes as if they were one: for a sender in this process that does not tell them
        apart.
        """
        for some in changes:
            if len(events := self.events(some)):
                yield LanePart(0, _first(events), events, len(events))

    def split(self, events: pa.RecordBatch) -> Iterator[LanePart]:
        """Lane by lane, in pieces, as they are."""
        lane = np.asarray(events.column("lane_hash")) % np.uint64(self.lanes.count)
        for number in np.unique(lane).tolist():
            rows = np.flatnonzero(lane == number)
            some = events if len(rows) == len(lane) else events.take(pa.array(rows))
            for piece in _pieces(some):
                yield LanePart(int(number), _first(piece), piece, len(piece))

    def events(self, changes: ChangeSet) -> pa.RecordBatch:
        """All changes in position order."""
        parts = [self._table(table) for table in changes.tables]
        for event in changes.truncates:
            found = self.format.truncate(event)
            parts += [
                self._single(messages, table, event.stamp)
                for messages, table in zip(found, event.tables, strict=True)
            ]
        parts += [
            self._single(self.format.message(event), None, event.stamp)
            for event in changes.messages
        ]
        return _in_order(parts)

    def copied(self, rows: TableRows) -> pa.RecordBatch:
        messages = self.format.copied(rows)
        count = len(messages)
        at = np.full(count, rows.snapshot.commit_lsn)
        return self._events(messages, rows.table, at, np.full(count, READ_ORDINAL))

    def schema_change(self, change: SchemaChange) -> pa.RecordBatch:
        """In one lane, whatever their tables: of two changes, a reader sees the first one first."""
        stamp = Stamp(change.position, 0, 0, change.commit_micros, None)
        return _in_order(
            [
                _named(self._single(messages, None, stamp), table)
                for table, messages in self.format.schema_change(change)
            ]
        )

    def _table(self, changes: TableChanges) -> pa.RecordBatch:
        messages = self.format.changes(changes)
        return self._events(
            messages,
            changes.table,
            changes.commit_lsn[messages.row],
            changes.ordinal[messages.row],
        )

    def _single(
        self, messages: Messages, table: TableSchema | None, stamp: Stamp
    ) -> pa.RecordBatch:
        count = len(messages)
        return self._events(
            messages,
            table,
            np.full(count, stamp.position.commit_lsn),
            np.full(count, stamp.position.ordinal),
        )

    def _events(
        self, messages: Messages, table: TableSchema | None, commit_lsn: Ints, ordinal: Ints
    ) -> pa.RecordBatch:
        count = len(messages)
        schema = "" if table is None else table.schema
        name = "" if table is None else table.name
        version = "" if table is None else table.fingerprint
        lane_hash, lane_name = self._lanes(messages, schema, name, commit_lsn)
        key = messages.key if lane_name is None else lane_name
        columns = {
            "commit_lsn": pa.array(commit_lsn),
            "ordinal": pa.array(ordinal),
            "part": pa.array(messages.part),
            "op": messages.op.cast(pa.string()).dictionary_encode(),
            "schema": _repeated(schema, count),
            "table": _repeated(name, count),
            "schema_version": _repeated(version, count),
            "lane_hash": pa.array(lane_hash),
            "by_key": pa.array(np.asarray(messages.key.is_valid()) & (self.lanes.by == "key")),
            "key": key,
            "value": messages.value,
            **{f"{_HEADER}{header}": values for header, values in messages.headers},
        }
        return self.oversize.checked(pa.RecordBatch.from_pydict(columns))

    def _lanes(
        self, messages: Messages, schema: str, table: str, commit_lsn: Ints
    ) -> tuple[Hashes, pa.Array | None]:
        """The hash by which a lane is chosen, and its name where that is to be the key."""
        count, by = len(messages), self.lanes.by
        if by == "transaction":
            name = pa.array(commit_lsn).cast(TEXT) if self.keys_are_lanes else None
            return mixed(commit_lsn.astype(np.uint64)), name
        text = schema if by == "schema" else f"{schema}.{table}"
        whole = np.repeat(hash_texts(pa.array([text], TEXT)), count)
        if by == "key":
            hashes = mixed(whole ^ hash_texts(messages.key)) if count else whole
            return np.where(np.asarray(messages.key.is_valid()), hashes, whole), None
        return whole, pa.repeat(pa.scalar(text, TEXT), count) if self.keys_are_lanes else None


def events_of(part: LanePart) -> pa.RecordBatch:
    """The events of a part, packed or not."""
    content = part.content
    if isinstance(content, bytes):
        return pa.ipc.open_stream(content).read_next_batch()
    return content


def in_one(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The events of several parts, at least one, in the order in which these come."""
    if len(parts) == 1:
        return parts[0]
    batches = _table(parts).combine_chunks().to_batches()
    return batches[0] if batches else parts[0]


def format_headers(events: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
    """The format's own headers, by name."""
    for name in events.schema.names:
        if name.startswith(_HEADER):
            yield name.removeprefix(_HEADER), events.column(name)


def kinds_of(events: pa.RecordBatch) -> tuple[Ints, list[Kind]]:
    """Which of the kinds each event is of, and the kinds."""
    columns = [events.column(name) for name in ("op", "schema", "table", "schema_version")]
    code = np.zeros(len(events), np.int64)
    for column in columns:
        code = code * len(column.dictionary) + np.asarray(column.indices)
    _, first, of = np.unique(code, return_index=True, return_inverse=True)
    op, schema, table, version = (column.take(pa.array(first)).to_pylist() for column in columns)
    return of, list(map(Kind, op, schema, table, version))


def position_texts(events: pa.RecordBatch) -> pa.Array:
    """``commit LSN+ordinal``, and ``+part`` for all but the first message of a change."""
    part = np.asarray(events.column("part"))
    ends = pa.array(["", *(f"+{n}" for n in range(1, int(part.max(initial=0)) + 1))], TEXT)
    return join(
        lsn_texts(np.asarray(events.column("commit_lsn"))),
        "+",
        events.column("ordinal").cast(TEXT),
        ends.take(pa.array(part)),
    )


def _in_order(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return _NOTHING
    table = _table(parts)
    commit_lsn, ordinal, part = (
        np.asarray(table.column(name)) for name in ("commit_lsn", "ordinal", "part")
    )
    order = np.lexsort((part, ordinal, commit_lsn))
    (batch,) = table.take(pa.array(order)).combine_chunks().to_batches()
    return batch


def _table(parts: Sequence[pa.RecordBatch]) -> pa.Table:
    """Behind each other. A header that only some parts have is null in the others."""
    return pa.concat_tables(
        [pa.Table.from_batches([part]) for part in parts], promote_options="default"
    ).unify_dictionaries()


def _pieces(events: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut so that a piece is not much larger than a part may be."""
    count = max(1, -(-events.nbytes // PART_BYTES))
    step = max(1, -(-len(events) // count))
    for first in range(0, len(events), step):
        yield events.slice(first, step)


def _first(events: pa.RecordBatch) -> Position:
    return Position(events.column("commit_lsn")[0].as_py(), events.column("ordinal")[0].as_py())


def _packed(events: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, events.schema) as stream:
        stream.write_batch(events)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _named(events: pa.RecordBatch, table: TableChange) -> pa.RecordBatch:
    """Events with the name of the table that they tell of."""
    known = table.after or table.before
    assert known is not None  # noqa: S101 (one of both is there)
    for column, text in (("schema", known.schema), ("table", known.name)):
        place = events.schema.get_field_index(column)
        events = events.set_column(place, column, _repeated(text, len(events)))
    return events


def _repeated(text: str, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))


_NOTHING = pa.RecordBatch.from_pydict(
    {
        "commit_lsn": pa.array([], pa.int64()),
        "ordinal": pa.array([], pa.int64()),
        "part": pa.array([], pa.int64()),
        "op": pa.array([], _NAME),
        "schema": pa.array([], _NAME),
        "table": pa.array([], _NAME),
        "schema_version": pa.array([], _NAME),
        "lane_hash": pa.array([], pa.uint64()),
        "by_key": pa.array([], pa.bool_()),
        "key": pa.array([], TEXT),
        "value": pa.array([], TEXT),
    }
)
