"""Answers that never come: whether the server is at work on what it was asked, or waits for us as
we wait for it.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from psycopg.abc import PQGen
from psycopg.pq.abc import PGresult

from penstock.answer_limit import answered_within, cut
from penstock.source.postgres.search_path import without_path
from penstock.source.postgres.silence import SILENCE_SECONDS

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]

# A backend that is at work, or was until just now. Any other one is gone; has answered, and heard
# nothing since; or is in the middle of a COPY and waits for more of it. Who sends rows does not
# wait for an answer.
_AT_WORK = """(
       (state = 'active' AND wait_event IS DISTINCT FROM 'ClientRead') OR state IS NULL
       OR clock_timestamp() - state_change < make_interval(secs => %s))
"""
_WAITS = f"""
SELECT NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity WHERE pid = %s AND {_AT_WORK})
"""  # noqa: S608 (a text of this file)
# Numbers of processes come again: only one that has the name of the lost one is ended.
_END = f"""
SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity
 WHERE pid = %s AND usename = session_user AND application_name = %s AND NOT {_AT_WORK}
"""  # noqa: S608 (a text of this file)


_ASKED = 3


@dataclass(frozen=True)
class Served:
    """Which process of the server serves a connection and under which name, and how to open another
    connection to ask about that; ``limit`` is for how many seconds an answer is waited for before.
    """

    backend: int
    name: str
    limit: float
    another: Callable[[], Connection]

    def waits_for_us(self) -> bool:
        with self._asking() as own:
            return own.execute(_WAITS, [self.backend, self.limit]).fetchone() == (True,)

    def end(self) -> None:
        """End the process, which waits for somebody who has given it up. Its connection may stand
        for hours, and with it the locks of its transaction, for which our next one would wait.
        """
        with self._asking() as own:
            own.execute(_END, [self.backend, self.name, self.limit])

    @contextmanager
    def _asking(self) -> Iterator[Connection]:
        """A connection in a transaction in which no name or operator is a stranger's, and the role
        is the one that logged in: to another that settings have taken the server tells nothing.
        """
        with (
            closing(self.another()) as own,
            answered_within(own, self.limit),
            own.transaction(),
        ):
            without_path(own)
            own.execute("SET LOCAL ROLE NONE")
            yield own


class AnswerWatch:
    """Cuts a connection whose answer was lost on the way, where TCP cannot tell, and ends the
    process that served it.

    A statement may take as long as it takes. So after the limit on silence the server is asked, on
    another connection, whether it works on it. One that takes no connection either, three times
    over, is gone. Runs in a thread of its own from the first wait on.
    """

    def __init__(self) -> None:
        self._served: WeakKeyDictionary[Connection, Served] = WeakKeyDictionary()
        self._waits: dict[Connection, float] = {}
        self._in_vain: dict[Connection, int] = {}
        """How often the server was asked about a wait, and did not answer."""
        self._pause = SILENCE_SECONDS / 4
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def know(self, conn: Connection, served: Served) -> None:
        """From now on waits of ``conn`` are looked at."""
        self._served[conn] = served
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
            self._in_vain.pop(conn, None)

    def _run(self) -> None:
        while True:
            self._wake.wait(self._pause)
            self._wake.clear()
            for conn, began in list(self._waits.items()):
                served = self._served.get(conn)
                if served is None or time.monotonic() - began < served.limit:
                    continue
                if self._is_lost(conn, served) and self._waits.get(conn) == began:
                    with suppress(psycopg.Error, OSError):
                        cut(conn)
                        served.end()

    def _is_lost(self, conn: Connection, served: Served) -> bool:
        try:
            lost = served.waits_for_us()
        except psycopg.errors.ConnectionTimeout:
            self._in_vain[conn] = self._in_vain.get(conn, 0) + 1
            return self._in_vain[conn] >= _ASKED
        except (psycopg.Error, OSError):
            # One that has no connection left may be at it nevertheless.
            lost = False
        self._in_vain.pop(conn, None)
        return lost


ANSWERS = AnswerWatch()
"""One for the process."""


class WatchedConnection(Connection):
    """Its waits are looked at."""

    def wait(self, gen: PQGen[T], *arguments: Any, **named: Any) -> T:
        with ANSWERS.over(self):
            return super().wait(gen, *arguments, **named)


def next_result(conn: Connection) -> PGresult | None:
    """What libpq's function gives, which blocks all threads while it waits."""
    while conn.pgconn.is_busy():
        wait_for_input(conn)
    return conn.pgconn.get_result()


def wait_for_input(conn: Connection) -> None:
    """Wait until the server has sent something, and take it in."""
    poll = select.poll()
    poll.register(conn.pgconn.socket, select.POLLIN)
    with ANSWERS.over(conn):
        poll.poll()
    conn.pgconn.consume_input()
