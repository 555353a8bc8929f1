"""Where files lie: a folder of a disk, or a bucket. Names are relative to it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from penstock.changelog.storage.object_check import check_objects
from penstock.changelog.storage.objects import ObjectStorage
from penstock.destination.families import durable
from penstock.model.errors import DestinationError, DestinationUnavailable
from penstock.objects.bucket import SCHEMES, Bucket, Owner, is_bucket

FILES = Owner(
    "destination files",
    "destination.path",
    "destination.options",
    DestinationError,
    DestinationUnavailable,
)
_PARALLEL_REQUESTS = 16

Item = TypeVar("Item")


class Tree(ABC):
    """Cheap to make, picklable, holds nothing open."""

    path: str
    """For people."""

    @abstractmethod
    def check(self) -> None:
        """Raise DestinationError if it could not be written to. Leaves nothing behind."""

    @abstractmethod
    def make_folders(self, folders: Iterable[str]) -> None:
        """Let these be there."""

    @abstractmethod
    def tidy(self, folders: Iterable[str]) -> None:
        """Remove from these what a crash left half written. Nobody else writes."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Of the files in a folder, those below it left out; none where there is no folder."""

    @abstractmethod
    def data_files(self, folder: str | None) -> list[str]:
        """The names of data files of one table, or of all."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """None where it is missing."""

    @abstractmethod
    def create(self, name: str, data: bytes) -> bool:
        """Put a new file in place, whole and durably; False where the name is taken."""

    @abstractmethod
    def write(self, files: Mapping[str, bytes]) -> None:
        """Put files of one folder in place, each whole and durably, whether or not they were."""

    @abstractmethod
    def settle(self, folder: str) -> None:
        """Let the names that are in a folder be durable, whoever put them there."""

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Whether there is such a file."""

    @abstractmethod
    def remove(self, names: Iterable[str]) -> None:
        """It is no error where one is gone."""

    @abstractmethod
    def move(self, moves: Iterable[tuple[str, str]]) -> None:
        """Give files other names, durably. One that was moved already, or removed, is no error."""

    @abstractmethod
    def versions(self, folder: str) -> dict[str, str]:
        """The files in a folder, each with a text that no other file of its name has had."""

    @abstractmethod
    def workshop(self, folder: str) -> Path:
        """A folder of this machine's disk for files that are being written; see ``bring``."""

    @abstractmethod
    def bring(self, folder: str, files: Sequence[Path]) -> None:
        """Let files that lie in the workshop be in the folder, durably."""

    @abstractmethod
    def leave(self, workshop: Path) -> None:
        """Nothing more is written there."""

    @abstractmethod
    def explained(self) -> AbstractContextManager[None]:
        """Turns what the operating system says into an error that a person can act on."""


class FolderTree(Tree):
    """On a disk that driver and executors share."""

    def __init__(self, path: str) -> None:
        # Executors may run in another working directory.
        self._root = Path(path.removeprefix("file://")).absolute()
        self.path = str(self._root)

    def check(self) -> None:
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

    def make_folders(self, folders: Iterable[str]) -> None:
        durable.make_folders(self._root / folder for folder in folders)

    def tidy(self, folders: Iterable[str]) -> None:
        for folder in folders:
            durable.empty_folder(self._root / folder, durable.TEMPORARY)

    def names(self, folder: str) -> list[str]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return [path.name for path in (self._root / folder).iterdir()]
        return []

    def data_files(self, folder: str | None) -> list[str]:
        found = self._root.glob(f"{folder or '*'}/commit_date=*/*")
        return [file.relative_to(self._root).as_posix() for file in found]

    def read(self, name: str) -> bytes | None:
        with contextlib.suppress(FileNotFoundError):
            return (self._root / name).read_bytes()
        return None

    def create(self, name: str, data: bytes) -> bool:
        return durable.create(self._root / name, data)

    def write(self, files: Mapping[str, bytes]) -> None:
        durable.write_all({self._root / name: data for name, data in files.items()})

    def settle(self, folder: str) -> None:
        durable.sync(self._root / folder)

    def exists(self, name: str) -> bool:
        return (self._root / name).exists()

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            (self._root / name).unlink(missing_ok=True)

    def move(self, moves: Iterable[tuple[str, str]]) -> None:
        durable.move((self._root / old, self._root / new) for old, new in moves)

    def versions(self, folder: str) -> dict[str, str]:
        # A file is renamed at once: any text will do.
        return dict.fromkeys(self.names(folder), uuid4().hex)

    def workshop(self, folder: str) -> Path:
        durable.make_folders([self._root / folder])
        return self._root / folder

    def bring(self, folder: str, files: Sequence[Path]) -> None:
        durable.sync_all(files)
        durable.sync(self._root / folder)

    def leave(self, workshop: Path) -> None:
        """It is the folder itself."""

    def explained(self) -> AbstractContextManager[None]:
        return durable.explained(self._root)


