"""The driver's connection to the destination."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg

from penstock.destination.postgres.options import PostgresOptions
from penstock.destination.postgres.own_tables import may_disable_triggers
from penstock.destination.postgres.sessions.database import ensure_database, lacks_database
from penstock.destination.postgres.sessions.session import (
    Connection,
    destination_errors,
    is_passing,
    open_session,
    session_name,
)
from penstock.model.errors import DestinationError
from penstock.source.postgres.silence import has_rested


class DriverSession:
    """One connection, made again where it was lost, and others like it."""

    def __init__(self, options: PostgresOptions, pipeline: str) -> None:
        self._options = options
        self._pipeline = pipeline
        self._conn: Connection | None = None
        whole = options.whole
        self._may_lack_database = whole is not None and whole.create_database

    @contextmanager
    def __call__(self) -> Iterator[Connection]:
        if self._conn is not None and not self._conn.closed and has_rested(self._conn):
            self._conn.close()
        if self._conn is None or self._conn.closed:
            self._conn = self.connect("driver")
        try:
            yield self._conn
        except psycopg.Error as error:
            if is_passing(error):
                self._conn.close()
            raise
        except DestinationError:
            if self._conn.broken:
                self._conn.close()
            raise

    def connect(self, purpose: str) -> Connection:
        """A connection that is the caller's. Makes the database where it is missing and the
        options say so.
        """
        if self._may_lack_database:
            ensure_database(self._options.url, session_name(self._pipeline, purpose))
            self._may_lack_database = False
        # A commit must have reached the disk before it is confirmed to the source.
        conn = open_session(
            self._options.url,
            session_name(self._pipeline, purpose),
            {"synchronous_commit": "on"},
        )
        try:
            with destination_errors("preparing the connection"):
                if self.triggers_are_off(conn):
                    conn.execute("SET session_replication_role = replica")
        except BaseException:
            conn.close()
            raise
        return conn

    def awaits_database(self) -> bool:
        """Whether the database is missing, and ``connect`` would make it."""
        return self._may_lack_database and lacks_database(
            self._options.url, session_name(self._pipeline, "check")
        )

    def triggers_are_off(self, conn: Connection) -> bool:
        """Whether what is written through such connections fires no triggers."""
        return self._options.disable_triggers and may_disable_triggers(conn)

    @contextmanager
    def last(self) -> Iterator[Connection | None]:
        """What is left of the connection, for the last time. Nothing that fails now is told."""
        conn, self._conn = self._conn, None
        if conn is None:
            yield None
            return
        try:
            with suppress(psycopg.Error, DestinationError):
                yield None if conn.closed else conn
        finally:
            conn.close()
