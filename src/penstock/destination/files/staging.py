"""The files that a task writes, in the staging folder, before anything is committed."""

from __future__ import annotations

import contextlib
import json
import uuid
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.decode.row_values import READ_ORDINAL
from penstock.decode.text_bytes import text_bytes
from penstock.destination.files.layout import (
    ControlFolder,
    chunk_file,
    data_file,
    date_folder,
    table_folder,
)
from penstock.destination.files.manifest import StagedFile
from penstock.destination.files.rows import FilePart
from penstock.destination.files.tree import Tree
from penstock.model.lsn import Position
from penstock.model.table_rows import ChunkReader
from penstock.model.table_schema import TableSchema

# Each open file holds a descriptor and the metadata of its row groups.
_MOST_OPEN = 64


class _Sink(Protocol):
    def write(self, data: pa.Table) -> None: ...
    def close(self) -> None: ...


class _ParquetSink:
    def __init__(self, path: Path, schema: pa.Schema, compression: str) -> None:
        self._writer = pq.ParquetWriter(path, schema, compression=compression)

    def write(self, data: pa.Table) -> None:
        self._writer.write_table(data)

    def close(self) -> None:
        self._writer.close()


class _LineSink:
    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def write(self, data: pa.Table) -> None:
        for lines in data.column("line").chunks:
            self._file.write(text_bytes(lines))

    def close(self) -> None:
        self._file.close()


class _OpenFile:
    """One file of one table version and day, open for more rows in position order; or one of a
    chunk, whose rows have all the same position.
    """

    def __init__(
        self,
        path: Path,
        sink: _Sink,
        folder: str,
        version: str,
        first: Position,
        chunk: str | None = None,
    ) -> None:
        self.path = path
        self.version = version
        self._sink = sink
        self._folder = folder
        self._first = self._last = first
        self._chunk = chunk
        self._rows = 0

    def write(self, data: pa.Table, last: Position) -> None:
        self._sink.write(data)
        self._rows += data.num_rows
        self._last = last

    def finish(self, pipeline: str) -> StagedFile:
        """Close the file and say where it is to go."""
        self._sink.close()
        return StagedFile(
            staged=self.path.name,
            final=f"{self._folder}/{self._final_name(pipeline)}",
            rows=self._rows,
            bytes=self.path.stat().st_size,
            first=str(self._first),
            last=str(self._last),
        )

    def _final_name(self, pipeline: str) -> str:
        if self._chunk is not None:
            return chunk_file(self._chunk, pipeline, self.path.suffix)
        unique = self.path.stem[:12]
        return data_file(self._first, self._last, pipeline, unique, self.path.suffix)

    def abandon(self) -> None:
        # Whatever made the task fail may stand in the way of closing, too.
        with contextlib.suppress(OSError):
            self._sink.close()
        self.path.unlink(missing_ok=True)


class Staging:
    """Takes the parts of one task, or the pieces of one chunk, and gives the list of files that
    hold them.

    Rows are written as they come, so memory does not grow with the task.
    """

    def __init__(self, tree: Tree, pipeline: str, compression: str) -> None:
        self._tree = tree
        self._control = ControlFolder(pipeline)
        self._pipeline = pipeline
        self._compression = compression
        self._open: dict[str, _OpenFile] = {}
        self._finished: list[StagedFile] = []
        self._schemas: dict[str, TableSchema] = {}
        tree.make_folders([self._control.staging, self._control.schemas])
        self._workshop = tree.workshop(self._control.staging)

    def write(self, part: FilePart, suffix: str) -> None:
        version = part.table.fingerprint if part.table is not None else ""
        for rows in part.rows.by_day():
            folder = f"{part.folder}/{date_folder(int(rows.commit_micros[0]))}"
            file = self._open.pop(folder, None)
            # Another version of the table has other columns.
            if file is not None and file.version != version:
                self._finished.append(file.finish(self._pipeline))
                file = None
            if file is None:
                self._make_room()
                if part.table is not None:
                    self._schemas[version] = part.table
                path, sink = self._new_file(rows.data.schema, suffix)
                file = _OpenFile(path, sink, folder, version, rows.first)
            self._open[folder] = file  # the last one is the one that was used last
            file.write(rows.data, rows.last)

    def write_copied(self, data: pa.Table, chunk: ChunkReader, suffix: str) -> None:
        """One more piece of a chunk. All of it goes into one file."""
        table = chunk.table
        folder = f"{table_folder(table.schema, table.name)}/{date_folder(None)}"
        position = Position(chunk.snapshot.commit_lsn, READ_ORDINAL)
        if folder not in self._open:
            version = table.fingerprint
            self._schemas[version] = table
            path, sink = self._new_file(data.schema, suffix)
            self._open[folder] = _OpenFile(path, sink, folder, version, position, chunk.chunk)
        self._open[folder].write(data, position)

    def _new_file(self, schema: pa.Schema, suffix: str) -> tuple[Path, _Sink]:
        path = self._workshop / f"{uuid.uuid4().hex}{suffix}"
        if suffix == ".parquet":
            return path, _ParquetSink(path, schema, self._compression)
        return path, _LineSink(path)

    def finish(self) -> list[StagedFile]:
        """All files, durable."""
        while self._open:
            self._finish_oldest()
        self._keep_schemas()
        files = [self._workshop / file.staged for file in self._finished]
        self._tree.bring(self._control.staging, files)
        self._tree.leave(self._workshop)
        return self._finished

    def abandon(self) -> None:
        """Remove what was written: the task failed."""
        for file in self._open.values():
            file.abandon()
        for staged in self._finished:
            (self._workshop / staged.staged).unlink(missing_ok=True)
        self._tree.leave(self._workshop)

    def _make_room(self) -> None:
        while len(self._open) >= _MOST_OPEN:
            self._finish_oldest()

    def _finish_oldest(self) -> None:
        oldest = next(iter(self._open))
        self._finished.append(self._open.pop(oldest).finish(self._pipeline))

    def _keep_schemas(self) -> None:
        """Keep definitions under the name that ``_schema_version`` gives them."""
        tree, folder = self._tree, self._control.schemas
        files = {f"{folder}/{table.fingerprint}.json": table for table in self._schemas.values()}
        tree.write(
            {
                name: json.dumps(table.to_json(), indent=1).encode()
                for name, table in files.items()
                if not tree.exists(name)
            }
        )
        # One that is there may have been put in place by a task that has not synced the folder yet.
        tree.settle(folder)
