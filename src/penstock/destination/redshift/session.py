"""The connection to Redshift: psycopg, one statement at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import errors

from penstock.config.connection_url import ConnectionUrl
from penstock.destination.families.warehouse.session import WarehouseSession
from penstock.model.errors import BatchAgain, DestinationError, DestinationUnavailable

# Redshift says the number first, of two transactions of which no order would explain both.
_CONFLICT = re.compile(r"(ERROR: )?1023\b|.*Serializable isolation violation|could not serialize")
_CONNECT_SECONDS = 30


class RedshiftSession(WarehouseSession):
    """Statements go out by the simple protocol, without parameters: what is sent is what can be
    read in Redshift's own log of queries.
    """

    def __init__(self, url: ConnectionUrl, application: str) -> None:
        super().__init__()
        self._url = url
        self._application = application
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    def run(self, statement: str) -> int:
        with self.lock, self._explained():
            return max(self._connected().execute(statement.encode()).rowcount, 0)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.lock, self._explained():
            return self._connected().execute(query.encode()).fetchall()

    def close(self) -> None:
        with self.lock:
            if self._connection is not None:
                with suppress(psycopg.Error):
                    self._connection.close()
            self._connection = None

    def _connected(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._connection is None:
            self._connection = psycopg.connect(
                self._url.reveal(),
                autocommit=True,
                prepare_threshold=None,
                client_encoding="utf8",
                application_name=self._application,
                connect_timeout=_CONNECT_SECONDS,
                keepalives_idle=30,
                keepalives_interval=10,
                keepalives_count=6,
            )
            self._connection.execute("SET timezone TO 'UTC'")
        return self._connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turns what Redshift says into errors that a person or the pipeline can act on."""
        try:
            yield
        except psycopg.Error as error:
            text = self._told(error)
            if isinstance(error, errors.SerializationFailure | errors.DeadlockDetected) or (
                _CONFLICT.match(text)
            ):
                raise BatchAgain(
                    f"destination redshift: another transaction was faster: {text}"
                ) from None
            lost = self._connection is None or self._connection.closed
            if lost or isinstance(error, errors.AdminShutdown | errors.CannotConnectNow):
                self.close()
                raise DestinationUnavailable(
                    f"destination redshift: {self._url}: {text}",
                    remedy="see that the cluster runs and can be reached from here",
                ) from None
            if isinstance(error, errors.InsufficientPrivilege):
                raise DestinationError(
                    f"destination redshift: {text}",
                    remedy="give the role what docs/destinations/redshift.md lists under Rights",
                ) from None
            remedy = "see what Redshift says"
            if "load" in text.lower():
                remedy += (
                    "; SELECT * FROM sys_load_error_detail ORDER BY start_time DESC tells more"
                )
            raise DestinationError(f"destination redshift: {text}", remedy=remedy) from None

    def _told(self, error: psycopg.Error) -> str:
        text = " ".join(str(error).split())
        for secret in self._url.secrets:
            text = text.replace(secret, "***")
        return text
