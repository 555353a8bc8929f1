"""A warehouse as its driver speaks to it: statements, transactions, and nothing that names one."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from penstock.model.errors import refused_alone


class WarehouseSession(ABC):
    """One connection, which is made when it is first needed; threads take turns.

    ``run`` and ``rows`` raise DestinationUnavailable where another try may succeed, BatchAgain
    where another writer was faster, else DestinationError.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.transactions = 0
        """How many were begun: the number of the one that is under way."""
        self.in_transaction = False
        self._undone: list[Callable[[], None]] = []

    @abstractmethod
    def run(self, statement: str) -> int:
        """Execute one statement; how many rows it touched, where it says so."""

    def expect(self, statement: str, count: int, otherwise: Callable[[int], Exception]) -> None:
        """Execute a statement that touches so many rows; else raise what ``otherwise`` makes of the
        number of those that it touched.
        """
        if (found := self.run(statement)) != count:
            raise otherwise(found)

    def alone(self, table: int) -> AbstractContextManager[None]:
        """What the warehouse refuses of the statements inside is refused of this table."""
        return refused_alone(table)

    def using(self, relation: str, file: str) -> None:  # noqa: B027 (most need nothing)
        """A relation is a file of the stage, for those that name files beside the statement."""

    @abstractmethod
    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What a query returns."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the connection; the next statement makes a new one."""

    def on_rollback(self, call: Callable[[], None]) -> None:
        """Have something called whenever a transaction was not committed."""
        self._undone.append(call)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; inside of another one, a part of that."""
        with self.lock:
            if self.in_transaction:
                yield
                return
            self.begin()
            try:
                yield
                self.commit()
            except BaseException:
                self._give_up()
                raise
            finally:
                self.in_transaction = False

    @contextmanager
    def outside(self) -> Iterator[None]:
        """For statements that would commit: what stands before them is committed, and what follows
        is another transaction.
        """
        with self.lock:
            if not self.in_transaction:
                yield
                return
            self.commit()
            self.in_transaction = False
            yield
            self.begin()

    def begin(self) -> None:
        self.run("BEGIN")
        self.transactions += 1
        self.in_transaction = True

    def commit(self) -> None:
        self.run("COMMIT")

    def rollback(self) -> None:
        self.run("ROLLBACK")

    def _give_up(self) -> None:
        for call in self._undone:
            call()
        try:
            self.rollback()
        except Exception:
            # Whoever holds the other end rolls back what is not committed.
            with suppress(Exception):
                self.close()


def one_each(statements: Sequence[str], session: WarehouseSession) -> None:
    """Execute them one after the other."""
    for statement in statements:
        session.run(statement)
