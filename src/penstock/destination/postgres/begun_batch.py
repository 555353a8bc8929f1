"""A batch whose first rows are at their targets, in a transaction that is still open.

Tasks hand rows over piece by piece (staging/handover.py). The driver need not wait for the last
piece: what only adds rows it copies at once, on a session of its own, and the commit brings the
rest and the position. Until then nobody sees any of it, and it can be undone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import psycopg
from psycopg.pq import TransactionStatus

from penstock.destination.contract import Receipt
from penstock.destination.postgres.merging.batch_merge import copy_handed
from penstock.destination.postgres.merging.table_merge import Odd
from penstock.destination.postgres.sessions.session import Connection
from penstock.destination.postgres.staging.receipt import StagedBatch
from penstock.destination.postgres.staging.stage import Stage
from penstock.model.errors import PenstockError
from penstock.source.postgres.silence import has_rested

_log = logging.getLogger(__name__)


class BegunBatch:
    """Belongs to the thread that commits. What goes wrong undoes it: the batch is then committed
    as if nothing of it had been taken, and tells by itself what is wrong.
    """

    def __init__(
        self, connect: Callable[[], Connection], check: Callable[[Connection], None]
    ) -> None:
        """``check`` raises where another driver has taken over."""
        self._connect = connect
        self._check = check
        self._conn: Connection | None = None
        self._taken: list[Receipt] = []
        self._runs = 0
        self._is_full = False
        self.tasks = 0
        """How many tasks wrote the largest of the pieces."""

    def take(
        self, receipts: Sequence[Receipt], piece: StagedBatch, stages: Mapping[int, Stage]
    ) -> None:
        """Copy a piece's rows to their targets, unless there are others than rows to add in this
        one, or were in one before. ``piece`` is what the receipts say.
        """
        self.tasks = max(self.tasks, len(receipts))
        is_added = all(part.handed is not None for part in piece.all_parts)
        if self._is_full or piece.truncates or not is_added:
            self._is_full = True
            return
        try:
            conn = self._begin() if self._conn is None or not self._taken else self._conn
            self._taken += receipts
            self._runs += len(piece.runs)
            copy_handed(conn, [(stages[part.table], part) for part in piece.all_parts])
        except (Odd, psycopg.Error, PenstockError) as error:
            _log.debug("a piece of a batch is not taken ahead: %s", error)
            self.undo()
            self._is_full = True

    def rest(
        self, receipts: Sequence[Receipt], batch: StagedBatch
    ) -> tuple[Connection, StagedBatch] | None:
        """What is left to do of a batch, and on which session, in the transaction that is open
        there; None where nothing of it was taken. What was taken of another one is undone.
        """
        count = len(self._taken)
        if not count or self._conn is None or [*receipts[:count]] != self._taken:
            self.undo()
            return None
        return self._conn, replace(batch, runs=batch.runs[self._runs :])

    def commit(self) -> None:
        """End the transaction of ``rest``. Raises psycopg's error."""
        if self._conn is not None:
            self._conn.execute("COMMIT")

    def undo(self) -> None:
        """Nothing of a batch is taken; the next one begins."""
        self._taken, self._runs, self._is_full, self.tasks = [], 0, False, 0
        conn = self._conn
        if conn is not None and conn.info.transaction_status != TransactionStatus.IDLE:
            try:
                conn.execute("ROLLBACK")
            except psycopg.Error:
                self.close()

    def close(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            with suppress(psycopg.Error):
                conn.close()

    def _begin(self) -> Connection:
        if self._conn is not None and not self._conn.closed and has_rested(self._conn):
            self._conn.close()
        if self._conn is None or self._conn.closed:
            self._conn = self._connect()
        # Whoever takes over after this ends the session; before it, nobody would.
        self._check(self._conn)
        self._conn.execute("BEGIN")
        self._conn.execute("SET CONSTRAINTS ALL DEFERRED")
        return self._conn
