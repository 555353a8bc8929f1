"""A change log, or claim checks, in a bucket."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.changelog.storage.contract import Storage
from penstock.changelog.storage.pace import OBJECTS
from penstock.model.errors import LogError, LogUnavailable
from penstock.objects.bucket import Bucket, Owner

if TYPE_CHECKING:
    import pyarrow as pa

CHANGE_LOG = Owner(
    "the change log", "change_log.path", "change_log.options", LogError, LogUnavailable
)


class ObjectStorage(Storage):
    """Objects below ``url``; ``owner`` says in messages what they are."""

    pace = OBJECTS
    can_tear = False
    has_late_writes = True
    compresses = True

    def __init__(
        self, url: str, options: Mapping[str, str] | None = None, owner: Owner = CHANGE_LOG
    ) -> None:
        self._bucket = Bucket(url, options, owner)
        self.path = self._bucket.path

    def __repr__(self) -> str:
        return f"ObjectStorage({self.path!r})"

    def child(self, name: str) -> ObjectStorage:
        made = ObjectStorage.__new__(ObjectStorage)
        made._bucket = self._bucket.child(name)
        made.path = made._bucket.path
        return made

    def make_private(self) -> None:
        """Who may read a bucket is the bucket's own affair (docs/object_storage.md)."""

    def list(self, after: str = "", *, and_in: str = "") -> list[tuple[str, int]]:
        """One request for up to a thousand objects. They come in the order of their names: a folder
        whose name is greater than those of the files is looked at after them.
        """
        folders = ("", f"{and_in}/")
        found = self._bucket.list(after=after)
        return [(each.name, each.size) for each in found if _folder(each.name) in folders]

    def read(self, name: str) -> pa.Buffer | None:
        import pyarrow as pa

        data = self._bucket.get(name)
        return None if data is None else pa.py_buffer(data)

    def read_bytes(self, name: str) -> bytes | None:
        data = self._bucket.get(name)
        return None if data is None else bytes(data)

    def write(self, name: str, data: bytes | memoryview | pa.Buffer, *, durable: bool) -> None:
        """Durable in any case: what a store has taken stays."""
        self._bucket.put(name, data)

    def create(self, name: str, data: bytes) -> bool:
        return self._bucket.create(name, data)

    def delete(self, *names: str) -> None:
        self._bucket.delete(*names)

    def exists(self, name: str) -> bool:
        return self._bucket.exists(name)

    def entries(self) -> set[str]:
        return {each.name.partition("/")[0] for each in self._bucket.list()}

    def destroy(self) -> None:
        self._bucket.delete(*(each.name for each in self._bucket.list()))

    def settle(self) -> None:
        """What a store has taken stays."""

    def delete_temporary(self) -> None:
        """An object is there whole or not at all."""


def _folder(name: str) -> str:
    return name[: name.rfind("/") + 1]
