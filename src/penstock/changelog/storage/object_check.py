"""Whether an object store does what a change log rests on."""

from __future__ import annotations

import uuid

from penstock.changelog.storage.contract import Storage
from penstock.changelog.storage.objects import CHANGE_LOG
from penstock.objects.bucket import Owner


def check_objects(root: Storage, owner: Owner = CHANGE_LOG) -> None:
    """Write, list, read and delete an object of our own. Raises the owner's error where one of them
    fails, or where the store lets two writers create the same object: then nothing would fence
    them.
    """
    folder, name = root.child("check"), uuid.uuid4().hex
    try:
        if not folder.create(name, b"first"):
            raise owner.refused(f"{folder.full(name)} is there, though its name was just made up")
        if folder.create(name, b"second"):
            raise owner.refused(
                f"the store of {root.path} does not keep to If-None-Match: two writers could "
                f"create one object, and both would believe that {owner.what} is theirs",
                remedy="use a store, or a version of it, with conditional writes (Amazon S3, "
                "Google Cloud Storage, Azure Blob Storage, MinIO, Ceph and SeaweedFS have them)",
            )
        if name not in dict(folder.list()) or folder.read_bytes(name) != b"first":
            raise owner.refused(
                f"{folder.full(name)} was written, and cannot be read or listed",
                remedy="use a store that shows an object as soon as it was written",
            )
    finally:
        folder.delete(name)
