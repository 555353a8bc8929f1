"""What is copied: one large table, very many small ones, or a whole database. All of it is there
before anybody reads.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import sql

from bench.settings import WHOLE
from bench.workloads import COLUMNS, ROW, Connection

_ROWS_A_TRANSACTION = 100_000
_ROWS_OF_A_SMALL_TABLE = 50
_TABLES_OF_A_DATABASE = 6
# Some 5 GB with their indexes.
_ROWS_OF_A_DATABASE = 12_000_000
# Beside the keys, of every table; and what the database has once.
_INDEXES = (
    "CREATE INDEX {name}_quantity ON {name} (quantity)",
    "CREATE INDEX {name}_note ON {name} (note)",
)
_OTHERS = (
    "ALTER TABLE item_1 ADD CONSTRAINT follows FOREIGN KEY (id) REFERENCES item_0",
    "CREATE VIEW dear AS SELECT * FROM item_0 WHERE price > 9000",
    "CREATE FUNCTION twice(n integer) RETURNS integer LANGUAGE sql RETURN n * 2",
    "CREATE SEQUENCE tickets START 17",
)


@dataclass(frozen=True)
class CopyWorkload:
    """Tables ``item`` or ``item_0``, ``item_1``, …, each with as many rows."""

    name: str
    tables: int
    rows_a_table: int

    @property
    def rows(self) -> int:
        return self.tables * self.rows_a_table

    @property
    def table_names(self) -> list[str]:
        return ["item"] if self.tables == 1 else [f"item_{n}" for n in range(self.tables)]

    @property
    def is_whole(self) -> bool:
        """Whether indexes, constraints and all other objects are copied, too."""
        return self.name == WHOLE

    def create(self, conn: Connection) -> None:
        for name in self.table_names:
            conn.execute(sql.SQL("CREATE TABLE {} ({})").format(sql.Identifier(name), COLUMNS))

    def fill(self, conn: Connection) -> None:
        # The server keeps fsync on; only this session does not wait for it.
        conn.execute("SET synchronous_commit = off")
        insert = sql.SQL("INSERT INTO {} SELECT {} FROM generate_series({}::bigint, {}) i")
        for name in self.table_names:
            for first in range(1, self.rows_a_table + 1, _ROWS_A_TRANSACTION):
                last = min(first + _ROWS_A_TRANSACTION - 1, self.rows_a_table)
                conn.execute(insert.format(sql.Identifier(name), ROW, first, last))
        if self.is_whole:
            indexes = [text.format(name=name) for name in self.table_names for text in _INDEXES]
            for statement in (*indexes, *_OTHERS):
                conn.execute(statement.encode())


def copy_workload(name: str, scale: float) -> CopyWorkload:
    """``copy``: 5M rows in one table; ``copy_small``: 1,000 tables with 50 rows each; ``whole``: a
    database of 12M rows in six tables, with indexes and all.
    """
    if name == WHOLE:
        rows = max(1000, round(_ROWS_OF_A_DATABASE * scale / _TABLES_OF_A_DATABASE))
        return CopyWorkload(name, _TABLES_OF_A_DATABASE, rows)
    if name == "copy":
        return CopyWorkload(name, 1, max(1000, round(5_000_000 * scale)))
    return CopyWorkload(name, max(10, round(1000 * scale)), _ROWS_OF_A_SMALL_TABLE)
