"""The snapshot that copies read under, as drivers see it: found, taken, kept and let go.

A process of its own holds it (holder_process.py), so that it outlives a driver that crashed. What
it holds stands in a file, which is also how the two talk:

- The holder has the file locked. Without the lock, it is what a dead holder left.
- A driver touches the file now and then; a holder whose file nobody touches ends, unless somebody
  reads under its snapshot: workers may be on other machines.
- A holder whose file is gone, or is another's, ends. So removing it is all that it takes.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import select
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import psycopg
from psycopg import sql

from penstock.config.connection_url import ConnectionUrl
from penstock.config.models import PipelineConfig
from penstock.model.error_transport import error_from_json
from penstock.model.errors import LogError, SourceError
from penstock.source.postgres.connect import connect
from penstock.source.postgres.source_errors import source_errors
from penstock.source.postgres.subscription.subscription import SLOT_WAIT_SECONDS

_log = logging.getLogger(__name__)

SNAPSHOT_FILE = "snapshot.json"
URL_VARIABLE = "PENSTOCK_SNAPSHOT_URL"
"""Where a holder without a pipeline file finds its source: not on the command line."""

_HOLDER = "penstock.source.postgres.snapshot.holder_process"
MAX_AGE_SECONDS = 6 * 3600.0
ORPHAN_SECONDS = 600.0
IDLE_SECONDS = 300.0
GRACE_SECONDS = 30.0
# How long a holder may take to notice that its file is gone before the server ends its session.
_RELEASE_SECONDS = 5.0
_TURN_SECONDS = 0.1


@dataclass(frozen=True)
class HeldSnapshot:
    """``name`` is for SET TRANSACTION SNAPSHOT: it shows every commit before ``lsn``, and no other.

    ``lsn`` is 0 where no position belongs to it. ``taken_at`` is in seconds since 1970 by the
    holder's clock. The rest says who holds it: backend of the server and process of our machine,
    each with when it began, for their numbers are used again.
    """

    name: str
    lsn: int
    taken_at: float
    backend_pid: int
    backend_start: str
    pid: int
    process_start: int

    @property
    def age_seconds(self) -> float:
        return time.time() - self.taken_at


def read_snapshot(folder: Path) -> HeldSnapshot | None:
    """The snapshot whose living holder wrote the file in ``folder``. Cheap: asks no server."""
    try:
        with (folder / SNAPSHOT_FILE).open("rb") as file:
            value = json.loads(file.read())
            if value.pop("ended", None) is None and _is_locked(file):
                return HeldSnapshot(**value)
    except (FileNotFoundError, ValueError, TypeError):
        pass
    return None


def why_ended(folder: Path) -> str | None:
    """Why the last holder gave its snapshot up, if it could still say so."""
    try:
        reason: str | None = json.loads((folder / SNAPSHOT_FILE).read_bytes()).get("ended")
    except (FileNotFoundError, ValueError):
        return None
    return reason


class SnapshotFile:
    """A holder's own file, in place and locked from here to the holder's end."""

    def __init__(self, folder: Path, held: HeldSnapshot) -> None:
        self._path = folder / SNAPSHOT_FILE
        self._held = held
        # The change log's own mark of unfinished files: who cleans up knows it.
        temporary = folder / f".tmp-{uuid.uuid4().hex}"
        try:
            opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            self._file = os.fdopen(opened, "wb", buffering=0)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self._file.write(json.dumps(asdict(held)).encode())
            temporary.replace(self._path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            raise LogError(
                f"The file {self._path}, which says that a snapshot is held, cannot be written: "
                f"{error.strerror}.",
                remedy="Free disk space, or fix the folder's permissions.",
            ) from None

    def touched(self) -> float:
        """When a driver last touched it. Raises FileNotFoundError once it is gone, or another's."""
        found = self._path.stat()
        if not os.path.samestat(found, os.fstat(self._file.fileno())):
            raise FileNotFoundError(self._path)
        return found.st_mtime

    def remove(self) -> None:
        """Remove it, and its folder, which was its own."""
        with suppress(OSError):
            self.touched()
            self._path.unlink()
            self._path.parent.rmdir()

    def end(self, reason: str) -> None:
        """Leave word why. In place: what stands under the name may be another's by now."""
        self._file.seek(0)
        self._file.write(json.dumps({**asdict(self._held), "ended": reason}).encode())


