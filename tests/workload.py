"""A seeded random load of everything that a log must carry, and a record of what it committed."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import psycopg

from tests.workload_steps import STEPS, Step, emit_loose
from tests.workload_tables import Connection

MARK = "workload"
"""The prefix of the message that every transaction emits; its content names the transaction."""

# A violated constraint, a deadlock, and TRUNCATE of a table with a deferred constraint to check.
_REFUSED = ("23", "40", "55006")
# Lost connections are seen as these; deadlocks and violated keys are sorted out before.
_CONNECTION_LOST = (psycopg.OperationalError, psycopg.InterfaceError)


@dataclass
class Record:
    """Transactions by their mark, with the number of changes of each, its message included.

    One is in doubt if the connection was lost before the server answered to its COMMIT.
    """

    committed: dict[str, int] = field(default_factory=dict)
    in_doubt: dict[str, int] = field(default_factory=dict)


class Session:
    """One connection's share of the load: transactions one after another."""

    def __init__(
        self, number: int, seed: int, record: Record, steps: Mapping[Step, float] = STEPS
    ) -> None:
        self._number = number
        self._random = random.Random(f"{seed}/{number}")
        self._record = record
        self._count = 0
        self._steps = steps
        # Each kind once, so that a short load has all of them; then by chance.
        self._first = list(steps)
        self._random.shuffle(self._first)

    def transaction(self, conn: Connection) -> None:
        """Run one; what the server refuses (a deadlock, a key that is taken) is rolled back.

        Raises where the connection is lost.
        """
        self._count += 1
        mark = f"{self._number}:{self._count}"
        chance = self._random
        steps = [self._step() for _ in range(chance.choice((1, 1, 2, 3, 6)))]
        rolls_back = chance.random() < 0.1
        loose_last = chance.random() < 0.1
        try:
            # First, since psycopg's savepoints are transactions where none is open yet.
            conn.execute("SELECT pg_logical_emit_message(true, %s, %s)", [MARK, mark])
            changes = sum(self._with_savepoints(step, conn) for step in steps)
            if loose_last:
                # Right before the commit record, or before the abort, which it outlives.
                emit_loose(conn, chance)
            if rolls_back:
                conn.rollback()
                return
            self._record.in_doubt[mark] = changes + 1
            conn.commit()
        except psycopg.Error as error:
            if error.sqlstate is None or not error.sqlstate.startswith(_REFUSED):
                raise
            conn.rollback()
            self._record.in_doubt.pop(mark, None)
        else:
            self._record.committed[mark] = self._record.in_doubt.pop(mark)

    def _step(self) -> Step:
        if self._first:
            return self._first.pop()
        return self._random.choices(list(self._steps), list(self._steps.values()))[0]

    def _with_savepoints(self, step: Step, conn: Connection) -> int:
        chance = self._random
        draw = chance.random()
        if draw < 0.1:
            with conn.transaction(force_rollback=True):
                step(conn, chance)
            return 0
        if draw < 0.3:
            with conn.transaction():
                return step(conn, chance)
        return step(conn, chance)


class Workload:
    """Sessions in threads of their own, from ``start`` to ``stop``, over every loss of the server.

    ``pause`` is the time between two transactions of a session: it bounds how much there is to
    compare in the end. ``steps`` are the kinds of steps with their weights.
    """

    def __init__(
        self,
        url: str,
        seed: int,
        *,
        sessions: int = 2,
        pause: float = 0.05,
        steps: Mapping[Step, float] = STEPS,
    ) -> None:
        self._url = url
        self._pause = pause
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self.records = [Record() for _ in range(sessions)]
        # Each is held while its session is at a transaction.
        self._turns = [threading.Lock() for _ in range(sessions)]
        self._threads = [
            threading.Thread(
                target=self._run, args=(Session(number, seed, record, steps), turn), daemon=True
            )
            for number, (record, turn) in enumerate(zip(self.records, self._turns, strict=True))
        ]

    @property
    def committed(self) -> dict[str, int]:
        """What the server has confirmed so far."""
        return {mark: n for record in self.records for mark, n in dict(record.committed).items()}

    @property
    def in_doubt(self) -> dict[str, int]:
        return {mark: n for record in self.records for mark, n in dict(record.in_doubt).items()}

    @property
    def count(self) -> int:
        """How many transactions were committed so far."""
        self.check()
        return sum(len(record.committed) for record in self.records)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the load, and raise what made it fail."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self.check()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside of the block no transaction is under way, and none begins."""
        with ExitStack() as stack:
            for turn in self._turns:
                stack.enter_context(turn)
            yield

    def check(self) -> None:
        """Raise what made the load fail."""
        if self._failure is not None:
            raise self._failure

    def _run(self, session: Session, turn: threading.Lock) -> None:
        try:
            while not self._stop.is_set():
                try:
                    with psycopg.connect(self._url, connect_timeout=5) as conn:
                        while not self._stop.wait(self._pause):
                            with turn:
                                session.transaction(conn)
                except _CONNECTION_LOST as error:
                    if error.sqlstate is not None and error.sqlstate[:2] not in ("57", "08"):
                        raise
                    self._stop.wait(0.05)
        except BaseException as error:
            self._failure = error


def run_transactions(url: str, seed: int, count: int) -> Record:
    """A load of one session and ``count`` transactions, done when this returns."""
    record = Record()
    session = Session(0, seed, record)
    with psycopg.connect(url) as conn:
        for _ in range(count):
            session.transaction(conn)
    return record
