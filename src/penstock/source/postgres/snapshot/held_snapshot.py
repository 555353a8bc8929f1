"""The snapshot that copies read under, as drivers see it: found, taken, kept and let go.

A process of its own holds it (holder_process.py), so that it outlives a driver that crashed. What
it holds stands in a record beside the change log (snapshot_record.py), by which the two talk, on
one machine or on two:

- Whether it is held, the server says: the record names the session.
- A driver says now and then that it lives; a holder that does not hear that ends, unless somebody
  reads under its snapshot.
- A holder whose record is gone, or is another's, ends. So does one whose session the server has
  ended, which is how a driver lets go of it at once, wherever it is.
"""

from __future__ import annotations

import json
import logging
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psycopg
from psycopg import sql

from penstock.changelog.changelog import ChangeLog
from penstock.changelog.storage.contract import Storage
from penstock.changelog.storage.folder import FolderStorage
from penstock.config.connection_url import ConnectionUrl
from penstock.config.models import PipelineConfig
from penstock.model.error_transport import error_from_json
from penstock.model.errors import LogUnavailable, SourceError
from penstock.source.postgres.connect import connect
from penstock.source.postgres.snapshot.snapshot_record import HeldSnapshot, SnapshotRecord
from penstock.source.postgres.source_errors import source_errors
from penstock.source.postgres.subscription.subscription import SLOT_WAIT_SECONDS

_log = logging.getLogger(__name__)

URL_VARIABLE = "PENSTOCK_SNAPSHOT_URL"
"""Where a holder without a pipeline file finds its source: not on the command line."""

_HOLDER = "penstock.source.postgres.snapshot.holder_process"
MAX_AGE_SECONDS = 6 * 3600.0
ORPHAN_SECONDS = 600.0
IDLE_SECONDS = 300.0
GRACE_SECONDS = 30.0
# How long the server may take to end a holder's session.
_RELEASE_SECONDS = 5.0
_TURN_SECONDS = 0.1
# A driver is heard this often in the time after which its silence counts.
_HEARD_TIMES = 10


def snapshot_folder(config: PipelineConfig, name: str) -> Storage:
    """A folder beside the change log. Holders find it by the same words."""
    storage: Storage = ChangeLog.of(config.change_log).root
    for part in name.split("/"):
        storage = storage.child(part)
    return storage


def process_start(pid: int) -> int | None:
    """When a process began, in the kernel's ticks; None where it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # Behind the name in parentheses, in which anything may stand.
    state, *fields = text.rpartition(")")[2].split()
    return None if state in ("Z", "X") else int(fields[18])


# The same role's: it needs no right for that.
_END_SESSION = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
 WHERE pid = %s AND extract(epoch FROM backend_start)::text = %s
"""


def xmin_age(conn: psycopg.Connection[Any], held: HeldSnapshot) -> int | None:
    """How many transactions ago the oldest one began whose rows the source keeps for the snapshot.

    None where it is not held any more.
    """
    with source_errors("asking for the age of the snapshot"):
        row = conn.execute(
            "SELECT age(backend_xmin) FROM pg_stat_activity"
            " WHERE pid = %s AND extract(epoch FROM backend_start)::text = %s",
            [held.backend_pid, held.backend_start],
        ).fetchone()
    return None if row is None else row[0]


@dataclass(frozen=True)
class HolderCommand:
    """How a holder is started. ``application`` is what others see in pg_stat_activity."""

    application: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]


