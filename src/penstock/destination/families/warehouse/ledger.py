"""What a pipeline keeps in a warehouse beside its tables: one table of notes, and the fence."""

# ruff: noqa: S608 (names and values are quoted by the dialect)

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.destination.families.ledger import Ledger, fenced, once_alone
from penstock.destination.families.warehouse.dialect import Dialect
from penstock.destination.families.warehouse.session import WarehouseSession
from penstock.model.errors import BatchAgain

SCHEMA = "penstock"
DRIVER = "driver"
"""The note with the number of the driver that may write."""
# Of a note, in a row: in the worst case so many characters of four bytes are what a text holds.
_PIECE = 16_000
# How many notes one statement names: statements have an end, too.
_AT_ONCE = 200


class WarehouseLedger(Ledger):
    """A table named after the pipeline: pipelines do not get in each other's way.

    Long notes lie in pieces. What the driver wrote it knows: once it has taken over, nothing is
    read again, so looking something up wakes no warehouse. Where a transaction was not committed,
    or its answer was lost, it is read anew, and again behind the next fence: until then the server
    may still have been about to commit it.
    """

    def __init__(self, session: WarehouseSession, dialect: Dialect, pipeline: str) -> None:
        self._session = session
        self._dialect = dialect
        self._pipeline = pipeline
        self.table = f"{dialect.quoted(SCHEMA)}.{dialect.quoted(pipeline)}"
        self._known: dict[str, str] | None = None
        self._is_driver = False
        self._fenced_in = 0
        self._is_doubtful = False
        session.on_rollback(self._forget_known)

    def take_over(self) -> int:
        return once_alone(self._take_over)

    def _take_over(self) -> int:
        dialect = self._dialect
        self._forget_known()
        if not self._is_there():
            self._session.run(dialect.create_schema(SCHEMA))
            text, number = dialect.sql_type("text"), dialect.sql_type("int4")
            self._session.run(
                f"CREATE TABLE IF NOT EXISTS {self.table}"
                f" (name {text}, piece {number}, note {text})"
            )
        with self._session.transaction():
            for statement in dialect.fence(self.table):
                self._session.run(statement)
            # It is written to before it is read: of two drivers one waits here, and reads the
            # number of the other. What is not there keeps nobody waiting.
            is_counted = self._session.run(self._touch()) > 0
            driver = self._driver() + 1 if is_counted else 0
            if is_counted:
                self._put({DRIVER: str(driver)})
            else:
                self._session.run(self._insert([self._row(DRIVER, 0, str(driver))]))
        if not is_counted:
            raise BatchAgain(f"no driver of pipeline {self._pipeline} was counted yet")
        self._known, self._is_driver, self._is_doubtful = self._all(), True, False
        return driver

    def read(self, prefix: str = "") -> dict[str, str]:
        with self._session.lock:
            known = self._known
            if known is None:
                known = self._all() if self._is_driver or self._is_there() else {}
                if self._is_driver:
                    self._known = known
        return {
            name: note for name, note in known.items() if name.startswith(prefix) and name != DRIVER
        }

    def write(self, driver: int, notes: Mapping[str, str | None]) -> None:
        with self._session.transaction():
            if self._fenced_in != self._session.transactions:
                self._fence(driver)
            if notes:
                self._put(notes)

    def is_current(self, driver: int) -> bool:
        """Whether no other driver took over since."""
        return self._driver() == driver

    def forget(self) -> bool:
        if not self._is_there():
            return False
        self._session.run(self._dialect.drop_table(self.table))
        self._forget_known()
        return True

    def _forget_known(self) -> None:
        self._known, self._fenced_in, self._is_doubtful = None, 0, True

    def _fence(self, driver: int) -> None:
        """Touch the driver's number: who takes over meanwhile waits, or one of both fails."""
        for statement in self._dialect.fence(self.table):
            self._session.run(statement)
        own = f" AND note = {self._dialect.literal(str(driver))}"
        self._session.expect(
            self._touch() + own, 1, lambda found: fenced(self._dialect.name, self._pipeline)
        )
        self._fenced_in = self._session.transactions
        if self._is_doubtful:
            self._known, self._is_doubtful = None, False

    def _touch(self) -> str:
        return f"UPDATE {self.table} SET piece = 0 WHERE name = {self._dialect.literal(DRIVER)}"

    def _is_there(self) -> bool:
        return bool(self._session.rows(self._dialect.table_query(SCHEMA, self._pipeline)))

    def _driver(self) -> int:
        found = self._session.rows(
            f"SELECT note FROM {self.table} WHERE name = {self._dialect.literal(DRIVER)}"
        )
        return max((int(note) for (note,) in found), default=0)

    def _all(self) -> dict[str, str]:
        found: dict[str, list[str]] = {}
        for name, note in self._session.rows(
            f"SELECT name, note FROM {self.table} ORDER BY name, piece"
        ):
            found.setdefault(name, []).append(note or "")
        return {name: "".join(pieces) for name, pieces in found.items()}

    def _put(self, notes: Mapping[str, str | None]) -> None:
        literal = self._dialect.literal
        for some in _batches(list(notes)):
            names = ", ".join(map(literal, some))
            self._session.run(f"DELETE FROM {self.table} WHERE name IN ({names})")
        rows = [
            self._row(name, number, piece)
            for name, note in notes.items()
            if note is not None
            for number, piece in enumerate(pieces(note))
        ]
        for some in _batches(rows):
            self._session.run(self._insert(some))
        self._remember(notes)

    def _remember(self, notes: Mapping[str, str | None]) -> None:
        if self._known is not None:
            left = {name: note for name, note in self._known.items() if name not in notes}
            put = {name: note for name, note in notes.items() if note is not None}
            self._known = left | put

    def _row(self, name: str, piece: int, note: str) -> str:
        return f"({self._dialect.literal(name)}, {piece}, {self._dialect.literal(note)})"

    def _insert(self, rows: list[str]) -> str:
        return f"INSERT INTO {self.table} (name, piece, note) VALUES {', '.join(rows)}"


def _batches(items: list[str]) -> Iterable[list[str]]:
    return (items[at : at + _AT_ONCE] for at in range(0, len(items), _AT_ONCE))


def pieces(note: str) -> list[str]:
    """A note as its rows hold it."""
    return [note[at : at + _PIECE] for at in range(0, len(note), _PIECE)] or [""]
