"""The driver's side of ``files``."""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path

from penstock.destination.contract import (
    Capabilities,
    ChunkReceipt,
    Receipt,
    SchemaChange,
)
from penstock.destination.encode.schema_event import schema_events
from penstock.destination.families import durable
from penstock.destination.families.append import AppendDestination
from penstock.destination.files.layout import (
    ControlFolder,
    date_folder,
    earlier_chunk_file,
    schema_file,
    table_folder,
)
from penstock.destination.files.manifest import (
    Manifest,
    Manifests,
    StagedFile,
    files_from_json,
)
from penstock.destination.files.options import FilesOptions
from penstock.destination.files.writers import FilesChunkWriter, FilesWriter
from penstock.failpoints import failpoint
from penstock.model.errors import DestinationError, Fenced
from penstock.model.table_definition import TableDefinition
from penstock.model.watermarks import Watermarks

# A driver that opens competes only with one that commits at the same moment.
_MOST_CLAIMS = 100


class FilesDestination(AppendDestination):
    """Every change once, in files by table and day of commit."""

    name = "files"
    options_model = FilesOptions
    failpoints = (
        "files.staged",
        "files.manifest_written",
    )
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
        # Batches and chunks are committed by different threads, into one series of manifests.
        self._committing = threading.Lock()
        self._number: int | None = None
        self._held: Watermarks | None = None
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
            held = None if last is None else last.watermarks
            if self._manifests.create(self._manifest(number, held)):
                self._held = held
                return number
        raise self._fenced()

    def committed(self) -> Watermarks | None:
        last = self._manifests.newest()
        return None if last is None else last.watermarks

    def writer(self) -> FilesWriter:
        return FilesWriter(self._root, self.pipeline, self.options)

    def commit(self, receipts: Sequence[Receipt], watermarks: Watermarks) -> None:
        files = [file for receipt in receipts for file in files_from_json(json.loads(receipt))]
        with self._committing, durable.explained(self._root):
            self._move_rest()
            self._commit(files, watermarks)

    def schema_receipts(self, change: SchemaChange) -> Sequence[Receipt]:
        """The event has a file of its own, which is the same if it is written again."""
        events = {
            self._control.schemas / schema_file(change.position, table.oid): line
            for table, line in schema_events(change)
        }
        with self._committing, durable.explained(self._root):
            self._check_not_fenced()
            durable.write_all(events)
        return ()

    def truncate_table(self, table: TableDefinition) -> None:
        """Files hold changes, not rows: history stays. Chunks that are copied already get other
        names, so that the next copy's do not meet them.
        """
        folder = self._root / table_folder(table.schema, table.name) / date_folder(None)
        with self._committing, durable.explained(self._root):
            self._move_rest()
            self._check_not_fenced()
            present = [file.name for file in folder.iterdir()] if folder.is_dir() else []
            unique = uuid.uuid4().hex[:12]
            renamed = {name: earlier_chunk_file(name, self.pipeline, unique) for name in present}
            durable.move((folder / old, folder / new) for old, new in renamed.items() if new)

    def chunk_writer(self, table: TableDefinition, *, again: bool = False) -> FilesChunkWriter:
        return FilesChunkWriter(self._root, self.pipeline, self.options)

    def commit_chunks(self, receipts: Sequence[ChunkReceipt]) -> None:
        files = [
            file for receipt in receipts for file in files_from_json(json.loads(receipt.content))
        ]
        with self._committing, durable.explained(self._root):
            self._move_rest()
            new: dict[str, StagedFile] = {}
            for file in files:
                staged = self._control.staging / file.staged
                if (self._root / file.final).exists():
                    staged.unlink(missing_ok=True)
                elif not staged.exists():
                    self._check_not_fenced()
                    raise DestinationError(
                        f"destination files: {staged}, with a chunk that was copied for "
                        f"{file.final}, is not there any more",
                        remedy="keep other programs out of the folder _penstock, and start again: "
                        "the chunk is copied again",
                    )
                elif new.setdefault(file.final, file).staged != file.staged:
                    staged.unlink()
            if new:
                self._commit(list(new.values()), self._held)

    def forget(self) -> Sequence[str]:
        """Its place is taken by a commit of nothing, which knows no position."""
        last = self._manifests.newest()
        if last is None or last.frontier is None:
            return ()
        with durable.explained(self._root):
            self._move(last.files)
            if not self._manifests.create(self._manifest(last.number + 1, None)):
                raise self._fenced()
        return [f"position in {self._control.manifests}"]

    def _manifest(
        self, number: int, held: Watermarks | None, files: Sequence[StagedFile] = ()
    ) -> Manifest:
        at, source = (held.frontier, held.source) if held else (None, None)
        return Manifest(number, self._epoch, at, tuple(files), source)

    def _commit(self, files: Sequence[StagedFile], held: Watermarks | None) -> None:
        """Write the next manifest, and then move the files. The lock is held."""
        if self._number is None:
            raise DestinationError("destination files: commit() before open()")
        manifest = self._manifest(self._number + 1, held, files)
        if not self._manifests.create(manifest):
            raise self._fenced()
        self._number, self._held, self._moving = manifest.number, held, manifest.files
        failpoint("files.manifest_written")
        self._move_rest()

    def _move_rest(self) -> None:
        """Move what the last commit named, if that failed on the way."""
        self._move(self._moving)
        self._moving = ()

    def _check_not_fenced(self) -> None:
        last = self._manifests.newest()
        if last is not None and last.epoch != self._epoch:
            raise self._fenced()

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
