"""The executor's side: changes become documents, and those of a table are written in order.

A lane is a table. What a change leaves unset is read from the document that the changes before it
left, and a row may move from key to key, so the changes of one table stay together. They are folded
before: of each key a lane's sender gets few. Values become what the store writes before they are
brought together, in parallel.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.changes import ChangeSet, TableChanges
from penstock.decode.row_values import READ_ORDINAL, RowValues
from penstock.destination.contract import (
    ChunkReceipt,
    ChunkWriter,
    LanedWriter,
    LanePart,
    LaneSender,
    Receipt,
)
from penstock.destination.families.target import Target, target_of
from penstock.destination.families.versioned.document_writer import DocumentWriter
from penstock.destination.families.versioned.documents import (
    DocumentStore,
    document_ids,
    documents,
    numbered_ids,
)
from penstock.destination.families.versioned.steps import write_steps
from penstock.model.errors import TableRefused, unreadable_alone
from penstock.model.lsn import Position
from penstock.model.table_rows import ChunkReader, TableRows
from penstock.pgoutput import tuples
from penstock.transform.key_events import KeyEvents
from penstock.transform.net_rows import old_key_text
from penstock.transform.table_order import after, in_table_order

LANES = 8


@dataclass(frozen=True)
class VersionedWriter(LanedWriter):
    """Writes the changes of the tables that it knows; all others were excluded by the pipeline."""

    store: DocumentStore
    targets: Mapping[int, Target]
    replayed: frozenset[int] = frozenset()
    lanes: int = LANES

    def encode(self, changes: Iterable[ChangeSet]) -> Iterator[LanePart]:
        for run in changes:
            ends: dict[int, list[Position]] = {}
            for event in run.truncates:
                for table in event.tables:
                    if table.oid in self.targets:
                        ends.setdefault(table.oid, []).append(event.stamp.position)
            for oid, positions in ends.items():
                yield self._part(oid, max(positions), [("truncate", pa.table({}))])
            for found in in_table_order(run.tables):
                left = after(found, ends.get(found.table.oid, ()))
                if len(left):
                    with unreadable_alone(found.table.oid, found.table.qualified_name):
                        yield self._rows(left)

    def sender(self) -> LaneSender:
        return DocumentSender(self.store, self.targets, self.replayed)

    def _rows(self, changes: TableChanges) -> LanePart:
        target = target_of(self.targets, changes.table)
        places = target.places(changes.table, int(changes.commit_lsn[0]))
        first = Position(int(changes.commit_lsn[0]), int(changes.ordinal[0]))
        if not target.key:
            made = [("put", _keyless(self.store, target, places, changes))]
        else:
            encode = {"put": _by_key, "move": _moved}
            made = [
                (kind, encode[kind](self.store, target, places, changes.take(some)))
                for kind, some in write_steps(target, places, changes)
            ]
        return self._part(target.oid, first, made)

    def _part(self, oid: int, first: Position, steps: Sequence[tuple[str, pa.Table]]) -> LanePart:
        """All steps of a run are one part: their order is not that of positions."""
        tables = [_stream(rows) for _, rows in steps]
        lengths = [len(table) for table in tables]
        kinds = [kind for kind, _ in steps]
        about = {"table": oid, "first": first, "kinds": kinds, "lengths": lengths}
        content = b"\n".join([json.dumps(about).encode(), b"".join(tables)])
        return LanePart(oid % self.lanes, first, content, sum(r.num_rows for _, r in steps))


def _stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    found: bytes = sink.getvalue().to_pybytes()
    return found


class DocumentSender(LaneSender):
    """Writes the parts of lanes, each before it takes the next. Its receipt says which tables were
    written, which were truncated, and by table which keys were parked.
    """

    def __init__(
        self, store: DocumentStore, targets: Mapping[int, Target], replayed: frozenset[int]
    ) -> None:
        self._store = store
        self._writer = DocumentWriter(store, replayed)
        self._targets = targets
        self._replayed = replayed
        self._parked: dict[int, set[tuple[str, ...]]] = {}
        self._written: set[int] = set()
        self._emptied: set[int] = set()

    def send(self, part: LanePart) -> None:
        about, steps = read_part(part)
        target = self._targets[about["table"]]
        self._written.add(target.oid)
        for kind, rows in steps:
            if kind == "truncate":
                self._emptied.add(target.oid)
                self._store.forget_before(target, Position(*about["first"]))
            elif kind == "move":
                self._park(target, self._writer.move_rows(target, rows))
            else:
                self._park(target, self._writer.put_rows(target, rows))
        self.resent = self._store.resent

    def _park(self, target: Target, keys: Sequence[tuple[str, ...]]) -> None:
        if keys and target.oid not in self._replayed:
            shown = ", ".join(keys[0])
            raise TableRefused(
                f"table {target.qualified_name}: a change of the row with the key {shown} leaves "
                "columns as they were, but the destination does not have the row",
                remedy=f"run `penstock tables resync` for {target.qualified_name}",
                table=target.oid,
            )
        self._parked.setdefault(target.oid, set()).update(keys)

    def finish(self) -> Receipt:
        self._store.close()
        parked = {oid: sorted(keys) for oid, keys in self._parked.items() if keys}
        written = sorted(self._written - self._replayed)
        told = {
            "written": written,
            "emptied": sorted(self._emptied),
            "parked": parked,
            "unfit": self._store.unfit,
        }
        return json.dumps(told).encode()

    def give_up(self) -> None:
        self._store.close()


def read_part(part: LanePart) -> tuple[dict[str, Any], list[tuple[str, pa.Table]]]:
    """What a part says of itself, and its steps."""
    head, _, tables = part.content.partition(b"\n")
    about: dict[str, Any] = json.loads(head)
    steps, start = [], 0
    for kind, length in zip(about["kinds"], about["lengths"], strict=True):
        content = memoryview(tables)[start : start + length]
        steps.append((kind, pa.ipc.open_stream(content).read_all()))
        start += length
    return about, steps


@dataclass(frozen=True)
class VersionedChunkWriter(ChunkWriter):
    """Writes copied rows, piece by piece: they lose against changes after their snapshot."""

    store: DocumentStore
    target: Target

    def write(self, rows: ChunkReader) -> ChunkReceipt:
        count = size = 0
        try:
            for piece in rows.texts():
                made = copied_documents(self.store, self.target, piece, rows.chunk, count)
                if len(piece):
                    self.store.put(self.target, made)
                count += len(piece)
                size += made.nbytes
            resent, unfit = self.store.resent, json.dumps(self.store.unfit).encode()
        finally:
            self.store.close()
        return ChunkReceipt(count, size, unfit, resent=resent)


def copied_documents(
    store: DocumentStore, target: Target, rows: TableRows, chunk: str = "", first: int = 0
) -> pa.Table:
    """Rows that were read, as documents; without a key they have the number in their chunk."""
    places, count = target.places(rows.table), len(rows)
    if target.key:
        ids = document_ids([rows.columns[places[index]] for index in target.key])
    else:
        # The same row of the same chunk has the same id.
        ids = numbered_ids(f"#{chunk}.", np.arange(first, first + count))
    return documents(
        target,
        ids,
        np.full(count, rows.snapshot.commit_lsn, np.int64),
        np.full(count, READ_ORDINAL, np.int64),
        np.zeros(count, bool),
        [store.values(rows.columns[place], rows.table.columns[place].type) for place in places],
    )


def _by_key(
    store: DocumentStore, target: Target, places: Sequence[int], changes: TableChanges
) -> pa.Table:
    """One row a key: its last change decides."""
    events = KeyEvents(changes, [places[index] for index in target.key])
    values = RowValues(changes)
    gone = None if events.is_put.all() else pa.array(~events.is_put)
    columns, more = [], {}
    for index, place in enumerate(places):
        pick, unset = events.last_sent(values.unset(place))
        if index in target.key:
            text = events.key_texts[target.key.index(index)]
        else:
            text = values.text(place).take(pa.array(pick))
        if gone is not None and index not in target.key:
            text = pc.if_else(gone, pa.scalar(None, text.type), text)
        columns.append(store.values(text, changes.table.columns[place].type))
        if unset is not None:
            more[f"u{index}"] = pa.array(unset)
    if more:
        more.update(_key_texts(target, events.key_texts))
    lsn, ordinal = changes.commit_lsn[events.change], changes.ordinal[events.change]
    ids = document_ids(events.key_texts)
    return _with(documents(target, ids, lsn, ordinal, ~events.is_put, columns), more)


def _moved(
    store: DocumentStore, target: Target, places: Sequence[int], changes: TableChanges
) -> pa.Table:
    """Each change a row, with the id that it comes ``from``, and the key of that as ``f…``."""
    values = RowValues(changes)
    key = [places[index] for index in target.key]
    texts = [values.text(column) for column in key]
    olds = [old_key_text(changes, values, column) for column in key]
    more = {"from": document_ids(olds), **_key_texts(target, texts)}
    for index, column, old in zip(target.key, key, olds, strict=True):
        more[f"f{index}"] = store.values(old, changes.table.columns[column].type)
    for index, place in enumerate(places):
        if (unset := values.unset(place)) is not None:
            more[f"u{index}"] = pa.array(unset)
    types = changes.table.columns
    columns = [store.values(values.text(place), types[place].type) for place in places]
    none = np.zeros(len(changes), bool)
    ids = document_ids(texts)
    made = documents(target, ids, changes.commit_lsn, changes.ordinal, none, columns)
    return _with(made, more)


def _key_texts(target: Target, texts: Sequence[pa.Array]) -> dict[str, pa.Array]:
    return {f"k{index}": text for index, text in zip(target.key, texts, strict=True)}


def _keyless(
    store: DocumentStore, target: Target, places: Sequence[int], changes: TableChanges
) -> pa.Table:
    """New rows under their positions: nothing else tells them apart, so they can only come."""
    if (changes.op != tuples.INSERT).any():
        first = int(np.flatnonzero(changes.op != tuples.INSERT)[0])
        position = Position(int(changes.commit_lsn[first]), int(changes.ordinal[first]))
        raise TableRefused(
            f"table {target.qualified_name} has no key, and a row was changed or deleted at "
            f"{position}: no document can be told to be that row",
            remedy="give it a primary key, or a replica identity by an index, and run `penstock "
            f"tables resync` for {target.qualified_name}",
            table=target.oid,
        )
    values = RowValues(changes)
    ids = numbered_ids("@", changes.commit_lsn, changes.ordinal)
    types = changes.table.columns
    columns = [store.values(values.text(place), types[place].type) for place in places]
    none = np.zeros(len(changes), bool)
    return documents(target, ids, changes.commit_lsn, changes.ordinal, none, columns)


def _with(made: pa.Table, more: Mapping[str, pa.Array]) -> pa.Table:
    for name, column in more.items():
        made = made.append_column(name, column)
    return made
