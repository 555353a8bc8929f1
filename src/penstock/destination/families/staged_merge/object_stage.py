"""A stage in an object store, which driver and executors see wherever they run."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.destination.families.staged_merge.stage import (
    FileStage,
    FolderStage,
    driver_of,
    note_name,
)
from penstock.destination.families.staged_merge.stage_options import StageOptions
from penstock.model.errors import BatchAgain, DestinationError, DestinationUnavailable
from penstock.objects.bucket import Bucket, Owner

_NOTES = "notes/"
_PROBE = "check"


def stage_owner(destination: str) -> Owner:
    """For messages about the stage of a destination."""
    return Owner(
        f"destination {destination}: the stage",
        "destination.stage",
        "destination.stage_options",
        DestinationError,
        DestinationUnavailable,
    )


@dataclass(frozen=True)
class ObjectStage(FileStage):
    """Arrow files below a bucket's prefix, and notes in a folder of their own."""

    bucket: Bucket

    @property
    def path(self) -> str:  # type: ignore[override]
        return self.bucket.path

    def expect_writable(self, destination: str) -> None:
        """By an object that is put there and removed."""
        self.bucket.put(_PROBE, b"")
        self.bucket.delete(_PROBE)

    def put(self, pieces: Iterable[pa.Table], schema: pa.Schema) -> str:
        name = f"{uuid.uuid4().hex}.arrow"
        buffer = io.BytesIO()
        with pa.ipc.new_file(buffer, schema) as file:
            for piece in pieces:
                file.write_table(piece)
        self.bucket.put(name, buffer.getbuffer())
        return name

    def get(self, name: str) -> pa.Table:
        data = self.bucket.get(name)
        if data is None:
            raise BatchAgain(f"the staged file {self.path}/{name} is gone")
        return pa.ipc.open_file(pa.py_buffer(bytes(data))).read_all()

    def remove(self, names: Sequence[str]) -> None:
        self.bucket.delete(*names)

    def clean(self) -> None:
        self.remove([each.name for each in self.bucket.list() if not each.name.startswith(_NOTES)])

    def note(self, driver: int, text: str) -> None:
        self.bucket.put(_NOTES + note_name(driver), text.encode())

    def drivers(self) -> list[int]:
        found = self.bucket.list(_NOTES)
        return sorted(driver_of(each.name.removeprefix(_NOTES)) for each in found)

    def noted(self, driver: int) -> str | None:
        data = self.bucket.get(_NOTES + note_name(driver))
        return None if data is None else bytes(data).decode()

    def forget_notes(self, drivers: Sequence[int]) -> None:
        self.bucket.delete(*(_NOTES + note_name(driver) for driver in drivers))


def chosen_stage(destination: str, options: StageOptions, otherwise: Path, name: str) -> FileStage:
    """The place of that name in the stage that the options say, or else in a folder."""
    if options.stage is None or "://" not in options.stage:
        return FolderStage(str(Path(options.stage or otherwise).absolute() / name))
    bucket = Bucket(options.stage, options.revealed_stage_options, stage_owner(destination))
    return ObjectStage(bucket.child(name))
