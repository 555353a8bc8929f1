"""The clients of the demo's shop: one thread that keeps the source busy."""

from __future__ import annotations

import threading
import time

import psycopg

from penstock.demo.shop_traffic import ShopTraffic, Transaction
from penstock.model.errors import SourceError

QUIET_RATE, BUSY_RATE = 100, 300
"""Transactions a second."""

# Pacing looks this far back at most: after a stall it does not make up for it in one burst.
_LONGEST_DEBT_SECONDS = 0.5


class ShopLoad:
    """Runs the shop's traffic against the source, from ``start`` until ``stop``.

    Quiet at first: what is copied meanwhile has to change, and the processors are few.
    """

    def __init__(self, url: str, traffic: ShopTraffic) -> None:
        self._url = url
        self._traffic = traffic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shop load", daemon=True)
        self._failure: Exception | None = None
        self._rate = QUIET_RATE
        self.transactions = 0
        """How many were committed so far."""

    def start(self) -> None:
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def be_busy(self) -> None:
        self._rate = BUSY_RATE

    def check(self) -> None:
        """Raise SourceError if the load has failed."""
        if self._failure is not None:
            raise SourceError(
                f"The demo's load failed after {self.transactions} transactions: {self._failure}",
                remedy="The source is the demo's own: this is a bug in the demo unless its server "
                "was stopped or its disk is full.",
            ) from self._failure

    def stop(self) -> None:
        """Let the transaction under way end, then no further one."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            with psycopg.connect(self._url, autocommit=True, application_name="shop") as conn:
                self._keep_busy(conn)
        except Exception as error:
            self._failure = error

    def _keep_busy(self, conn: psycopg.Connection) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            self._execute(conn, self._traffic.next())
            now = time.monotonic()
            due = max(due + 1 / self._rate, now - _LONGEST_DEBT_SECONDS)
            if due > now:
                self._stop.wait(due - now)

    def _execute(self, conn: psycopg.Connection, transaction: Transaction) -> None:
        # One round trip a transaction: the clients must leave the processor to the pipeline.
        with conn.pipeline():
            conn.execute("BEGIN")
            for statement in transaction.statements:
                conn.execute(statement.text, statement.values)
            conn.execute("ROLLBACK" if transaction.rolled_back else "COMMIT")
        self.transactions += not transaction.rolled_back
