"""Whoever puts the files of a lake together does so alone.

DuckLake keeps house for a whole lake, whose tables may be of several pipelines, and its compaction
beside a transaction that deletes brings deleted rows back without a word.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import errors

from penstock.config.connection_url import ConnectionUrl
from penstock.model.errors import DestinationUnavailable

_CONNECT_SECONDS = 10
_TURN = "30s"
# Whoever holds the lock says so now and then: the server takes it from a frozen process. Shorter
# than a turn, so that a driver that takes over from one gets it.
_LEASE = "15s"
_HEARTBEAT_SECONDS = 3.0
# A table whose lock only who may write to the lake can take: anybody could hold an advisory one.
# DuckLake itself reads it, and writes to it where options are set.
_TABLE = "public.ducklake_metadata"


class HouseLock:
    """Of the lake whose catalogue is in this database, for all processes."""

    def __init__(self, catalog: ConnectionUrl) -> None:
        self._catalog = catalog
        self._connection: psycopg.Connection[Any] | None = None

    @contextmanager
    def beside_others(self) -> Iterator[Callable[[], None]]:
        """For a transaction. What it gives is called before the commit, and raises
        DestinationUnavailable where the lock was lost meanwhile.
        """
        with self._locked("ROW EXCLUSIVE", "another pipeline puts the lake's files together"):
            yield self._still_there

    @contextmanager
    def alone(self) -> Iterator[Callable[[], None]]:
        """The same for maintenance. Raises DestinationUnavailable where no turn comes in half a
        minute.
        """
        with self._locked("SHARE ROW EXCLUSIVE", "other pipelines write to the lake all the time"):
            yield self._still_there

    def close(self) -> None:
        """Give up the connection, and what it holds."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    @contextmanager
    def _locked(self, mode: str, others: str) -> Iterator[None]:
        lock = f"BEGIN; SET LOCAL lock_timeout = '{_TURN}'; LOCK {_TABLE} IN {mode} MODE"
        with self._explained(others):
            try:
                if self._connection is not None:
                    self._connection.execute(lock.encode())
            except psycopg.OperationalError as error:
                if isinstance(error, errors.LockNotAvailable):
                    raise
                # The server may have been started anew since.
                self.close()
            if self._connection is None:
                self._connection = self._connected()
                self._connection.execute(lock.encode())
        released = threading.Event()
        threading.Thread(target=self._keep, args=(released,), daemon=True).start()
        try:
            yield
        finally:
            released.set()
            # The thread closes one that was lost.
            if (connection := self._connection) is not None:
                try:
                    connection.execute("ROLLBACK")
                except psycopg.Error:
                    self.close()

    def _keep(self, released: threading.Event) -> None:
        while not released.wait(_HEARTBEAT_SECONDS):
            try:
                self._still_there()
            except DestinationUnavailable:
                return  # whoever holds it sees that before the commit

    def _still_there(self) -> None:
        with self._explained("the lock"):
            if (connection := self._connection) is None:
                raise psycopg.OperationalError("the connection that holds the lock was closed")
            connection.execute("SELECT 1")

    @contextmanager
    def _explained(self, others: str) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            self.close()
            text, remedy = str(error).strip(), "see that the catalogue can be reached"
            if isinstance(error, errors.LockNotAvailable):
                text, remedy = others, "it is tried again; a lake of its own has to wait for nobody"
            if isinstance(error, errors.InsufficientPrivilege):
                remedy = "let its role write to the tables of the catalogue"
            for secret in (self._catalog.reveal(), *self._catalog.secrets):
                text = text.replace(secret, "***")
            raise DestinationUnavailable(
                f"destination ducklake: {self._catalog}: {text}", remedy=remedy
            ) from None

    def _connected(self) -> psycopg.Connection[Any]:
        connection = psycopg.connect(
            self._catalog.reveal(),
            autocommit=True,
            prepare_threshold=None,
            application_name="penstock ducklake",
            connect_timeout=_CONNECT_SECONDS,
            keepalives_idle=30,
            keepalives_interval=10,
            keepalives_count=6,
        )
        connection.execute(f"SET idle_in_transaction_session_timeout = '{_LEASE}'".encode())
        return connection
