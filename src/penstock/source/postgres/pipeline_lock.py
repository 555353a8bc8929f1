"""One run of a pipeline at a time, held as an advisory lock in the source database."""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import psycopg

from penstock.config.connection_url import ConnectionUrl
from penstock.model.errors import SourceError, SourceUnavailable
from penstock.source.postgres.connect import connect
from penstock.source.postgres.source_errors import source_errors

_HOLDER = """
SELECT l.pid, a.application_name, a.client_addr::text, a.backend_start::text
  FROM pg_locks l
  LEFT JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND ((l.classid::bigint << 32) | l.objid::bigint) = %s::bigint
"""


_LOOK_SECONDS = 0.5
RETAKEN_SECONDS = 2 * _LOOK_SECONDS
"""How long the lock of a running pipeline is free at most, where its connection was cut and the
server answers.
"""


class PipelineLock:
    """Held from ``with`` to the end of the block, or to the end of the connection if that is first.

    It goes when the connection goes, so it protects against a second start by mistake. Against a
    holder that lost its connection without knowing, epochs in the log and the destination do.
    ``what`` tells two locks of one pipeline apart. Taking it is tried for ``patience`` seconds,
    because the server needs a moment to notice that a killed holder is gone.
    """

    def __init__(
        self,
        conn: psycopg.Connection[Any],
        name: str,
        *,
        what: str = "run",
        patience: float = 3.0,
    ) -> None:
        self._conn = conn
        self._name = name
        self._what = what
        self._patience = patience
        digest = hashlib.sha256(f"penstock:{what}:{name}".encode()).digest()
        self._key = int.from_bytes(digest[:8], "big", signed=True)

    def __enter__(self) -> Self:
        with source_errors(f"taking the lock of pipeline {self._name}"):
            last_try = time.monotonic() + self._patience
            while not self._ask("SELECT pg_try_advisory_lock(%s::bigint)"):
                if time.monotonic() >= last_try:
                    raise self._refusal()
                time.sleep(0.1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A connection that is gone has given the lock back already.
        with suppress(psycopg.OperationalError):
            self._ask("SELECT pg_advisory_unlock(%s::bigint)")

    def _ask(self, query: str) -> bool:
        row = self._conn.execute(query.encode(), [self._key]).fetchone()
        return bool(row and row[0])

    def _refusal(self) -> SourceError:
        row = self._conn.execute(_HOLDER, [self._key]).fetchone()
        holder = "a session that has ended meanwhile"
        if row is not None:
            pid, application, client, since = row
            holder = (
                f"Postgres backend {pid} (application {application or 'unknown'}, client "
                f"{client or 'on the local socket, or hidden'}, connected since "
                f"{since or 'unknown'})"
            )
        return SourceError(
            f"Pipeline {self._name} is busy: its {self._what} lock is held by {holder}.",
            remedy="Stop the other penstock process, or wait for it. If it is gone and only its "
            "connection is left: SELECT pg_terminate_backend(<pid>).",
        )


class KeptLock:
    """The lock of a pipeline that runs, with a connection of its own.

    The server may be restarted while the pipeline goes on. Then ``keep`` connects anew and takes
    the lock again; if somebody else has it by then, this pipeline has to end.
    """

    def __init__(self, url: ConnectionUrl, name: str, application: str) -> None:
        self._url = url
        self._name = name
        self._application = application
        self._next_look = 0.0
        self.conn: psycopg.Connection[Any]

    def __enter__(self) -> Self:
        self._take()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # The lock goes with its connection.
        self.conn.close()

    def keep(self) -> None:
        """Called often; looks now and then. A server that is away is left to come back."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK_SECONDS
        try:
            self.conn.execute("SELECT")
            return
        except psycopg.OperationalError:
            self.conn.close()
        with suppress(SourceUnavailable):
            self._take()

    def _take(self) -> None:
        conn = connect(self._url, application_name=self._application)
        try:
            PipelineLock(conn, self._name).__enter__()
        except BaseException:
            conn.close()
            raise
        self.conn = conn
