"""Which storage a path means."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.changelog.storage.contract import Storage
from penstock.changelog.storage.folder import FolderStorage
from penstock.changelog.storage.objects import CHANGE_LOG, ObjectStorage
from penstock.model.errors import ConfigError
from penstock.objects.bucket import SCHEMES, Owner, is_bucket


def open_storage(
    path: str,
    options: Mapping[str, str] | None = None,
    *,
    private: bool = True,
    owner: Owner = CHANGE_LOG,
) -> Storage:
    """A folder, or ``s3://…``, ``gs://…``, ``az://…``. Nothing is opened yet."""
    if is_bucket(path):
        return ObjectStorage(path, options, owner)
    scheme, found, _ = path.partition("://")
    if found and scheme != "file":
        raise ConfigError(
            f"{path}: {scheme}:// is no place that is known here",
            remedy=f"use a folder, or one of {', '.join(f'{each}://' for each in SCHEMES)}",
        )
    return FolderStorage(path, private=private)
