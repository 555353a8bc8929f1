"""File operations that survive a crash of the machine once they return."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from penstock.model.errors import DestinationError, DestinationUnavailable

TEMPORARY = ".tmp-"
PASSING = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
        *(errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN),
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN),
    }
)
"""What the operating system says of storage that is full or away, or of itself: not of a file."""
_PARALLEL_SYNCS = 16


@contextlib.contextmanager
def explained(root: Path) -> Iterator[None]:
    """Turns what the operating system says into an error that a person can act on."""
    try:
        yield
    except OSError as error:
        place = error.filename or root
        kind = DestinationUnavailable if error.errno in PASSING else DestinationError
        raise kind(
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


def sync_all(paths: Iterable[Path]) -> None:
    """The same for many at once: journaling file systems write waiting syncs together."""
    unique = list(dict.fromkeys(paths))
    if len(unique) < 2:
        for path in unique:
            sync(path)
        return
    with ThreadPoolExecutor(min(len(unique), _PARALLEL_SYNCS)) as pool:
        for _ in pool.map(sync, unique):
            pass


def make_folders(paths: Iterable[Path]) -> None:
    """Create folders and their parents, durably."""
    touched: list[Path] = []
    for path in paths:
        missing = path
        while not missing.is_dir():
            touched.append(missing.parent)
            missing = missing.parent
        path.mkdir(parents=True, exist_ok=True)
    sync_all(touched)


def create(path: Path, data: bytes) -> bool:
    """Put a new file in place, whole; False (and no change) where the name is taken."""
    temporary = path.with_name(f"{TEMPORARY}{uuid.uuid4().hex}")
    temporary.write_bytes(data)
    try:
        sync(temporary)
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)
    return True


def write_all(files: Mapping[Path, bytes]) -> None:
    """Put files of one folder in place, each whole, whether or not they were there."""
    temporary = {path: path.with_name(f"{TEMPORARY}{uuid.uuid4().hex}") for path in files}
    for path, data in files.items():
        temporary[path].write_bytes(data)
    sync_all(temporary.values())
    for path, written in temporary.items():
        written.replace(path)
    sync_all(path.parent for path in files)


def move(moves: Iterable[tuple[Path, Path]]) -> None:
    """Rename files; one that was already moved, or removed since, is no error.

    Folders are made and synced once, however many files go there.
    """
    wanted = list(moves)
    make_folders(dict.fromkeys(target.parent for _, target in wanted))
    for source, target in wanted:
        with contextlib.suppress(FileNotFoundError):
            source.rename(target)
    sync_all(path.parent for paths in wanted for path in paths)


def empty_folder(path: Path, prefix: str = "") -> None:
    """Remove the files in a folder whose names begin with ``prefix``."""
    for file in path.iterdir():
        if file.name.startswith(prefix):
            file.unlink(missing_ok=True)


def expect_writable(destination: str, *folders: Path) -> None:
    """Raise DestinationError where a folder cannot be written to, or made: then its next parent
    that is there counts.
    """
    for wanted in folders:
        folder = wanted
        while not folder.exists():
            folder = folder.parent
        if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
            raise DestinationError(
                f"destination {destination}: {folder} is no folder that can be written to",
                remedy="fix its permissions, or name another folder in the pipeline file",
            )
