"""Files of a table, which survive a crash of the machine once they are closed.

pyiceberg loads this class by its name, for all that it reads and writes. An object store keeps what
it confirmed; a folder does not, and a catalogue that names a file which is gone is a broken table.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from penstock.destination.families import durable


class _SyncedStream:
    """A stream whose ``close`` makes the file durable."""

    def __init__(self, stream: Any, path: Path) -> None:
        self._stream = stream
        self._path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def close(self) -> None:
        if not self._stream.closed:
            self._stream.close()
            durable.sync(self._path)
            durable.sync(self._path.parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _DurableFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        path = Path(self._path)
        durable.make_folders([path.parent])
        stream: Any = _SyncedStream(super().create(overwrite), path)
        return stream  # type: ignore[no-any-return]


class DurableFiles(PyArrowFileIO):
    """pyiceberg's own files; what goes to a folder is synced."""

    def new_output(self, location: str) -> PyArrowFile:
        file = super().new_output(location)
        if self.parse_location(location, self.properties)[0] != "file":
            return file
        return _DurableFile(file.location, file._path, file._filesystem, file._buffer_size)
