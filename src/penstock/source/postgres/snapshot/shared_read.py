"""Several readers of one snapshot, on any machine: who reads, and what has been read to its end.

They tell it to the snapshot's holder through the server that they read from: a reader shows in
pg_stat_activity while it reads, and sends a NOTIFY at the end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import psycopg
from psycopg import sql

from penstock.cadence import paced
from penstock.config.connection_url import ConnectionUrl
from penstock.model.errors import PenstockError
from penstock.source.postgres.connect import connect
from penstock.source.postgres.logged_in import as_logged_in
from penstock.source.postgres.snapshot.slot_snapshot import without_timeouts
from penstock.source.postgres.snapshot.source_session import (
    APPLICATION,
    ArrowSession,
    SessionError,
    transaction,
)
from penstock.source.postgres.source_errors import source_errors

_POLL_SECONDS = paced(1.0)

# Who imported a snapshot has its xmin. Others that happen to have the same one keep the server from
# cleaning up just as much, so that taking them for readers costs nothing.
_READERS = """
SELECT count(*) FROM pg_stat_activity
 WHERE pid NOT IN (%(holder)s, pg_backend_pid()) AND usename = current_user
   AND backend_xmin = (SELECT backend_xmin FROM pg_stat_activity WHERE pid = %(holder)s)
"""


def _channel(snapshot_name: str) -> str:
    return f"penstock_read_{snapshot_name}"


def has_readers(url: ConnectionUrl, application: str, holder_backend: int) -> bool:
    """Whether somebody reads under a holder's snapshot now, on any machine."""
    # Not by the holder's own session: inside of a transaction, others are seen as they were.
    with (
        suppress(PenstockError, psycopg.Error),
        closing(connect(url, application_name=f"{application} readers")) as conn,
        as_logged_in(conn),
    ):
        return conn.execute(_READERS, {"holder": holder_backend}).fetchone() != (0,)
    return False


def tell_read(url: ConnectionUrl, snapshot_name: str, part: int, parts: int) -> None:
    """Say that one of the ``parts`` was read. Where it cannot be said, the holder stays longer."""
    begin = sql.SQL("BEGIN; NOTIFY {}, {}").format(
        sql.Identifier(_channel(snapshot_name)), sql.Literal(f"{part}/{parts}")
    )
    with (
        suppress(PenstockError, SessionError),
        # The session that has just read the part.
        transaction(ArrowSession, url, begin.as_string(None)),
    ):
        pass


@contextmanager
def exported_snapshot(
    url: ConnectionUrl, application: str = APPLICATION
) -> Iterator[tuple[psycopg.Connection[Any], str]]:
    """A snapshot of now for the block, without a position: the transaction that has exported it,
    and its name.
    """
    with closing(connect(url, application_name=application)) as conn:
        with source_errors("exporting a snapshot"):
            without_timeouts(conn)
            conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            row = conn.execute("SELECT pg_export_snapshot()").fetchone()
        assert row is not None  # noqa: S101 (a function gives a row)
        yield conn, row[0]


class SnapshotReaders:
    """The holder's view of the readers of its snapshot."""

    def __init__(
        self,
        url: ConnectionUrl,
        application: str,
        snapshot_name: str,
        holder_backend: int,
        idle_seconds: float,
        grace_seconds: float,
    ) -> None:
        self._idle_seconds = idle_seconds
        self._grace_seconds = grace_seconds
        self._holder = {"holder": holder_backend}
        self._read: set[int] = set()
        self._parts: int | None = None
        self._heard = self._polled = time.monotonic()
        self._conn = connect(url, application_name=f"{application} readers")
        self._conn.add_notify_handler(self._take)
        with source_errors("listening for readers of a snapshot"):
            without_timeouts(self._conn)
            self._conn.execute("SET idle_session_timeout TO 0")
            # Another role, which settings may have taken, is not shown what sessions do.
            self._conn.execute("SET ROLE NONE")
            # A standby has no LISTEN: there, only readers that come and go are seen.
            with suppress(psycopg.errors.ReadOnlySqlTransaction):
                self._conn.execute(
                    sql.SQL("LISTEN {}").format(sql.Identifier(_channel(snapshot_name)))
                )

    def why_to_end(self) -> str | None:
        """A sentence for a person where nobody needs the snapshot any more, else None."""
        now = time.monotonic()
        if now - self._polled < _POLL_SECONDS:
            return None
        self._polled = now
        try:
            # What readers told comes with the answer.
            row = self._conn.execute(_READERS, self._holder).fetchone()
        except psycopg.Error:
            return "The connection that looked for its readers was lost, or the server ended it."
        if row != (0,):
            self._heard = now
        silence = now - self._heard
        if len(self._read) == self._parts and silence >= self._grace_seconds:
            return "All was read."
        if silence >= self._idle_seconds:
            return f"Nobody read under it for {self._idle_seconds:g} s."
        return None

    def close(self) -> None:
        self._conn.close()

    def _take(self, notify: psycopg.Notify) -> None:
        part, self._parts = map(int, notify.payload.split("/"))
        self._read.add(part)
        self._heard = time.monotonic()
