"""Answers that never come: whether the server is at work on what it was asked, or waits for us as
we wait for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from psycopg.abc import PQGen

from penstock.config.connection_url import ConnectionUrl
from penstock.model.errors import PenstockError
from penstock.source.postgres.connect import Party, connect
from penstock.source.postgres.silence import answered_within, cut, silence_limit

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]

# A backend that is gone; that has answered, and heard nothing since; or that is in the middle of a
# COPY and waits for more of it. Whoever sends rows does not count as waiting.
_WAITS = """
SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %s AND (
       (state = 'active' AND wait_event IS DISTINCT FROM 'ClientRead') OR state IS NULL
       OR clock_timestamp() - state_change < make_interval(secs => %s)))
"""


@dataclass(frozen=True)
class _Served:
    """Who serves a connection, and how to ask about that."""

    url: ConnectionUrl
    party: Party
    application: str
    backend: int

    @property
    def limit(self) -> float:
        return silence_limit(self.url)

    def waits_for_us(self) -> bool:
        with (
            closing(
                connect(self.url, application_name=self.application, party=self.party)
            ) as own,
            answered_within(own, self.limit),
        ):
            return own.execute(_WAITS, [self.backend, self.limit]).fetchone() == (True,)


class AnswerWatch:
    """Cuts a connection whose answer was lost on the way, where TCP cannot tell.

    A statement may take as long as it takes. So after the limit on silence the server is asked, on
    another connection, whether it works on it. Runs in a thread of its own from the first wait on.
    """

    def __init__(self) -> None:
        self._served: WeakKeyDictionary[Connection, _Served] = WeakKeyDictionary()
        self._waits: dict[Connection, float] = {}
        self._pause = 60.0
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def know(
        self, conn: Connection, url: ConnectionUrl, party: Party, application: str, backend: int
    ) -> None:
        """From now on waits of ``conn``, which ``backend`` serves, are looked at."""
        served = self._served[conn] = _Served(url, party, application, backend)
        if served.limit / 4 < self._pause:
            self._pause = served.limit / 4
            self._wake.set()

    @contextmanager
    def over(self, conn: Connection) -> Iterator[None]:
        """For as long as the block, ``conn`` waits for an answer."""
        if self._thread is None or not self._thread.is_alive():
            # A worker may be forked from a process that had one.
            self._thread = threading.Thread(target=self._run, name="penstock-answers", daemon=True)
            self._thread.start()
        self._waits[conn] = time.monotonic()
        try:
            yield
        finally:
            self._waits.pop(conn, None)

    def _run(self) -> None:
        while True:
            self._wake.wait(self._pause)
            self._wake.clear()
            for conn, began in list(self._waits.items()):
                served = self._served.get(conn)
                if served is None or time.monotonic() - began < served.limit:
                    continue
                # A server that is away, or has no connection left, is no reason to give up what it
                # may be at.
                with suppress(PenstockError, psycopg.Error):
                    if served.waits_for_us() and self._waits.get(conn) == began:
                        cut(conn)


ANSWERS = AnswerWatch()
"""One for the process."""


class WatchedConnection(Connection):
    """Its waits are looked at."""

    def wait(self, gen: PQGen[T], *arguments: Any, **named: Any) -> T:
        with ANSWERS.over(self):
            return super().wait(gen, *arguments, **named)
