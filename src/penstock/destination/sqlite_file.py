"""A SQLite file as the place of a reference member: driver and executors see the same one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from penstock.destination.families.ledger import Ledger, fenced

_TABLES = """
CREATE TABLE IF NOT EXISTS ledger (pipeline, name, note, PRIMARY KEY (pipeline, name));
CREATE TABLE IF NOT EXISTS driver (pipeline PRIMARY KEY, number INTEGER);
"""


def connect(path: Path, tables: str = "") -> sqlite3.Connection:
    """A connection whose transactions begin when they are told to; makes what is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Several threads of the driver share one, under a lock.
    conn = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
    conn.execute("PRAGMA journal_mode = WAL")
    # A reference outlives processes. Nobody asks it to outlive the machine.
    conn.execute("PRAGMA synchronous = OFF")
    conn.executescript(_TABLES + tables)
    return conn


@contextmanager
def transaction(conn: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """All or nothing; inside of another one, a part of that."""
    if conn.in_transaction:
        yield conn
        return
    conn.execute("BEGIN IMMEDIATE")
    try:
        yield conn
    except BaseException:
        conn.rollback()
        raise
    conn.commit()


class SqliteLedger(Ledger):
    """Two tables beside the data."""

    def __init__(self, conn: sqlite3.Connection, destination: str, pipeline: str) -> None:
        self._conn = conn
        self._destination = destination
        self._pipeline = pipeline

    def take_over(self) -> int:
        found = self._conn.execute(
            "INSERT INTO driver VALUES (?, 1) ON CONFLICT DO UPDATE SET number = number + 1"
            " RETURNING number",
            [self._pipeline],
        )
        return int(found.fetchone()[0])

    def read(self, prefix: str = "") -> dict[str, str]:
        return dict(
            self._conn.execute(
                "SELECT name, note FROM ledger WHERE pipeline = ? AND substr(name, 1, ?) = ?",
                [self._pipeline, len(prefix), prefix],
            ).fetchall()
        )

    def write(self, driver: int, notes: Mapping[str, str | None]) -> None:
        with transaction(self._conn) as conn:
            found = conn.execute("SELECT number FROM driver WHERE pipeline = ?", [self._pipeline])
            if found.fetchone() != (driver,):
                raise fenced(self._destination, self._pipeline)
            for name, note in notes.items():
                if note is None:
                    conn.execute(
                        "DELETE FROM ledger WHERE pipeline = ? AND name = ?", [self._pipeline, name]
                    )
                else:
                    conn.execute(
                        "INSERT OR REPLACE INTO ledger VALUES (?, ?, ?)",
                        [self._pipeline, name, note],
                    )

    def forget(self) -> bool:
        with transaction(self._conn) as conn:
            conn.execute("DELETE FROM driver WHERE pipeline = ?", [self._pipeline])
            found = conn.execute("DELETE FROM ledger WHERE pipeline = ?", [self._pipeline])
            return found.rowcount > 0
