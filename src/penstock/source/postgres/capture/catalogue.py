"""The connection beside the stream: it holds the pipeline's lock, and answers what types are."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import psycopg

from penstock.answer_limit import answered_within
from penstock.model.errors import SourceUnavailable
from penstock.model.schema_message import SealKey
from penstock.model.table_schema import PgType
from penstock.source.postgres.catalogue.tables import resolve_types
from penstock.source.postgres.pipeline_lock import BEAT_SECONDS
from penstock.source.postgres.silence import SILENCE_SECONDS
from penstock.source.postgres.tracking.schema_tracking import read_key

_T = TypeVar("_T")


class CatalogueConnection:
    """Used by the thread that reads the stream and by the one that publishes it.

    ``limit`` is how many seconds the answer to a short question may take.
    """

    def __init__(self, conn: psycopg.Connection[Any], limit: float = SILENCE_SECONDS) -> None:
        self._conn = conn
        self._limit = limit
        self._next_beat = 0.0
        # Whoever reads the socket while another waits for an answer takes the answer, and the other
        # waits for ever.
        self._lock = threading.Lock()

    def resolve_types(self, oids: Iterable[int]) -> dict[int, PgType]:
        return self._ask(lambda conn: resolve_types(conn, oids))

    def seal_key(self) -> SealKey | None:
        """What the source's triggers seal their messages with."""
        return self._ask(read_key)

    def _ask(self, question: Callable[[psycopg.Connection[Any]], _T]) -> _T:
        with self._lock:
            try:
                with answered_within(self._conn, self._limit):
                    return question(self._conn)
            except psycopg.OperationalError as error:
                raise SourceUnavailable(f"the catalogue connection was lost: {error}") from error

    def check_open(self) -> None:
        """Raise SourceUnavailable once the server has closed the connection. Called often: shows
        now and then that the holder of the lock lives.

        A server that shuts down closes it at once, but waits for a walsender until everything sent
        is confirmed, and what the destination lacks is not: without this, shutting down would hang.
        """
        if not self._lock.acquire(blocking=False):
            # Who asks something finds out.
            return
        try:
            while select.select([self._conn.fileno()], [], [], 0)[0]:
                self._conn.pgconn.consume_input()
            if time.monotonic() >= self._next_beat:
                with answered_within(self._conn, self._limit):
                    self._conn.execute("SELECT")
                self._next_beat = time.monotonic() + BEAT_SECONDS
        except psycopg.OperationalError as error:
            raise SourceUnavailable(
                f"the server closed the connection that holds the pipeline's lock: {error}"
            ) from error
        finally:
            self._lock.release()
