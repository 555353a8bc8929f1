"""What is written down of a held snapshot, and how its holder and drivers talk.

It is beside the change log, in a folder or a bucket, so that a driver on another machine than
yesterday's finds it. Nothing in it means anything on one machine alone: no lock, no process number,
no clock. Whether the snapshot is held is asked of the server, which knows the session that holds
it.
"""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass

from penstock.changelog.storage.contract import Storage
from penstock.model.errors import LogError

SNAPSHOT_FILE = "snapshot.json"
_HEARD_FILE = "heard"


@dataclass(frozen=True)
class HeldSnapshot:
    """``name`` is for SET TRANSACTION SNAPSHOT: it shows every commit before ``lsn``, and no other.

    ``lsn`` is 0 where no position belongs to it. The session of the server that holds it, with when
    it began, for numbers are used again; ``host`` and ``pid`` say for people which process that is.
    """

    name: str
    lsn: int
    backend_pid: int
    backend_start: str
    host: str
    pid: int

    @property
    def holder(self) -> tuple[int, str]:
        """The session of the server that holds it, for is_held()."""
        return self.backend_pid, self.backend_start


class SnapshotRecord:
    """One snapshot's record, in a folder of its own.

    Raises LogUnavailable where another try may succeed, LogError for everything else.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def read(self) -> HeldSnapshot | None:
        """What a holder has written that has not ended, as far as it could say."""
        data = self.storage.read_bytes(SNAPSHOT_FILE)
        try:
            value = json.loads(data or b"{}")
            return None if "ended" in value else HeldSnapshot(**value)
        except (ValueError, TypeError):
            # Half of it, after a crash of the machine; or nothing; or another version's.
            return None

    def why_ended(self) -> str | None:
        """Why the last holder gave its snapshot up, if it could still say so."""
        data = self.storage.read_bytes(SNAPSHOT_FILE)
        reason: str | None = json.loads(data or b"{}").get("ended")
        return reason

    def remove(self) -> None:
        """With its folder."""
        # A folder that is not there, or in which its holder writes this very moment.
        with suppress(OSError):
            self.storage.destroy()

    # -- the holder's part -----------------------------------------------------------------------

    def write(self, held: HeldSnapshot) -> None:
        """In place of what was there: whoever wrote that ends."""
        try:
            self.storage.write(SNAPSHOT_FILE, json.dumps(asdict(held)).encode(), durable=False)
        except LogError as error:
            raise type(error)(
                f"That a snapshot is held cannot be written down in {self.storage.path}: "
                f"{error.message}",
                remedy=error.remedy,
            ) from None

    def heard(self) -> bytes | None:
        """Another one each time that a driver has said that it lives."""
        return self.storage.read_bytes(_HEARD_FILE)

    def end(self, held: HeldSnapshot, reason: str) -> None:
        """Leave word why, unless what stands there is another's by now, or was removed."""
        if self.read() == held:
            value = {**asdict(held), "ended": reason}
            self.storage.write(SNAPSHOT_FILE, json.dumps(value).encode(), durable=False)

    # -- a driver's part -------------------------------------------------------------------------

    def say_alive(self) -> None:
        self.storage.write(_HEARD_FILE, uuid.uuid4().hex.encode(), durable=False)
