"""The driver's side of ``files``, and the task writer that it sends to the executors."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from penstock.decode.changes import ChangeSet
from penstock.destination.contract import (
    Behind,
    Capabilities,
    Destination,
    DestinationOptions,
    Receipt,
    TableRows,
    TaskWriter,
)
from penstock.destination.files import durable
from penstock.destination.files.layout import ControlFolder, chunk_file, date_folder, table_folder
from penstock.destination.files.manifest import (
    Manifest,
    Manifests,
    StagedFile,
    files_from_json,
    files_to_json,
)
from penstock.destination.files.ndjson_encoding import NdjsonEncoding
from penstock.destination.files.parquet_encoding import ParquetEncoding
from penstock.destination.files.rows import Encoding, parts
from penstock.destination.files.staging import Staging, keep_schemas
from penstock.errors import DestinationError, Fenced
from penstock.failpoints import failpoint
from penstock.lsn import Frontier
from penstock.table_schema import TableSchema

Format = Literal["parquet", "ndjson"]
Compression = Literal["zstd", "snappy", "none"]

# A driver that opens competes only with one that commits at the same moment.
_MOST_CLAIMS = 100


class FilesOptions(DestinationOptions):
    """``path`` is a folder that driver and executors all see."""

    path: str = Field(min_length=1)
    format: Format = "parquet"
    compression: Compression = "zstd"

    @model_validator(mode="after")
    def _compression_is_of_parquet(self) -> FilesOptions:
        if self.format == "ndjson" and "compression" in self.model_fields_set:
            raise PydanticCustomError(
                "ndjson_compression", "compression applies to the format parquet only"
            )
        return self


class FilesWriter(TaskWriter):
    """Writes a task's changes into the staging folder; the receipt says where they are to go."""

    def __init__(self, root: Path, pipeline: str, options: FilesOptions) -> None:
        self._root = root
        self._pipeline = pipeline
        self._options = options

    def write(self, changes: Iterable[ChangeSet]) -> Receipt:
        encoding = _encoding(self._options)
        with durable.explained(self._root):
            staging = _staging(self._root, self._pipeline, self._options)
        try:
            for run in changes:
                for part in parts(run, encoding):
                    with durable.explained(self._root):
                        staging.write(part, encoding.suffix)
            with durable.explained(self._root):
                files = staging.finish()
        except BaseException:
            staging.abandon()
            raise
        failpoint("files.staged")
        return json.dumps(files_to_json(files)).encode()


class FilesDestination(Destination):
    """Every change once, in files by table and day of commit."""

    name = "files"
    options_model = FilesOptions
    # Not atomic: the files of one commit reach their places one by one. list_files() tells a
    # reader which of them belong together.
    capabilities = Capabilities(
        mode="append", exactly_once=True, remembers=True, atomic=False, batch_age=1.0
    )

    def __init__(self, options: FilesOptions, pipeline: str) -> None:
        super().__init__(options, pipeline)
        # Executors may run in another working directory.
        self._root = Path(options.path).absolute()
        self._control = ControlFolder(self._root, pipeline)
        self._manifests = Manifests(self._control.manifests)
        self._epoch = uuid.uuid4().hex
        self._number: int | None = None
        self._moving: tuple[StagedFile, ...] = ()

    def check(self) -> tuple[str, ...]:
        if "://" in self.options.path:
            raise DestinationError(
                f"destination files: path {self.options.path} is an address; only folders on a "
                "disk are supported yet",
                remedy="use the path of a folder that driver and executors all see",
            )
        existing = self._root
        while not existing.exists():
            existing = existing.parent
        if not existing.is_dir():
            raise DestinationError(
                f"destination files: path {self._root} cannot be a folder: {existing} is a file",
                remedy="use another path, or move the file away",
            )
        if not os.access(existing, os.W_OK | os.X_OK):
            raise DestinationError(
                f"destination files: {existing} is not writable by this user",
                remedy=f"give the user the right to write to {existing}, or use another path",
            )
        return ()

    def open(self) -> None:
        with durable.explained(self._root):
            control = self._control
            durable.make_folders([control.staging, control.manifests, control.schemas])
            self._number = self._take_over()
            # From here on no earlier driver can commit, so what is left here is nobody's.
            durable.empty_folder(control.staging)
            durable.empty_folder(control.manifests, durable.TEMPORARY)
            durable.empty_folder(control.schemas, durable.TEMPORARY)

    def _take_over(self) -> int:
        """Finish the last commit and take the next number with a commit of nothing."""
        for _ in range(_MOST_CLAIMS):
            last = self._manifests.newest()
            if last is not None:
                self._move(last.files)
            number = 1 if last is None else last.number + 1
            frontier = None if last is None else last.frontier
            if self._manifests.create(Manifest(number, self._epoch, frontier, ())):
                return number
        raise self._fenced()

    def committed(self) -> Frontier | None:
        last = self._manifests.newest()
        return None if last is None else last.frontier

    def task_writer(self) -> FilesWriter:
        return FilesWriter(self._root, self.pipeline, self.options)

    def commit(
        self, receipts: Sequence[Receipt], frontier: Frontier, behind: Behind | None = None
    ) -> None:
        if self._number is None:
            raise DestinationError("destination files: commit() before open()")
        files = tuple(file for receipt in receipts for file in files_from_json(json.loads(receipt)))
        with durable.explained(self._root):
            self._move(self._moving)  # of the last commit, if that failed on the way
            number = self._number + 1
            if not self._manifests.create(Manifest(number, self._epoch, frontier, files)):
                raise self._fenced()
            self._number, self._moving = number, files
            failpoint("files.manifest_written")
            self._move(files)
            self._moving = ()

    def truncate_table(self, table: TableSchema) -> None:
        """Files hold changes, not rows: history stays."""

    def write_table_rows(self, rows: TableRows, chunk: str) -> None:
        encoding = _encoding(self.options)
        folder = self._root / table_folder(rows.table.schema, rows.table.name) / date_folder(None)
        with durable.explained(self._root):
            staging = _staging(self._root, self.pipeline, self.options)
            keep_schemas(self._control, [rows.table])
            data = encoding.read(rows)
            path, sink = staging.new_file(data.schema, encoding.suffix)
            sink.write(data)
            sink.close()
            durable.sync(path)
            durable.move([(path, folder / chunk_file(chunk, self.pipeline, encoding.suffix))])

    def _move(self, files: Iterable[StagedFile]) -> None:
        durable.move(
            (self._control.staging / file.staged, self._root / file.final) for file in files
        )

    def _fenced(self) -> Fenced:
        return Fenced(
            f"destination files: another driver of pipeline {self.pipeline} has taken over "
            f"{self._root}",
            remedy="stop this one, or the other; what this one did not commit is left to the other",
        )


def _encoding(options: FilesOptions) -> Encoding:
    return ParquetEncoding() if options.format == "parquet" else NdjsonEncoding()


def _staging(root: Path, pipeline: str, options: FilesOptions) -> Staging:
    return Staging(ControlFolder(root, pipeline), pipeline, options.compression)