class Keeper:
    """Drivers' side of one holder at a time. Not for several threads at once.

    What a new snapshot waits for is logged.
    """

    def __init__(
        self,
        url: ConnectionUrl,
        record: SnapshotRecord,
        command: HolderCommand,
        *,
        max_age: float,
        keep_seconds: float | None = None,
    ) -> None:
        """``keep_seconds`` is how often a driver has to be heard; None where it need not be."""
        self.record = record
        self._url = url
        self._application = command.application
        self._arguments = [*command.arguments, "--max-age", str(max_age)]
        self._environment = command.environment
        self._keep_seconds = keep_seconds
        self._next_keep = 0.0
        self._held: HeldSnapshot | None = None

    def current(self) -> HeldSnapshot | None:
        """The snapshot that an earlier driver, or we, took; None where it lives no more.

        Imports it once, and asks the server who holds it: after a restart of the server the same
        name may be another's.
        """
        held = self.record.read()
        if held is None:
            return None
        with (
            connect(self._url, application_name=self._application) as conn,
            source_errors("importing a snapshot"),
        ):
            conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                conn.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(held.name)))
            except (
                psycopg.errors.UndefinedObject,  # 17 and newer
                psycopg.errors.InvalidParameterValue,
                psycopg.errors.FeatureNotSupported,  # one of another database
            ):
                return None
            self._held = None if xmin_age(conn, held) is None else held
            return self._held

    def take(
        self,
        *,
        wait: float = SLOT_WAIT_SECONDS,
        check: Callable[[], None] = lambda: None,
    ) -> HeldSnapshot:
        """A new snapshot; the one before it is let go once the new one is there.

        ``wait`` limits how long it waits for open transactions: then SlotError. ``check`` is called
        several times a second meanwhile; what it raises ends the wait, and the new holder.
        """
        before = self.record.read()
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", _HOLDER),
                *("--application", self._application, "--wait", str(wait), *self._arguments),
            ],
            env={**os.environ, **self._environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert process.stdout is not None  # noqa: S101 (it was asked for)
        try:
            held = self._held = self._told(process.stdout, check)
        finally:
            # The holder ends where it meets a closed pipe before it was heard.
            process.stdout.close()
            # Not the holder, which goes its own way: the process that began it, gone in a moment.
            process.wait()
        if before is not None:
            self._end(before)
        return held

    def keep(self) -> None:
        """Called often. Says that a driver lives: a holder that does not hear this for a while
        ends.
        """
        if self._keep_seconds is None or time.monotonic() < self._next_keep:
            return
        self._next_keep = time.monotonic() + self._keep_seconds
        # Said again the next time; until then the holder is patient.
        with suppress(LogUnavailable):
            self.record.say_alive()

    def release(self) -> None:
        """End the holder, if there is one: when this returns, the source keeps nothing for it.

        Where the source does not answer, the holder ends all the same, by its record; where that
        cannot be removed, the server ends it.
        """
        held = self._held or self.record.read()
        # What is left of it is removed by who looks for snapshots next.
        with suppress(LogUnavailable):
            self.record.remove()
        if held is not None:
            self._end(held)
        self._held = None

    def _told(self, pipe: IO[bytes], check: Callable[[], None]) -> HeldSnapshot:
        """Listen to a new holder until it has its snapshot, or its error."""
        other: list[str] = []
        for line in self._lines(pipe, check):
            try:
                message = json.loads(line)
            except ValueError:
                other.append(line.decode(errors="replace").strip())
                continue
            if "held" in message:
                return HeldSnapshot(**message["held"])
            if "error" in message:
                raise error_from_json(message["error"])
            _log.warning(message["waits"])
        raise SourceError(
            f"The process that holds a snapshot ended before it had one: {' '.join(other[-3:])}",
            remedy="Start it again; if it ends again, this is a defect to report.",
        )

    def _lines(self, pipe: IO[bytes], check: Callable[[], None]) -> Iterator[bytes]:
        data = b""
        while True:
            check()
            # The snapshot before may still be read, and this can take long.
            self.keep()
            if not select.select([pipe], [], [], _TURN_SECONDS)[0]:
                continue
            piece = os.read(pipe.fileno(), 65536)
            if not piece:
                return
            *lines, data = (data + piece).split(b"\n")
            yield from lines

    def _end(self, held: HeldSnapshot) -> None:
        """Let the server end a holder's session. That one alone: numbers are used again."""
        deadline = time.monotonic() + _RELEASE_SECONDS
        with connect(self._url, application_name=self._application) as conn:
            while xmin_age(conn, held) is not None and time.monotonic() < deadline:
                with source_errors("ending the session that holds a snapshot"):
                    conn.execute(_END_SESSION, [held.backend_pid, held.backend_start])
                time.sleep(_TURN_SECONDS)


class SnapshotKeeper(Keeper):
    """A snapshot of a pipeline: it goes on without a driver for ``orphan_seconds``.

    ``folder`` is beside the change log, and has one snapshot.
    """

    def __init__(
        self,
        config: PipelineConfig,
        file: Path,
        folder: str,
        *,
        max_age: float = MAX_AGE_SECONDS,
        orphan_seconds: float = ORPHAN_SECONDS,
    ) -> None:
        super().__init__(
            config.source.url,
            SnapshotRecord(snapshot_folder(config, folder)),
            HolderCommand(
                f"penstock {config.delivery} snapshot",
                (
                    *("--pipeline", str(file), "--folder", folder),
                    *("--orphan-seconds", str(orphan_seconds)),
                ),
                {},
            ),
            max_age=max_age,
            keep_seconds=orphan_seconds / _HEARD_TIMES,
        )


class ProcessSnapshotKeeper(Keeper):
    """A snapshot without a pipeline or a position, which any role can take from any server.

    It needs no ``keep``. It goes with the process ``owner``; when nobody reads under it for
    ``idle_seconds``; or for ``grace_seconds`` after readers have told that they are done with all
    parts (shared_read.py). ``folder`` is its alone and goes with it. Who has the same folder has
    the same snapshot, in any process of this machine: that of the owner.
    """

    def __init__(
        self,
        url: ConnectionUrl,
        folder: Path,
        *,
        owner: int,
        max_age: float = MAX_AGE_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        super().__init__(
            url,
            SnapshotRecord(FolderStorage(str(folder))),
            HolderCommand(
                "penstock snapshot",
                (
                    *("--folder", str(folder)),
                    *("--owner", str(owner), "--idle-seconds", str(idle_seconds)),
                    *("--grace-seconds", str(grace_seconds)),
                ),
                {URL_VARIABLE: url.reveal()},
            ),
            max_age=max_age,
        )
