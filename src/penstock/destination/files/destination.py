"""The driver's side of ``files``."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterable, Sequence
from typing import Literal

from penstock.destination.contract import (
    Capabilities,
    ChunkReceipt,
    ChunkWriter,
    Receipt,
    SchemaChange,
    TaskWriter,
)
from penstock.destination.encode.schema_event import schema_events
from penstock.destination.families.append import AppendDestination
from penstock.destination.families.queue.events import Encoder
from penstock.destination.families.queue.formats import Formats
from penstock.destination.families.queue.options import FormatOptions, LaneOptions
from penstock.destination.families.queue.oversize import Oversize
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
from penstock.destination.files.mixed_files import (
    MixedChunkWriter,
    MixedFiles,
    MixedWriter,
    copied_folder,
)
from penstock.destination.files.options import FilesOptions, Format
from penstock.destination.files.tree import tree_at
from penstock.destination.files.writers import FilesChunkWriter, FilesWriter
from penstock.destination.protocols import CopiedByWorkers, Ticket
from penstock.destination.seen_elsewhere import not_seen_here
from penstock.failpoints import failpoint
from penstock.model.errors import BatchAgain, DestinationError, Fenced
from penstock.model.table_definition import TableDefinition
from penstock.model.watermarks import Watermarks

# A driver that opens competes only with one that commits at the same moment.
_MOST_CLAIMS = 100
_FORMATS: dict[Format, Literal["penstock", "bifrost"]] = {
    "parquet": "penstock",  # which has an encoding of its own
    "ndjson": "penstock",
    "bifrost": "bifrost",
}


class FilesDestination(AppendDestination, CopiedByWorkers):
    """Every change once, in files by table and day of commit."""

    name = "files"
    options_model = FilesOptions
    failpoints = (
        "files.staged",
        "files.manifest_written",
    )

    def __init__(self, options: FilesOptions, pipeline: str) -> None:
        super().__init__(options, pipeline)
        # Not atomic: the files of one commit reach their places one by one. list_files() tells a
        # reader which of them belong together.
        self.capabilities = Capabilities(
            mode="append",
            exactly_once=True,
            remembers=True,
            atomic=False,
            batch_age=1.0,
            tells_by_definitions=options.layout == "bifrost",
        )
        self._formats = Formats(FormatOptions(format=_FORMATS[options.format]), pipeline)
        self._tree = tree_at(options.path, options.revealed_options)
        self._control = ControlFolder(pipeline)
        self._manifests = Manifests(self._tree, pipeline)
        self._epoch = uuid.uuid4().hex
        # Batches and chunks are committed by different threads, into one series of manifests.
        self._committing = threading.Lock()
        self._number: int | None = None
        self._held: Watermarks | None = None
        self._moving: tuple[StagedFile, ...] = ()
        # Whether a commit came to pass that had failed: who asked before knows nothing of it.
        self._has_overtaken = False

    def check(self) -> tuple[str, ...]:
        self._tree.check()
        return ()

    def open(self) -> None:
        with self._tree.explained():
            tree, control = self._tree, self._control
            tree.make_folders([control.staging, control.manifests, control.schemas])
            self._number = self._take_over()
            # From here on no earlier driver can commit, so what is left here is nobody's.
            tree.remove(f"{control.staging}/{name}" for name in tree.names(control.staging))
            tree.tidy([control.manifests, control.schemas])

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

    def prepare(self, definitions: Sequence[TableDefinition]) -> None:
        self._formats.know(definitions)

    def writer(self) -> TaskWriter:
        if self.options.layout == "bifrost":
            return MixedWriter(self._mixed())
        return FilesWriter(self._tree, self.pipeline, self.options)

    def commit(self, receipts: Sequence[Receipt], watermarks: Watermarks) -> None:
        files = [file for receipt in receipts for file in files_from_json(json.loads(receipt))]
        with self._committing, self._tree.explained():
            self._move_rest()
            if self._has_overtaken or not self._commit(files, watermarks):
                self._has_overtaken = False
                raise _overtaken()

    def schema_receipts(self, change: SchemaChange) -> Sequence[Receipt]:
        """The event has a file of its own, which is the same if it is written again."""
        events = {
            f"{self._control.schemas}/{schema_file(change.position, table.oid)}": line
            for table, line in schema_events(change)
        }
        with self._committing, self._tree.explained():
            self._check_not_fenced()
            self._tree.write(events)
        return ()

    def truncate_table(self, table: TableDefinition) -> None:
        """Files hold changes, not rows: history stays. Chunks that are copied already get other
        names, so that the next copy's do not meet them.
        """
        folder = f"{table_folder(table.schema, table.name)}/{date_folder(None)}"
        if self.options.layout == "bifrost":
            folder = copied_folder(self.pipeline, table.schema, table.name)
        with self._committing, self._tree.explained():
            self._move_rest()
            self._check_not_fenced()
            renamed = {
                name: earlier_chunk_file(name, self.pipeline, version[:12])
                for name, version in self._tree.versions(folder).items()
            }
            self._tree.move(
                (f"{folder}/{old}", f"{folder}/{new}") for old, new in renamed.items() if new
            )

    def chunk_writer(self, table: TableDefinition, *, again: bool = False) -> ChunkWriter:
        if self.options.layout == "bifrost":
            return MixedChunkWriter(self._mixed())
        return FilesChunkWriter(self._tree, self.pipeline, self.options)

    def chunk_ticket(self, table: TableDefinition, *, again: bool = False) -> Ticket:
        return {"epoch": self._epoch}

    def ticket_writer(self, table: TableDefinition, ticket: Ticket) -> ChunkWriter:
        with self._tree.explained():
            newest = self._manifests.newest()
        if newest is None or newest.epoch != ticket["epoch"]:
            raise not_seen_here(self.name, self._tree.path)
        self._formats.know([table])
        return self.chunk_writer(table)

    def _mixed(self) -> MixedFiles:
        """For files that hold lines of all tables. No line is too large for a file."""
        encoder = Encoder(
            self._formats.format(), LaneOptions(count=1), Oversize("files", 2**62, "error", "")
        )
        return MixedFiles(self._tree, self.pipeline, self.options, encoder)

    def commit_chunks(self, receipts: Sequence[ChunkReceipt]) -> None:
        files = [
            file for receipt in receipts for file in files_from_json(json.loads(receipt.content))
        ]
        with self._committing, self._tree.explained():
            self._move_rest()
            new: dict[str, StagedFile] = {}
            for file in files:
                staged = self._staged(file)
                if self._tree.exists(file.final):
                    self._tree.remove([staged])
                elif not self._tree.exists(staged):
                    self._check_not_fenced()
                    raise DestinationError(
                        f"destination files: {self._tree.path}/{staged}, with a chunk that was "
                        f"copied for {file.final}, is not there any more",
                        remedy="keep other programs out of the folder _penstock, and start again: "
                        "the chunk is copied again",
                    )
                elif new.setdefault(file.final, file).staged != file.staged:
                    self._tree.remove([staged])
            if new and not self._commit(list(new.values()), self._held):
                raise _overtaken()

    def forget(self) -> Sequence[str]:
        """Its place is taken by a commit of nothing, which knows no position."""
        last = self._manifests.newest()
        if last is None or last.frontier is None:
            return ()
        with self._tree.explained():
            self._move(last.files)
            if not self._manifests.create(self._manifest(last.number + 1, None)):
                raise self._fenced()
        return [f"position in {self._tree.path}/{self._control.manifests}"]

    def _manifest(
        self, number: int, held: Watermarks | None, files: Sequence[StagedFile] = ()
    ) -> Manifest:
        at, source = (held.frontier, held.source) if held else (None, None)
        return Manifest(number, self._epoch, at, tuple(files), source)

    def _commit(self, files: Sequence[StagedFile], held: Watermarks | None) -> bool:
        """Write the next manifest, and then move the files. The lock is held. False, and nothing is
        committed, where an earlier one of our own has come to pass that was given up.
        """
        if self._number is None:
            raise DestinationError("destination files: commit() before open()")
        manifest = self._manifest(self._number + 1, held, files)
        if not self._manifests.create(manifest):
            self._check_not_fenced()
            if self._number < manifest.number:
                raise self._fenced()
            return False
        self._number, self._held, self._moving = manifest.number, held, manifest.files
        failpoint("files.manifest_written")
        self._move_rest()
        return True

    def _move_rest(self) -> None:
        """Move what the last commit named, if that failed on the way."""
        self._move(self._moving)
        self._moving = ()

    def _check_not_fenced(self) -> None:
        """Raise Fenced where another driver has committed. A commit of our own that was given up,
        and that the store took after all, is finished.
        """
        last = self._manifests.newest()
        if last is None or self._number is None:
            return
        if last.epoch != self._epoch:
            raise self._fenced()
        if last.number > self._number:
            self._move(last.files)
            self._number, self._held, self._has_overtaken = last.number, last.watermarks, True

    def _move(self, files: Iterable[StagedFile]) -> None:
        self._tree.move((self._staged(file), file.final) for file in files)

    def _staged(self, file: StagedFile) -> str:
        return f"{self._control.staging}/{file.staged}"

    def _fenced(self) -> Fenced:
        return Fenced(
            f"destination files: another driver of pipeline {self.pipeline} has taken over "
            f"{self._tree.path}",
            remedy="stop this one, or the other; what this one did not commit is left to the other",
        )


def _overtaken() -> BatchAgain:
    return BatchAgain(
        "destination files: a commit that had failed has come to pass meanwhile: the store took "
        "its manifest after the request was given up"
    )
