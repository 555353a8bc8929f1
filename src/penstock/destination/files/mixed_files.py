"""``layout: bifrost``: changes of all tables in files by the hour, as pg-bifrost has them on S3."""

from __future__ import annotations

import gzip
import json
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.decode.changes import ChangeSet
from penstock.decode.row_values import READ_ORDINAL
from penstock.decode.text_bytes import text_bytes
from penstock.destination.contract import ChunkReceipt, ChunkWriter, Receipt, TaskWriter
from penstock.destination.encode.json_values import join
from penstock.destination.families.queue.events import Encoder
from penstock.destination.files.layout import (
    ControlFolder,
    chunk_file,
    encode_name,
    position_name,
    table_folder,
)
from penstock.destination.files.manifest import StagedFile, files_to_json
from penstock.destination.files.options import FilesOptions
from penstock.destination.files.tree import Tree
from penstock.failpoints import failpoint
from penstock.model.lsn import Position
from penstock.model.table_rows import ChunkReader

_COMPRESSION_LEVEL = 6
# Lines are cut so often into pieces that a file is not much larger than it is to be.
_PIECE_LINES = 1000
_ROW_GROUP_BYTES = 16 * 2**20

MIXED_SCHEMA = pa.schema(
    [
        ("commit_lsn", pa.int64()),
        ("ordinal", pa.int64()),
        ("op", pa.string()),
        ("schema", pa.string()),
        ("table", pa.string()),
        ("key", pa.large_string()),
        ("value", pa.large_string()),
    ]
)
"""The columns of Parquet files of all tables. ``value`` is the line that NDJSON has."""


def copied_folder(pipeline: str, schema: str, table: str) -> str:
    """Where the rows of a table are that were copied: they have no time."""
    return f"{encode_name(pipeline)}/read/{table_folder(schema, table)}"


@dataclass(frozen=True)
class MixedFiles:
    """How one task's lines become files. Picklable."""

    tree: Tree
    pipeline: str
    options: FilesOptions
    encoder: Encoder

    @property
    def suffix(self) -> str:
        if self.options.format == "parquet":
            return ".parquet"
        return ".gz" if self.options.compression == "gzip" else ".ndjson"

    def name(self, first: Position, commit_micros: int) -> str:
        """Where a file goes whose first change this is. A replay makes the same name."""
        at = datetime.fromtimestamp(commit_micros / 1e6, UTC)
        name = self.options.template.format(
            pipeline=encode_name(self.pipeline),
            **{place: f"{at:{text}}" for place, text in _TIMES.items()},
            first=position_name(first),
        )
        return f"{name}{self.suffix}"

    @contextmanager
    def staging(self) -> Iterator[_Staging]:
        """For one task; what it wrote is removed where that fails."""
        with self.tree.explained():
            staging = _Staging(self)
        try:
            yield staging
        except BaseException:
            staging.abandon()
            raise


_TIMES = {"year": "%Y", "month": "%m", "day": "%d", "hour": "%H", "time": "%Y%m%dT%H%M%S"}


class MixedWriter(TaskWriter):
    """Changes of all tables, in position order."""

    def __init__(self, files: MixedFiles) -> None:
        self._files = files

    def write(self, changes: Iterable[ChangeSet]) -> Receipt:
        with self._files.staging() as staging:
            for some in changes:
                events = self._files.encoder.events(some)
                if len(events):
                    staging.write(events, some)
            done = staging.finish()
        failpoint("files.staged")
        return json.dumps(files_to_json(done)).encode()


class MixedChunkWriter(ChunkWriter):
    """A chunk in one file; none if it is empty."""

    def __init__(self, files: MixedFiles) -> None:
        self._files = files

    def write(self, rows: ChunkReader) -> ChunkReceipt:
        files, table = self._files, rows.table
        name = chunk_file(rows.chunk, files.pipeline, files.suffix)
        folder = copied_folder(files.pipeline, table.schema, table.name)
        with files.staging() as staging:
            for piece in rows.texts():
                events = files.encoder.copied(piece)
                if len(events):
                    staging.write_copied(events, f"{folder}/{name}", rows.snapshot.commit_lsn)
            done = staging.finish()
        failpoint("files.staged")
        return ChunkReceipt(
            sum(file.rows for file in done),
            sum(file.bytes for file in done),
            json.dumps(files_to_json(done)).encode(),
        )


