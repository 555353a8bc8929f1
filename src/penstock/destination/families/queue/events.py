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
from penstock.model.table_rows import TableRows

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
        blocks = [self._changed(table) for table in changes.tables]
        for event in changes.truncates:
            found = _numbered(self.format.truncate(event))
            blocks += [
                self._block(messages, table.schema, table.name, table.fingerprint, event.stamp)
                for messages, table in zip(found, event.tables, strict=True)
            ]
        blocks += [
            self._block(self.format.message(event), "", "", "", event.stamp)
            for event in changes.messages
        ]
        return self._events(blocks)

    def copied(self, rows: TableRows) -> pa.RecordBatch:
        messages, table = self.format.copied(rows), rows.table
        stamp = Stamp(Position(rows.snapshot.commit_lsn, READ_ORDINAL), 0, 0, 0, None)
        return self._events(
            [self._block(messages, table.schema, table.name, table.fingerprint, stamp)]
        )

    def schema_change(self, change: SchemaChange) -> pa.RecordBatch:
        """In one lane, whatever their tables: of two changes, a reader sees the first one first."""
        stamp = Stamp(change.position, 0, 0, change.commit_micros, None)
        blocks = []
        told = self.format.schema_change(change)
        found = _numbered([messages for _, messages in told])
        for (table, _), messages in zip(told, found, strict=True):
            known = table.after or table.before
            assert known is not None  # noqa: S101 (one of both is there)
            block = self._block(messages, "", "", "", stamp)
            blocks.append(block._replace(schema=known.schema, table=known.name))
        return self._events(blocks)

    def _changed(self, changes: TableChanges) -> _Block:
        messages, table = self.format.changes(changes), changes.table
        at = changes.commit_lsn[messages.row], changes.ordinal[messages.row]
        lane = self._lane(table.schema, table.name)
        return _Block(messages, table.schema, table.name, table.fingerprint, lane, *at)

    def _block(
        self, messages: Messages, schema: str, table: str, version: str, stamp: Stamp
    ) -> _Block:
        """Messages that are all of one position."""
        count, position = len(messages), stamp.position
        at = np.full(count, position.commit_lsn), np.full(count, position.ordinal)
        return _Block(messages, schema, table, version, self._lane(schema, table), *at)

    def _lane(self, schema: str, table: str) -> str:
        return schema if self.lanes.by == "schema" else f"{schema}.{table}"

    def _events(self, blocks: Sequence[_Block]) -> pa.RecordBatch:
        """Of all blocks at once: made one by one, a thousand tables take twice as long."""
        if not blocks:
            return _NOTHING
        messages = [block.messages for block in blocks]
        block_of = np.repeat(np.arange(len(blocks)), [len(some) for some in messages])
        commit_lsn = np.concatenate([block.commit_lsn for block in blocks])
        ordinal = np.concatenate([block.ordinal for block in blocks])
        part = np.concatenate([some.part for some in messages])
        key = _behind_each_other([some.key for some in messages])
        lane_hash, lane_name = self._lanes(
            key, pa.array([block.lane for block in blocks], TEXT), block_of, commit_lsn
        )
        headers = dict.fromkeys(name for some in messages for name, _ in some.headers)
        columns = {
            "commit_lsn": pa.array(commit_lsn),
            "ordinal": pa.array(ordinal),
            "part": pa.array(part),
            "op": _behind_each_other([m.op for m in messages])
            .cast(pa.string())
            .dictionary_encode(),
            "schema": _names([block.schema for block in blocks], block_of),
            "table": _names([block.table for block in blocks], block_of),
            "schema_version": _names([block.schema_version for block in blocks], block_of),
            "lane_hash": pa.array(lane_hash),
            "by_key": pa.array(np.asarray(key.is_valid()) & (self.lanes.by == "key")),
            "key": key if lane_name is None else lane_name,
            "value": _behind_each_other([some.value for some in messages]),
            **{f"{_HEADER}{header}": _header(header, messages) for header in headers},
        }
        events = pa.RecordBatch.from_pydict(columns)
        if len(blocks) > 1:
            order = np.lexsort((part, ordinal, commit_lsn))
            events = events.take(pa.array(order))
        return self.oversize.checked(events)

    def _lanes(
        self, key: pa.Array, lanes: pa.Array, block_of: Ints, commit_lsn: Ints
    ) -> tuple[Hashes, pa.Array | None]:
        """The hash by which a lane is chosen, and its name where that is to be the key."""
        if self.lanes.by == "transaction":
            name = pa.array(commit_lsn).cast(TEXT) if self.keys_are_lanes else None
            return mixed(commit_lsn.astype(np.uint64)), name
        whole = hash_texts(lanes)[block_of]
        if self.lanes.by == "key":
            hashes = mixed(whole ^ hash_texts(key)) if len(key) else whole
            return np.where(np.asarray(key.is_valid()), hashes, whole), None
        return whole, lanes.take(pa.array(block_of)) if self.keys_are_lanes else None


class _Block(NamedTuple):
    """Messages of one table and definition, or of none, and where they stand. ``lane`` names the
    lane of those without a key.
    """

    messages: Messages
    schema: str
    table: str
    schema_version: str
    lane: str
    commit_lsn: Ints
    ordinal: Ints


def _numbered(messages: Sequence[Messages]) -> Iterator[Messages]:
    """Those of tables of one statement, as the messages of one change: what stands at a position,
    and at a part of it, stands there alone.
    """
    first = 0
    for some in messages:
        yield replace(some, part=some.part + first)
        first += len(some)


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


def _behind_each_other(columns: Sequence[pa.Array]) -> pa.Array:
    return columns[0] if len(columns) == 1 else pa.concat_arrays(columns)


def _header(name: str, messages: Sequence[Messages]) -> pa.Array:
    """A header of the format's own, null where messages do not have it."""
    return _behind_each_other(
        [dict(some.headers).get(name, pa.nulls(len(some), TEXT)) for some in messages]
    )


def _names(names: Sequence[str], block_of: Ints) -> pa.Array:
    """The name of each message's block, each name once in the dictionary."""
    encoded = pa.array(names).dictionary_encode()
    places = np.asarray(encoded.indices)[block_of]
    return pa.DictionaryArray.from_arrays(pa.array(places), encoded.dictionary)


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
