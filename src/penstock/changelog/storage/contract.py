"""What the change log asks of the place that its files are in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.changelog.storage.pace import Pace

if TYPE_CHECKING:
    import pyarrow as pa


class Storage(ABC):
    """Files by name, in one folder or below one prefix. Cheap to make, picklable, holds nothing
    open.

    Whoever lists after a write has returned sees it. Raises LogUnavailable where another try may
    succeed, LogError for everything else.
    """

    path: str
    """The folder or URL, for people."""
    pace: Pace
    """How often it may be asked, at what it costs."""
    can_tear: bool
    """Whether a crash of the machine can leave a part of a file that was put in place."""
    has_late_writes: bool
    """Whether a write can still come to pass after its writer has died."""
    compresses: bool = False
    """Whether bytes cost more here than it costs to make them fewer."""

    @abstractmethod
    def child(self, name: str) -> Storage:
        """A folder in this one."""

    def full(self, name: str) -> str:
        """A file's own path, for people."""
        return f"{self.path}/{name}"

    @abstractmethod
    def list(self, after: str = "", *, and_in: str = "") -> Sequence[tuple[str, int]]:
        """Names and sizes of the files here whose names are greater than ``after``, in no order;
        empty where there is nothing. Folders in this one are left out, but for ``and_in``: its
        files are looked at after the others, and are named ``folder/name``.
        """

    @abstractmethod
    def read(self, name: str) -> pa.Buffer | None:
        """The bytes of a file; None where it is missing."""

    @abstractmethod
    def read_bytes(self, name: str) -> bytes | None:
        """The same for small files, in Python's own bytes."""

    @abstractmethod
    def write(self, name: str, data: bytes | memoryview | pa.Buffer, *, durable: bool) -> None:
        """Put a file in place at once and whole, replacing what was there.

        With ``durable`` it survives a crash of the machine once this returns.
        """

    @abstractmethod
    def create(self, name: str, data: bytes) -> bool:
        """Put a new file in place, durably; False (and no change) where the name is taken.

        One that holds exactly ``data`` may be our own: the answer to a request can be lost.
        """

    @abstractmethod
    def delete(self, *names: str) -> None:
        """Remove files; it is no error where one is already gone."""

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Whether there is a file of that name."""

    def free_bytes(self) -> int | None:
        """What still fits; None where that has no end."""
        return None

    @abstractmethod
    def settle(self) -> None:
        """Let what is here survive a crash of the machine, also where whoever put it here has died
        before he saw to that.
        """

    @abstractmethod
    def delete_temporary(self) -> None:
        """Remove what writers that died left unfinished."""

    @abstractmethod
    def entries(self) -> set[str]:
        """The names of all files and folders here, temporary files left out."""

    @abstractmethod
    def destroy(self) -> None:
        """Remove everything here, folders included, and the folder itself."""

    @abstractmethod
    def make_private(self) -> None:
        """Let nobody but its owner read what is here already. Raises LogError where that is not
        ours to do.
        """