class BucketTree(Tree):
    """In an object store. What is moved is copied there, and then removed."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self._bucket = Bucket(url, options, FILES)
        self._options = dict(options)
        self.path = self._bucket.path

    def check(self) -> None:
        check_objects(ObjectStorage(self.path, self._options, FILES).child("_penstock"), FILES)

    def make_folders(self, folders: Iterable[str]) -> None:
        """There are none: a name has slashes in it."""

    def tidy(self, folders: Iterable[str]) -> None:
        """An object is there whole or not at all."""

    def names(self, folder: str) -> list[str]:
        return list(self.versions(folder))

    def data_files(self, folder: str | None) -> list[str]:
        below = "" if folder is None else f"{folder}/"
        found = [each.name for each in self._bucket.list(below)]
        return [name for name in found if _is_data(name)]

    def read(self, name: str) -> bytes | None:
        data = self._bucket.get(name)
        return None if data is None else bytes(data)

    def create(self, name: str, data: bytes) -> bool:
        return self._bucket.create(name, data)

    def write(self, files: Mapping[str, bytes]) -> None:
        for name, data in files.items():
            self._bucket.put(name, data)

    def settle(self, folder: str) -> None:
        """They are."""

    def exists(self, name: str) -> bool:
        return self._bucket.exists(name)

    def remove(self, names: Iterable[str]) -> None:
        self._bucket.delete(*names)

    def move(self, moves: Iterable[tuple[str, str]]) -> None:
        wanted = list(moves)
        if wanted:
            _side_by_side(lambda names: self._bucket.copy(*names), wanted)
            self._bucket.delete(*(old for old, _ in wanted))

    def versions(self, folder: str) -> dict[str, str]:
        """By the store's own tag: whoever is interrupted between copy and removal, and begins anew,
        copies to the same name.
        """
        return {
            each.name.removeprefix(f"{folder}/"): hashlib.sha256(each.tag.encode()).hexdigest()
            for each in self._bucket.list(f"{folder}/")
            if "/" not in each.name.removeprefix(f"{folder}/")
        }

    def workshop(self, folder: str) -> Path:
        return Path(tempfile.mkdtemp(prefix="penstock-files-"))

    def bring(self, folder: str, files: Sequence[Path]) -> None:
        _side_by_side(lambda file: self._bucket.put_file(f"{folder}/{file.name}", file), files)

    def leave(self, workshop: Path) -> None:
        shutil.rmtree(workshop, ignore_errors=True)

    def explained(self) -> AbstractContextManager[None]:
        return durable.explained(Path(tempfile.gettempdir()))


def tree_at(path: str, options: Mapping[str, str] | None = None) -> Tree:
    """What a path of the pipeline file means. Raises DestinationError for what is not known."""
    if is_bucket(path):
        return BucketTree(path, options or {})
    scheme, found, _ = path.partition("://")
    if found and scheme != "file":
        raise DestinationError(
            f"destination files: {scheme}:// in path {path} is no place that is known here",
            remedy=f"use a folder that driver and executors all see, or one of "
            f"{', '.join(f'{each}://' for each in SCHEMES)}",
        )
    return FolderTree(path)


def _side_by_side(do: Callable[[Item], object], items: Sequence[Item]) -> None:
    """Each waits for an answer."""
    if len(items) == 1:
        do(items[0])
    elif items:
        with ThreadPoolExecutor(min(len(items), _PARALLEL_REQUESTS)) as pool:
            for _ in pool.map(do, items):
                pass


def _is_data(name: str) -> bool:
    parts = name.split("/")
    return len(parts) == 3 and parts[1].startswith("commit_date=")
