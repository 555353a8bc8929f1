"""File operations that survive a crash of the machine once they return."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from penstock.errors import DestinationError

TEMPORARY = ".tmp-"


@contextlib.contextmanager
def explained(root: Path) -> Iterator[None]:
    """Turns what the operating system says into an error that a person can act on."""
    try:
        yield
    except OSError as error:
        place = error.filename or root
        raise DestinationError(
            f"destination files: cannot write below {root}: {place}: {error.strerror or error}",
            remedy="free disk space or fix the folder's permissions, then start again; nothing "
            "was lost, and nothing stands twice",
        ) from error


def sync(path: Path) -> None:
    """Make a file's content, or a folder's list of names, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(path: Path) -> None:
    """Create a folder and its parents, each of them durably."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    sync(path.parent)


def create(path: Path, data: bytes) -> bool:
    """Put a new file in place, whole; False (and no change) where the name is taken."""
    temporary = _temporary(path, data)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    sync(path.parent)
    return True


def move(moves: Iterable[tuple[Path, Path]]) -> None:
    """Rename files; one that was already moved, or removed since, is no error.

    Folders are made and synced once, however many files go there.
    """
    touched: dict[Path, None] = {}
    for source, target in moves:
        if target.parent not in touched:
            make_folder(target.parent)
        with contextlib.suppress(FileNotFoundError):
            source.rename(target)
        touched |= dict.fromkeys((target.parent, source.parent))
    for folder in touched:
        sync(folder)


def empty_folder(path: Path, prefix: str = "") -> None:
    """Remove the files in a folder whose names begin with ``prefix``."""
    for file in path.iterdir():
        if file.name.startswith(prefix):
            file.unlink(missing_ok=True)


def _temporary(beside: Path, data: bytes) -> Path:
    path = beside.with_name(f"{TEMPORARY}{uuid.uuid4().hex}")
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return path
