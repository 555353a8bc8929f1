"""The executors' side: changes and copied rows, encoded for each view, into files of the outbox."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.decode.changes import ChangeSet
from penstock.destination.contract import ChunkReceipt, ChunkWriter, Receipt, TaskWriter
from penstock.destination.families.queue.events import Encoder
from penstock.destination.webhooks.outbox import OpenOutbox, ViewFile, slim
from penstock.destination.webhooks.outbox_index import OutboxWritten
from penstock.failpoints import failpoint
from penstock.model.errors import ConfigError
from penstock.model.table_rows import ChunkReader, TableRows
from penstock.transform.filter import Filter


@dataclass(frozen=True)
class EventView:
    """What some subscriptions have in common: format and filter. ``wanted`` lets pass what one of
    them asks for, and knows no conditions; ``conditions`` has those.
    """

    name: str
    wanted: Filter
    conditions: Filter | None
    encoder: Encoder

    def events(self, changes: ChangeSet) -> pa.RecordBatch:
        passing = self.wanted.apply(changes)
        if self.conditions is not None:
            passing = self.conditions.apply(passing)
        return self.encoder.events(passing)

    def copied(self, rows: TableRows) -> pa.RecordBatch | None:
        passing = self.wanted.apply_rows(rows)
        if passing is not None and self.conditions is not None:
            passing = self.conditions.apply_rows(passing)
        return None if passing is None else self.encoder.copied(passing)


class _Views:
    """Files of all views, of one task."""

    def __init__(self, outbox: OpenOutbox, views: Sequence[EventView]) -> None:
        self._storage = outbox.storage
        self._views = [(view, ViewFile(outbox, view.name)) for view in views]
        self._unfit: dict[str, str] = {}

    def add(self, encode: Callable[[EventView], pa.RecordBatch | None]) -> int:
        """Bytes of what was added."""
        size = 0
        for view, file in self._views:
            if view.name in self._unfit:
                continue
            try:
                events = encode(view)
            except ConfigError as error:
                if view.conditions is None:
                    raise
                self._unfit[view.name] = error.message
                continue
            if events is not None and len(events):
                file.add(events)
                size += events.nbytes
        return size

    def finish(self) -> OutboxWritten:
        for _, file in self._views:
            file.finish()
        return OutboxWritten([made for _, file in self._views for made in file.files], self._unfit)

    def abandon(self) -> None:
        for _, file in self._views:
            self._storage.delete(*(made.file for made in file.files))


@dataclass(frozen=True)
class OutboxWriter(TaskWriter):
    """Writes a task's share for each view; the receipt names the files."""

    outbox: OpenOutbox
    views: tuple[EventView, ...]

    def write(self, changes: Iterable[ChangeSet]) -> Receipt:
        files = _Views(self.outbox, self.views)
        try:
            for some in changes:
                files.add(lambda view, some=some: slim(view.events(some)))  # type: ignore[misc]
            written = files.finish()
        except BaseException:
            files.abandon()
            raise
        failpoint("webhooks.staged")
        return json.dumps(written.to_json()).encode()


@dataclass(frozen=True)
class OutboxChunkWriter(ChunkWriter):
    """The same for copied rows."""

    outbox: OpenOutbox
    views: tuple[EventView, ...]

    def write(self, rows: ChunkReader) -> ChunkReceipt:
        files = _Views(self.outbox, self.views)
        table = f"{rows.table.schema}.{rows.table.name}"
        apart = hashlib.sha256(f"{table} {rows.chunk}".encode()).hexdigest()[:16]
        count = size = 0
        try:
            for piece in rows.texts():

                def encode(
                    view: EventView, piece: TableRows = piece, first: int = count
                ) -> pa.RecordBatch | None:
                    events = view.copied(piece)
                    return None if events is None else slim(events, apart, first)

                size += files.add(encode)
                count += len(piece)
            written = files.finish()
        except BaseException:
            files.abandon()
            raise
        content = {"table": table, "chunk": rows.chunk, **written.to_json()}
        return ChunkReceipt(count, size, json.dumps(content).encode())
