"""A folder on a disk that capture, driver and executors all see.

Segments are read through pyarrow.fs, which maps them. It is loaded when the first one is read:
`penstock status` lists and reads small documents alone. Durable writes need what pyarrow does not
offer for local disks (fsync, an exclusive create), so they are written out here.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.changelog.storage.contract import Storage
from penstock.changelog.storage.pace import FOLDER
from penstock.model.errors import LogError, LogUnavailable

if TYPE_CHECKING:
    import pyarrow as pa


_log = logging.getLogger(__name__)

_NOT_TO_SYNC = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL, errno.ENOTSUP)
_REFUSALS = (
    PermissionError,
    NotADirectoryError,
    IsADirectoryError,
    FileExistsError,
    FileNotFoundError,
)


class FolderStorage(Storage):
    """``private``: what is written can be read by its owner alone, whatever the umask."""

    pace = FOLDER
    can_tear = True
    has_late_writes = False

    def __init__(self, path: str, *, private: bool = True) -> None:
        self.path = str(Path(path.removeprefix("file://")).absolute())
        self._private = private
        self._parent: FolderStorage | None = None

    def child(self, name: str) -> FolderStorage:
        made = FolderStorage(f"{self.path}/{name}", private=self._private)
        made._parent = self
        return made

    def make_private(self) -> None:
        try:
            found = os.stat(self.path)
            if not found.st_mode & 0o077:
                return
            if found.st_uid != os.geteuid():
                raise LogError(
                    f"the change log folder {self.path} belongs to another user, and others may "
                    f"read it (mode {found.st_mode & 0o777:o}): it holds rows of the source",
                    remedy=f"let its owner run `chmod -R go= {self.path}`, or give the pipeline a "
                    "change_log.path of its own",
                )
            _log.warning(
                "others could read the change log %s (mode %o): it is its owner's alone now",
                *(self.path, found.st_mode & 0o777),
                extra={"event": "log_made_private"},
            )
            # The folder first: nobody comes in while the rest is changed.
            for folder, _, files in os.walk(self.path):
                os.chmod(folder, 0o700)
                for name in files:
                    # Retention may have removed it meanwhile.
                    with contextlib.suppress(FileNotFoundError):
                        os.chmod(f"{folder}/{name}", 0o600)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._cannot_write(error) from error

    def list(self, after: str = "", *, and_in: str = "") -> list[tuple[str, int]]:
        found = []
        with self._asked("list"), os.scandir(self.path) as entries:
            for entry in entries:
                # One that is removed meanwhile is not here any more.
                with contextlib.suppress(FileNotFoundError):
                    if entry.name > after and not entry.name.startswith(".") and entry.is_file():
                        found.append((entry.name, entry.stat().st_size))
        if and_in:
            below = self.child(and_in).list()
            found += [(f"{and_in}/{name}", size) for name, size in below]
        return found

    def read(self, name: str) -> pa.Buffer | None:
        """They are mapped, not copied."""
        from pyarrow import fs

        try:
            with fs.LocalFileSystem(use_mmap=True).open_input_file(self.full(name)) as source:
                return source.read_buffer()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._cannot("read", error) from error

    def read_bytes(self, name: str) -> bytes | None:
        try:
            return Path(self.full(name)).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._cannot("read", error) from error

    def write(self, name: str, data: bytes | memoryview | pa.Buffer, *, durable: bool) -> None:
        temporary = self._write_temporary(data, durable)
        try:
            os.replace(temporary, self.full(name))
            if durable:
                _sync(self.path)
        except OSError as error:
            raise self._cannot_write(error) from error

    def create(self, name: str, data: bytes) -> bool:
        temporary = self._write_temporary(data, durable=True)
        try:
            os.link(temporary, self.full(name))
            _sync(self.path)
        except FileExistsError:
            return False
        except OSError as error:
            raise self._cannot_write(error) from error
        finally:
            os.unlink(temporary)
        return True

    def delete(self, *names: str) -> None:
        for name in names:
            with self._asked("remove files of"):
                os.unlink(self.full(name))

    def exists(self, name: str) -> bool:
        try:
            os.stat(self.full(name))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._cannot("read", error) from error
        return True

    def free_bytes(self) -> int:
        try:
            return shutil.disk_usage(self.path).free
        except OSError as error:
            raise self._cannot_write(error) from error

    def settle(self) -> None:
        try:
            with contextlib.suppress(FileNotFoundError):
                _sync(self.path)
                _sync_above(self.path)
        except OSError as error:
            raise self._cannot_write(error) from error
        if self._parent is not None:
            self._parent.settle()

    def delete_temporary(self) -> None:
        with self._asked("list"):
            for entry in os.scandir(self.path):
                if entry.name.startswith(".tmp-"):
                    self.delete(entry.name)

    def entries(self) -> set[str]:
        found: Sequence[str] = ()
        with self._asked("list"):
            found = os.listdir(self.path)
        return {name for name in found if not name.startswith(".tmp-")}

    def destroy(self) -> None:
        shutil.rmtree(self.path)

    def _write_temporary(self, data: bytes | memoryview | pa.Buffer, durable: bool) -> str:
        temporary = self.full(f".tmp-{uuid.uuid4().hex}")
        try:
            self._make_folder()
            mode = 0o600 if self._private else 0o666
            opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with open(opened, "wb", buffering=0) as file:
                view = memoryview(data)
                while view:
                    view = view[file.write(view) :]
                if durable:
                    os.fsync(file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise self._cannot_write(error) from error
        return temporary

    def _make_folder(self) -> None:
        """What is kept in a folder goes with it, so a new one is synced into those above it."""
        if self._parent is not None:
            # Folders that are made on the way would be as open as the umask lets them.
            self._parent._make_folder()
        missing = []
        folder = self.path
        while not os.path.isdir(folder) and folder not in missing:
            missing.append(folder)
            folder = os.path.dirname(folder)
        if missing:
            os.makedirs(self.path, mode=0o700 if self._private else 0o777, exist_ok=True)
        for folder in missing:
            _sync_above(folder)

    @contextlib.contextmanager
    def _asked(self, doing: str) -> Iterator[None]:
        """What is missing is passed over."""
        try:
            yield
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._cannot(doing, error) from error

    def _cannot(self, doing: str, error: OSError) -> LogError:
        return _kind(error)(
            f"cannot {doing} the folder {self.path}: {error.strerror or error}",
            remedy="see that it is there, and that this user may read and write it; nothing was "
            "lost",
        )

    def _cannot_write(self, error: OSError) -> LogError:
        return _kind(error)(
            f"cannot write to the change log folder {self.path}: {error.strerror or error}",
            remedy="see that its disk is there, free disk space or fix the folder's permissions; "
            "nothing was lost",
        )


def _kind(error: OSError) -> type[LogError]:
    """What the folder refuses stays refused, and one that somebody removed stays away. All else can
    pass: a server or disk that is away or full, too many open files.
    """
    stays = isinstance(error, _REFUSALS) or error.errno in (errno.EROFS, errno.ENAMETOOLONG)
    return LogError if stays else LogUnavailable


def _sync(folder: str) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _sync_above(folder: str) -> None:
    """Sync the one that a folder is in. That may be one that we may not read, or that knows no
    sync, such as a system's own, that nobody writes and a volume is mounted on.
    """
    try:
        _sync(os.path.dirname(folder))
    except OSError as error:
        if error.errno not in _NOT_TO_SYNC:
            raise
