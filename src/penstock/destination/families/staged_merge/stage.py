"""Where executors put the files of a batch until the driver has merged them."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.destination.families import durable
from penstock.model.errors import BatchAgain

_NOTE = ".note.json"


def note_name(driver: int) -> str:
    """Of the file with a driver's note."""
    return f"{driver}{_NOTE}"


def driver_of(file: str) -> int:
    """Whose note a file holds."""
    return int(file.removesuffix(_NOTE))


class ChunkStage(ABC):
    """Files under names that nobody else has. Pickled to the executors."""

    @abstractmethod
    def put(self, pieces: Iterable[pa.Table], schema: pa.Schema) -> str:
        """Write a file, piece by piece; its name. One that fails midway leaves nothing that counts.
        Called on executors.
        """

    @abstractmethod
    def remove(self, names: Sequence[str]) -> None:
        """Remove files that are needed no longer, as far as they are there."""


class FileStage(ChunkStage):
    """Arrow files that the driver reads.

    It also has a note of each driver, which that one overwrites: what it wants to remember without
    waking the destination. One that is stale changes no note but its own.
    """

    path: str
    """Where it is, for people."""

    @abstractmethod
    def expect_writable(self, destination: str) -> None:
        """Raise DestinationError where nothing can be written there."""

    @abstractmethod
    def get(self, name: str) -> pa.Table:
        """Read a file. Raises BatchAgain where it is gone."""

    @abstractmethod
    def clean(self) -> None:
        """Remove all files: those that are there belong to drivers that are gone."""

    @abstractmethod
    def note(self, driver: int, text: str) -> None:
        """Put a driver's note in place of what it was, durably."""

    @abstractmethod
    def drivers(self) -> list[int]:
        """Those that have a note, in order."""

    @abstractmethod
    def noted(self, driver: int) -> str | None:
        """A driver's note, None without one."""

    @abstractmethod
    def forget_notes(self, drivers: Sequence[int]) -> None:
        """Remove the notes of these drivers."""


@dataclass(frozen=True)
class FolderStage(FileStage):
    """A folder that driver and executors see at the same path."""

    path: str

    def expect_writable(self, destination: str) -> None:
        durable.expect_writable(destination, Path(self.path))

    def put(self, pieces: Iterable[pa.Table], schema: pa.Schema) -> str:
        name = f"{uuid.uuid4().hex}.arrow"
        with self._folder() as folder, pa.ipc.new_file(folder / name, schema) as file:
            for piece in pieces:
                file.write_table(piece)
        # No sync: what a crash of the machine takes is staged again, since nothing tells of it.
        return name

    def get(self, name: str) -> pa.Table:
        """As the operating system maps it: what is not looked at takes no memory."""
        try:
            return pa.ipc.open_file(pa.memory_map(str(Path(self.path) / name))).read_all()
        except (FileNotFoundError, pa.ArrowInvalid) as error:
            raise BatchAgain(f"the staged file {name} is gone or broken: {error}") from error

    def remove(self, names: Sequence[str]) -> None:
        with self._folder() as folder:
            for name in names:
                (folder / name).unlink(missing_ok=True)

    def clean(self) -> None:
        with self._folder() as folder:
            self.remove([file.name for file in folder.glob("*.arrow")])

    def note(self, driver: int, text: str) -> None:
        with self._folder() as folder:
            durable.write_all({folder / note_name(driver): text.encode()})

    def drivers(self) -> list[int]:
        return sorted(driver_of(file.name) for file in Path(self.path).glob(f"*{_NOTE}"))

    def noted(self, driver: int) -> str | None:
        with suppress(FileNotFoundError):
            return (Path(self.path) / note_name(driver)).read_text()
        return None

    def forget_notes(self, drivers: Sequence[int]) -> None:
        self.remove([note_name(driver) for driver in drivers])

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        folder = Path(self.path)
        with durable.explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
            yield folder
