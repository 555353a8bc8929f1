"""Sessions for work beside the commits, which other threads do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from penstock.destination.postgres.sessions.session import Connection
from penstock.source.postgres.silence import has_rested


class SessionPool:
    """Keeps sessions that are not in use. One that an error was raised in is not used again."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._lock = Lock()
        self._idle: list[Connection] = []
        self._is_closed = False

    @contextmanager
    def session(self) -> Iterator[Connection]:
        """A session that nobody else has."""
        with self._lock:
            conn = self._idle.pop() if self._idle else None
        if conn is not None and not conn.closed and has_rested(conn):
            conn.close()
        if conn is None or conn.closed:
            conn = self._connect()
        try:
            yield conn
        except BaseException:
            conn.close()
            raise
        with self._lock:
            if not self._is_closed:
                self._idle.append(conn)
                return
        conn.close()

    def close(self) -> None:
        """Sessions that are in use are closed by those who give them back."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for conn in idle:
            conn.close()
