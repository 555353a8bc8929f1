"""Several sessions of one database that all see the same rows, in the same text form."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from types import TracebackType
from typing import Any, Self, TypeVar

import psycopg
from psycopg import sql

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]
Connect = Callable[[], Connection]
Guard = Callable[[str], AbstractContextManager[None]]
"""Turns the errors of one side, inside the block, into errors for people."""

# Whatever a value's text depends on, and what could end a long comparison half way.
_SETTINGS = {
    "client_encoding": "UTF8",
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "3",
    "lc_monetary": "C",
    "xmlbinary": "base64",
    "quote_all_identifiers": "off",
    "search_path": "pg_catalog",
    # Rows that a policy hides would look like missing ones: then rather an error.
    "row_security": "off",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "transaction_timeout": "0",
    "jit": "off",
}


class ComparedSnapshot:
    """One state of a database, for as many sessions as needed, from ``open`` to ``close``.

    ``exported`` names a snapshot that somebody else holds at the moment; without it, the state is
    that of now. ``guard`` is called with what is being done.
    """

    def __init__(self, connect: Connect, guard: Guard, exported: str | None = None) -> None:
        self._connect = connect
        self.guard = guard
        self._exported = exported

    def open(self) -> None:
        self.leader = self.session()
        try:
            with self.guard("exporting a snapshot"):
                row = self.leader.execute("SELECT pg_export_snapshot()").fetchone()
        except BaseException:
            self.leader.close()
            raise
        assert row is not None  # noqa: S101 (a SELECT without FROM has one row)
        self._exported = row[0]

    def close(self) -> None:
        self.leader.close()

    @contextmanager
    def asked(self) -> Iterator[Connection]:
        """The first session for a moment. What it locks inside is free after that: whoever waits
        for such a lock holds up all who come behind.
        """
        with self.leader.transaction(force_rollback=True):
            yield self.leader

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def session(self) -> Connection:
        """One more connection, inside a read-only transaction that sees this state."""
        conn = self._connect()
        try:
            with self.guard("opening a snapshot"):
                conn.autocommit = True
                conn.execute(
                    "SELECT set_config(s.name, wanted.value, false)"
                    " FROM unnest(%s::text[], %s::text[]) AS wanted (name, value)"
                    # Not every version has each of them.
                    " JOIN pg_settings s ON lower(s.name) = wanted.name",
                    [list(_SETTINGS), list(_SETTINGS.values())],
                )
                conn.autocommit = False
                conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                conn.read_only = True
                if self._exported is not None:
                    conn.execute(
                        sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(self._exported))
                    )
        except BaseException:
            conn.close()
            raise
        return conn


class SnapshotSessions:
    """Threads with a session of one snapshot each, from ``with`` to its end."""

    def __init__(self, snapshot: ComparedSnapshot, count: int) -> None:
        self._snapshot = snapshot
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="verify")
        self._local = threading.local()
        self._opened: list[Connection] = []

    def submit(self, work: Callable[[Connection], T]) -> Future[T]:
        """Run ``work`` on one of the sessions. An error in it leaves the session as it was."""
        return self._threads.submit(self._run, work)

    def _run(self, work: Callable[[Connection], T]) -> T:
        conn: Connection | None = getattr(self._local, "conn", None)
        if conn is None:
            conn = self._local.conn = self._snapshot.session()
            self._opened.append(conn)
        # Back to where it was, with the locks: a table that was read may be truncated.
        with conn.transaction(force_rollback=True):
            return work(conn)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        if kind is not None:
            # Whoever stops does not want to wait for the end of a scan.
            for conn in self._opened:
                with suppress(psycopg.Error):
                    conn.cancel_safe()
        self._threads.shutdown()
        for conn in self._opened:
            conn.close()
