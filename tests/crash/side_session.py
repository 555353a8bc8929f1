"""A session that changes the source beside the load, from ``start`` to ``stop``."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Any

import psycopg

Connection = psycopg.Connection[tuple[Any, ...]]


class SideSession(ABC):
    """One transaction after another with a ``pause`` between them, over every loss of the server.
    ``changes`` counts those that were committed.
    """

    changes = 0

    def __init__(self, url: str, *, pause: float) -> None:
        self._url = url
        self._pause = pause
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    @abstractmethod
    def transaction(self, conn: Connection) -> None:
        """One, with its commit. Raises where the connection is lost."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Also where it was never started."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self.check()

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    with psycopg.connect(self._url, connect_timeout=5) as conn:
                        while not self._stop.wait(self._pause):
                            self.transaction(conn)
                except (psycopg.OperationalError, psycopg.InterfaceError):
                    self._stop.wait(0.2)
        except BaseException as error:
            self._failure = error
