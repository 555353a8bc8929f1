"""Files of the change log, by name, on a pyarrow file system.

Reading and listing go through pyarrow.fs. Durable writes need what pyarrow does not offer for
local disks (fsync, an exclusive create), so they are written out here.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from penstock.model.errors import LogError


class Storage:
    """A folder of the change log. Cheap to make, picklable, holds nothing open."""

    def __init__(self, path: str) -> None:
        if "://" in path and not path.startswith("file://"):
            scheme = path.split("://", 1)[0]
            raise LogError(
                f"the change log path uses {scheme}://, which is not supported yet",
                remedy="use a folder on a disk that capture, driver and executors all see",
            )
        self.path = str(Path(path.removeprefix("file://")).absolute())

    def child(self, name: str) -> Storage:
        return Storage(f"{self.path}/{name}")

    def full(self, name: str) -> str:
        return f"{self.path}/{name}"

    def list(self) -> list[tuple[str, int]]:
        """Names and sizes of the files here, in no order; empty where the folder is missing."""
        selector = fs.FileSelector(self.path, allow_not_found=True)
        infos = _filesystem().get_file_info(selector)
        return [
            (info.base_name, info.size)
            for info in infos
            if info.type == fs.FileType.File and not info.base_name.startswith(".")
        ]

    def read(self, name: str) -> pa.Buffer | None:
        """The bytes of a file (mapped, not copied, on a local disk); None where it is missing."""
        try:
            with _filesystem().open_input_file(self.full(name)) as source:
                return source.read_buffer()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes | memoryview | pa.Buffer, *, durable: bool) -> None:
        """Put a file in place at once and whole, replacing what was there.

        With ``durable`` it survives a crash of the machine once this returns.
        """
        temporary = self._write_temporary(data, durable)
        try:
            os.replace(temporary, self.full(name))
            if durable:
                self._sync_folder()
        except OSError as error:
            raise self._cannot_write(error) from error

    def create(self, name: str, data: bytes) -> bool:
        """Put a new file in place, durably; False (and no change) where the name is taken."""
        temporary = self._write_temporary(data, durable=True)
        try:
            os.link(temporary, self.full(name))
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary)
        self._sync_folder()
        return True

    def delete(self, name: str) -> None:
        """Remove a file; it is no error where it is already gone."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.full(name))

    def delete_temporary(self) -> None:
        """Remove what writers that died left unfinished."""
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self.path):
                if entry.name.startswith(".tmp-"):
                    self.delete(entry.name)

    def _write_temporary(self, data: bytes | memoryview | pa.Buffer, durable: bool) -> str:
        temporary = self.full(f".tmp-{uuid.uuid4().hex}")
        try:
            os.makedirs(self.path, exist_ok=True)
            with open(temporary, "wb", buffering=0) as file:
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

    def _cannot_write(self, error: OSError) -> LogError:
        return LogError(
            f"cannot write to the change log folder {self.path}: {error.strerror}",
            remedy="free disk space or fix the folder's permissions; nothing was lost",
        )

    def _sync_folder(self) -> None:
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _filesystem() -> fs.FileSystem:
    return fs.LocalFileSystem(use_mmap=True)
