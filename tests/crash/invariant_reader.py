"""Somebody who reads the destination all the time, and whom it must never tell half the story."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

import psycopg

from tests.workload_tables import BALANCES

_PAUSE_SECONDS = 0.02
_KEPT = 20


class InvariantReader:
    """Polls the balances in one statement, over every loss of the server, while the block lasts.

    Every transaction of the load keeps their sum at zero, so any other sum is a part of one.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="invariant reader", daemon=True)
        self._states: set[int] = set()
        self.judging = True
        """False while it may see anything: before the tables have been copied."""
        self.polls = 0
        self.broken: list[str] = []

    @property
    def states(self) -> int:
        """How many different states were seen."""
        return len(self._states)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def check(self, least_states: int = 0) -> None:
        """Fail if a broken sum was seen, or fewer states than that: then it proves nothing."""
        if self._failure is not None:
            raise self._failure
        assert not self.broken, "half a transaction was visible:\n" + "\n".join(self.broken)
        assert self.states >= least_states, (
            f"the reader saw {self.states} states in {self.polls} polls: too few to tell anything"
        )

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    with psycopg.connect(self._url, autocommit=True, connect_timeout=5) as conn:
                        while not self._stop.wait(_PAUSE_SECONDS):
                            self._poll(conn)
                except (psycopg.OperationalError, psycopg.InterfaceError):
                    # The server is away, or a TRUNCATE and this reader waited for each other.
                    self._stop.wait(0.05)
        except BaseException as error:
            self._failure = error

    def _poll(self, conn: psycopg.Connection[tuple[int, int]]) -> None:
        if not self.judging:
            return
        try:
            row = conn.execute(BALANCES).fetchone()
        except psycopg.errors.UndefinedTable:
            return  # before the pipeline's first start
        assert row is not None
        left, right = row
        self.polls += 1
        self._states.add(left)
        if left + right and len(self.broken) < _KEPT:
            self.broken.append(f"poll {self.polls} at {time.time():.3f}: {left} and {right}")