def process_start(pid: int) -> int | None:
    """When a process began, in the kernel's ticks; None where it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # Behind the name in parentheses, in which anything may stand.
    state, *fields = text.rpartition(")")[2].split()
    return None if state in ("Z", "X") else int(fields[18])


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


class Keeper:
    """Drivers' side of one holder at a time. Not for several threads at once.

    ``application`` is what others see in pg_stat_activity. What a new snapshot waits for is logged.
    """

    def __init__(
        self,
        url: ConnectionUrl,
        folder: Path,
        *,
        application: str,
        arguments: list[str],
        environment: dict[str, str],
        max_age: float,
    ) -> None:
        self.folder = folder
        self._url = url
        self._application = application
        self._arguments = [*arguments, "--max-age", str(max_age)]
        self._environment = environment

    def current(self) -> HeldSnapshot | None:
        """The snapshot that an earlier driver, or we, took; None where it lives no more.

        Imports it once, and asks the server who holds it: after a restart of the server the same
        name may be another's.
        """
        held = read_snapshot(self.folder)
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
            return None if xmin_age(conn, held) is None else held

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
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        before = read_snapshot(self.folder)
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", _HOLDER, str(self.folder)),
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
            held = self._told(process.stdout, check)
        finally:
            # The holder ends where it meets a closed pipe before it was heard.
            process.stdout.close()
            # Not the holder, which goes its own way: the process that began it, gone in a moment.
            process.wait()
        if before is not None:
            self._wait_for_end(before)
        return held

    def keep(self) -> None:
        """Say that a driver lives. A holder that does not hear this for a while ends."""
        with suppress(FileNotFoundError):
            os.utime(self.folder / SNAPSHOT_FILE)

    def is_alive(self) -> bool:
        """Whether there is a snapshot, as far as can be told without asking the server."""
        return read_snapshot(self.folder) is not None

    @property
    def age_seconds(self) -> float | None:
        held = read_snapshot(self.folder)
        return None if held is None else held.age_seconds

    def release(self) -> None:
        """End the holder, if there is one: when this returns, the source keeps nothing for it.

        Where the source does not answer, the holder ends all the same.
        """
        held = read_snapshot(self.folder)
        (self.folder / SNAPSHOT_FILE).unlink(missing_ok=True)
        if held is not None:
            self._wait_for_end(held)

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

    def _wait_for_end(self, held: HeldSnapshot) -> None:
        """Wait until the server has ended a holder's session; insist where it does not come."""
        deadline = time.monotonic() + _RELEASE_SECONDS
        with connect(self._url, application_name=self._application) as conn:
            while xmin_age(conn, held) is not None:
                if time.monotonic() >= deadline:
                    # It is frozen, or on a machine that we cannot see.
                    with source_errors("ending the session that holds a snapshot"):
                        conn.execute("SELECT pg_terminate_backend(%s, 5000)", [held.backend_pid])
                    return
                time.sleep(_TURN_SECONDS)


class SnapshotKeeper(Keeper):
    """A snapshot of a pipeline: it goes on without a driver for ``orphan_seconds``.

    ``folder`` is the change log's unless another one is given: a folder has one snapshot.
    """

    def __init__(
        self,
        config: PipelineConfig,
        file: Path,
        *,
        folder: Path | None = None,
        max_age: float = MAX_AGE_SECONDS,
        orphan_seconds: float = ORPHAN_SECONDS,
    ) -> None:
        super().__init__(
            config.source.url,
            folder or config.change_log.local_folder,
            application=f"penstock {config.delivery} snapshot",
            arguments=["--pipeline", str(file), "--orphan-seconds", str(orphan_seconds)],
            environment={},
            max_age=max_age,
        )


class ProcessSnapshotKeeper(Keeper):
    """A snapshot without a pipeline or a position, which any role can take from any server.

    It needs no ``keep``. It goes with the process ``owner``; when nobody reads under it for
    ``idle_seconds``; or for ``grace_seconds`` after readers have told that they are done with all
    parts (shared_read.py). ``folder`` is its alone and goes with it. Who has the same folder has
    the same snapshot, in any process.
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
            folder,
            application="penstock snapshot",
            arguments=[
                *("--owner", str(owner), "--idle-seconds", str(idle_seconds)),
                *("--grace-seconds", str(grace_seconds)),
            ],
            environment={URL_VARIABLE: url.reveal()},
            max_age=max_age,
        )


def _is_locked(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
