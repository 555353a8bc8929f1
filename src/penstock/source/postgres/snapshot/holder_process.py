"""The process that holds a snapshot, beyond the life of the driver that asked for it.

It makes the snapshot, says so on its standard output (or what it waits for, or its error: a line
of JSON each), and sits on an open transaction. That transaction keeps the source from cleaning up
old rows, so the holder ends for many reasons, each of which is enough: see ``_Watch``.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from penstock.changelog.storage.folder import FolderStorage
from penstock.config import load_deliveries
from penstock.config.connection_url import ConnectionUrl
from penstock.model.error_transport import error_to_json
from penstock.model.errors import LogError, PenstockError
from penstock.source.postgres.connect import connect
from penstock.source.postgres.snapshot.held_snapshot import (
    URL_VARIABLE,
    process_start,
    snapshot_folder,
)
from penstock.source.postgres.snapshot.shared_read import (
    SnapshotReaders,
    exported_snapshot,
    has_readers,
)
from penstock.source.postgres.snapshot.slot_snapshot import slot_snapshot, without_timeouts
from penstock.source.postgres.snapshot.snapshot_record import HeldSnapshot, SnapshotRecord
from penstock.source.postgres.source_errors import source_errors

_TURN_SECONDS = 0.2
_ASK_SECONDS = 5.0
# In the time after which silence counts.
_LISTEN_TIMES = 20
_OUTPUT, _ERRORS = 1, 2


def main() -> None:
    options = _options()
    # A child of a child: nobody has to wait for our end.
    if os.fork():
        os._exit(0)
    # As an exception, so that a command that the server is at is ended, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        _hold(options)
    except PenstockError as error:
        _tell(error=error_to_json(error))
        sys.exit(1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Holds a snapshot. Penstock itself starts it.")
    parser.add_argument("--folder", required=True)
    parser.add_argument("--application", required=True)
    parser.add_argument("--wait", type=float, required=True)
    parser.add_argument("--max-age", type=float, required=True)
    parser.add_argument("--pipeline", type=Path)
    parser.add_argument("--orphan-seconds", type=float)
    parser.add_argument("--owner", type=int)
    parser.add_argument("--idle-seconds", type=float)
    parser.add_argument("--grace-seconds", type=float)
    return parser.parse_args()


def _hold(options: argparse.Namespace) -> None:
    url, record = _place(options)
    if options.owner is None:
        transaction = _transaction(url, options.application, options.wait)
    else:
        transaction = _plain_transaction(url, options.application)
    with transaction as (conn, held), _readers(url, options, held) as readers:
        is_read = partial(has_readers, url, options.application, held.backend_pid)
        record.write(held)
        watch = _Watch(conn, held, record, readers, options, is_read)
        _tell(held=asdict(held))
        _be_silent()
        while (reason := watch.why_to_end()) is None:
            select.select([conn.pgconn.socket], [], [], _TURN_SECONDS)
        # The disk may be full; ending matters more than saying why.
        with suppress(LogError):
            record.end(held, reason)
    if options.owner is not None:
        record.remove()


def _place(options: argparse.Namespace) -> tuple[ConnectionUrl, SnapshotRecord]:
    """Whose snapshot it is, and where that is written down."""
    if options.pipeline is None:
        url = ConnectionUrl(os.environ[URL_VARIABLE])
        return url, SnapshotRecord(FolderStorage(options.folder))
    # Of the destination nothing is needed, not even that it is right.
    config = load_deliveries(options.pipeline, validate_destination=lambda *_: None)[0]
    return config.source.url, SnapshotRecord(snapshot_folder(config, options.folder))


@contextmanager
def _transaction(
    url: ConnectionUrl, application: str, wait: float
) -> Iterator[tuple[psycopg.Connection[Any], HeldSnapshot]]:
    """An open transaction that sees, and has exported, the snapshot of a new slot."""
    with slot_snapshot(
        url,
        application=application,
        wait=wait,
        waits=lambda text: _tell(waits=text),
        check=_check_driver,
    ) as slot:
        conn = connect(url, application_name=application)
        with source_errors("importing a slot's snapshot"):
            without_timeouts(conn)
            conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            conn.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(slot.name)))
            row = conn.execute("SELECT pg_export_snapshot()").fetchone()
    assert row is not None  # noqa: S101 (a function gives a row)
    with closing(conn):
        yield conn, _held(conn, row[0], slot.lsn)


@contextmanager
def _plain_transaction(
    url: ConnectionUrl, application: str
) -> Iterator[tuple[psycopg.Connection[Any], HeldSnapshot]]:
    """One that has exported a snapshot of its own: for that, any role and any server will do."""
    with exported_snapshot(url, application) as (conn, name):
        yield conn, _held(conn, name, 0)


def _held(conn: psycopg.Connection[Any], name: str, lsn: int) -> HeldSnapshot:
    with source_errors("asking who holds a snapshot"):
        row = conn.execute(
            "SELECT pid, extract(epoch FROM backend_start)::text"
            "  FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        ).fetchone()
    assert row is not None  # noqa: S101 (a session sees itself)
    backend_pid, backend_start = row
    return HeldSnapshot(name, lsn, backend_pid, backend_start, socket.gethostname(), os.getpid())


def _readers(
    url: ConnectionUrl, options: argparse.Namespace, held: HeldSnapshot
) -> AbstractContextManager[SnapshotReaders | None]:
    if options.idle_seconds is None:
        return nullcontext()
    return closing(
        SnapshotReaders(
            url,
            options.application,
            held.name,
            held.backend_pid,
            options.idle_seconds,
            options.grace_seconds,
        )
    )


class _Watch:
    """Looks for a reason to end."""

    def __init__(
        self,
        conn: psycopg.Connection[Any],
        held: HeldSnapshot,
        record: SnapshotRecord,
        readers: SnapshotReaders | None,
        options: argparse.Namespace,
        is_read: Callable[[], bool],
    ) -> None:
        """``is_read`` tells whether somebody reads under the snapshot now."""
        self._conn = conn
        self._held = held
        self._record = record
        self._readers = readers
        self._options = options
        self._owner_start = process_start(options.owner) if options.owner else None
        self._is_read = is_read
        self._next_ask = self._next_record = self._next_listen = 0.0
        self._said: bytes | None = None
        # Both by this clock: a driver may be on another machine.
        self._began = self._heard = time.monotonic()

    def why_to_end(self) -> str | None:
        """A sentence for a person, or None."""
        now = time.monotonic()
        if self._connection_lost():
            return "The connection that held it was lost, or the server ended it."
        if not self._is_written(now):
            return "Its record was removed: nobody needs it any more."
        if now - self._began >= self._options.max_age:
            return f"It was older than {self._options.max_age:g} s."
        if self.owner_ended():
            return f"The process {self._options.owner}, for which it was held, has ended."
        orphan_seconds = self._options.orphan_seconds
        if orphan_seconds is not None:
            self._listen(now, orphan_seconds)
            self._look_for_readers(now, orphan_seconds)
            if now - self._heard >= orphan_seconds:
                return f"No driver was heard of for {orphan_seconds:g} s."
        return None if self._readers is None else self._readers.why_to_end()

    def _is_written(self, now: float) -> bool:
        if now < self._next_record:
            return True
        self._next_record = now + self._record.storage.pace.fence
        try:
            return self._record.read() == self._held
        except (LogError, OSError):
            # It does not answer. If that lasts, no driver is heard.
            return True

    def _listen(self, now: float, orphan_seconds: float) -> None:
        if now < self._next_listen:
            return
        self._next_listen = now + orphan_seconds / _LISTEN_TIMES
        with suppress(LogError, OSError):
            said = self._record.heard()
            if said != self._said:
                self._said, self._heard = said, now

    def _look_for_readers(self, now: float, orphan_seconds: float) -> None:
        """Workers go on without a driver, and have nothing to do with our record."""
        if now - self._heard >= orphan_seconds / 2 and now >= self._next_ask:
            self._next_ask = now + min(_ASK_SECONDS, orphan_seconds / 20)
            if self._is_read():
                self._heard = now

    def owner_ended(self) -> bool:
        owner = self._options.owner
        return owner is not None and (
            self._owner_start is None or process_start(owner) != self._owner_start
        )

    def _connection_lost(self) -> bool:
        try:
            while select.select([self._conn.pgconn.socket], [], [], 0)[0]:
                self._conn.pgconn.consume_input()
        except psycopg.OperationalError:
            return True
        return False


def _tell(**message: object) -> None:
    os.write(_OUTPUT, json.dumps(message).encode() + b"\n")


def _check_driver() -> None:
    """End where whoever waits for a snapshot is gone. Afterwards a driver may come and go."""
    poll = select.poll()
    poll.register(_OUTPUT, 0)
    if poll.poll(0):
        sys.exit(1)


def _be_silent() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for output in (_OUTPUT, _ERRORS):
        os.dup2(nowhere, output)


if __name__ == "__main__":
    main()