class _Staging:
    """The files of one task. One is open at a time."""

    def __init__(self, files: MixedFiles) -> None:
        self._files = files
        self._tree = files.tree
        self._folder = ControlFolder(files.pipeline).staging
        self._tree.make_folders([self._folder])
        self._workshop = self._tree.workshop(self._folder)
        self._open: _OpenFile | None = None
        self._finished: list[StagedFile] = []

    def write(self, events: pa.RecordBatch, changes: ChangeSet) -> None:
        """The events that changes became."""
        for start in range(0, len(events), _PIECE_LINES):
            piece = events.slice(start, _PIECE_LINES)
            with self._tree.explained():
                if self._open is not None and self._open.bytes >= self._files.options.file_bytes:
                    self._finish_open()
                if self._open is None:
                    first = _position(piece, 0)
                    name = self._files.name(first, _commit_micros(changes, first.commit_lsn))
                    self._open = self._new(name, first)
                self._open.write(piece, _position(piece, len(piece) - 1))

    def write_copied(self, events: pa.RecordBatch, name: str, commit_lsn: int) -> None:
        position = Position(commit_lsn, READ_ORDINAL)
        with self._tree.explained():
            if self._open is None:
                self._open = self._new(name, position)
            self._open.write(events, position)

    def finish(self) -> list[StagedFile]:
        """All files, durable."""
        with self._tree.explained():
            self._finish_open()
            files = [self._workshop / file.staged for file in self._finished]
            self._tree.bring(self._folder, files)
            self._tree.leave(self._workshop)
        return self._finished

    def abandon(self) -> None:
        """Remove what was written: the task failed."""
        if self._open is not None:
            self._open.abandon()
        for file in self._finished:
            (self._workshop / file.staged).unlink(missing_ok=True)
        self._tree.leave(self._workshop)

    def _new(self, final: str, first: Position) -> _OpenFile:
        path = self._workshop / f"{uuid.uuid4().hex}{self._files.suffix}"
        is_parquet = self._files.options.format == "parquet"
        sink: _Lines | _Rows = _Rows(path, self._files.options) if is_parquet else _Lines(path)
        return _OpenFile(path, sink, final, first)

    def _finish_open(self) -> None:
        if self._open is not None:
            self._finished.append(self._open.finish())
            self._open = None


class _Lines:
    """A line an event."""

    def __init__(self, path: Path) -> None:
        self._raw = path.open("wb")
        self._file: BinaryIO = self._raw
        if path.suffix == ".gz":
            # Without name and time: the same lines are the same bytes.
            zipped = gzip.GzipFile("", "wb", _COMPRESSION_LEVEL, self._raw, mtime=0)
            self._file = cast(BinaryIO, zipped)

    def write(self, events: pa.RecordBatch) -> int:
        """How many bytes the values have."""
        lines = text_bytes(join(events.column("value"), "\n"))
        self._file.write(lines)
        return len(lines)

    def close(self) -> None:
        self._file.close()
        self._raw.close()


class _Rows:
    """A row an event: what it is about, and the line of it."""

    def __init__(self, path: Path, options: FilesOptions) -> None:
        compression = options.compression
        self._file = pq.ParquetWriter(path, MIXED_SCHEMA, compression=compression)
        self._held: list[pa.RecordBatch] = []
        self._size = 0

    def write(self, events: pa.RecordBatch) -> int:
        piece = events.select(MIXED_SCHEMA.names).cast(MIXED_SCHEMA)
        self._held.append(piece)
        self._size += piece.nbytes
        if self._size >= _ROW_GROUP_BYTES:
            self._flush()
        return int(piece.column("value").nbytes)

    def close(self) -> None:
        self._flush()
        self._file.close()

    def _flush(self) -> None:
        if self._held:
            self._file.write_table(pa.Table.from_batches(self._held))
            self._held, self._size = [], 0


class _OpenFile:
    def __init__(self, path: Path, sink: _Lines | _Rows, final: str, first: Position) -> None:
        self._path = path
        self._sink = sink
        self._final = final
        self._first = self._last = first
        self._rows = 0
        self.bytes = 0
        """Of the values, before they are compressed."""

    def write(self, events: pa.RecordBatch, last: Position) -> None:
        self.bytes += self._sink.write(events)
        self._rows += len(events)
        self._last = last

    def finish(self) -> StagedFile:
        self._sink.close()
        return StagedFile(
            staged=self._path.name,
            final=self._final,
            rows=self._rows,
            bytes=self._path.stat().st_size,
            first=str(self._first),
            last=str(self._last),
        )

    def abandon(self) -> None:
        # Whatever made the task fail may stand in the way of closing, too.
        with suppress(OSError):
            self._sink.close()
        self._path.unlink(missing_ok=True)


def _position(events: pa.RecordBatch, row: int) -> Position:
    return Position(events.column("commit_lsn")[row].as_py(), events.column("ordinal")[row].as_py())


def _commit_micros(changes: ChangeSet, commit_lsn: int) -> int:
    """When the transaction was committed, of which some changes are here."""
    for table in changes.tables:
        row = int(np.searchsorted(table.commit_lsn, commit_lsn))
        if row < len(table) and table.commit_lsn[row] == commit_lsn:
            return int(table.commit_micros[row])
    stamps = [event.stamp for event in changes.truncates]
    stamps += [event.stamp for event in changes.messages]
    return next(stamp.commit_micros for stamp in stamps if stamp.position.commit_lsn == commit_lsn)
