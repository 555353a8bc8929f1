"""Whether the server is still at a commit that takes long, or waits for us as we wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import psycopg

from penstock.config.connection_url import ConnectionUrl
from penstock.destination.postgres.sessions.session import DESTINATION, Connection, session_name
from penstock.model.errors import DestinationError
from penstock.source.postgres.connect import connect
from penstock.source.postgres.silence import answered_within, cut, silence_limit

# A backend that is gone, or that has answered and heard nothing since.
_WAITS = """
SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %s AND (
       state = 'active' OR state IS NULL
       OR clock_timestamp() - state_change < make_interval(secs => %s)))
"""


class CommitWatch:
    """Cuts a commit's connection whose answer was lost on the way, where TCP cannot tell.

    A commit may take as long as it takes. So after the limit on silence the server is asked, on
    another connection, whether it works on it. Runs in a thread of its own from the first commit
    on.
    """

    def __init__(self, url: ConnectionUrl, pipeline: str) -> None:
        self._url = url
        self._application = session_name(pipeline, "watch")
        self._limit = silence_limit(url)
        self._under_way: tuple[Connection, int, float] | None = None
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def over(self, conn: Connection, backend: int) -> Iterator[None]:
        """For as long as the block, ``conn`` commits something, and ``backend`` serves it."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="penstock-commits", daemon=True)
            self._thread.start()
        self._under_way = (conn, backend, time.monotonic())
        try:
            yield
        finally:
            self._under_way = None

    def close(self) -> None:
        self._ending.set()

    def _run(self) -> None:
        while not self._ending.wait(self._limit / 4):
            under_way = self._under_way
            if under_way is None:
                continue
            conn, backend, began = under_way
            if time.monotonic() - began < self._limit:
                continue
            # A server that is away, or has no connection left, is no reason to give up what it may
            # be at.
            with suppress(DestinationError, psycopg.Error):
                if self._waits_for_us(backend) and self._under_way is under_way:
                    cut(conn)

    def _waits_for_us(self, backend: int) -> bool:
        with (
            closing(
                connect(self._url, application_name=self._application, party=DESTINATION)
            ) as own,
            answered_within(own, self._limit),
        ):
            return own.execute(_WAITS, [backend, self._limit]).fetchone() == (True,)
