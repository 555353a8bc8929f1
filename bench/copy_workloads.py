"""What is copied: one large table, or very many small ones. Both are there before anybody reads."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import sql

from bench.workloads import COLUMNS, ROW, Connection

_ROWS_A_TRANSACTION = 100_000
_ROWS_OF_A_SMALL_TABLE = 50


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


def copy_workload(name: str, scale: float) -> CopyWorkload:
    """``copy``: 5M rows in one table; ``copy_small``: 1,000 tables with 50 rows each."""
    if name == "copy":
        return CopyWorkload(name, 1, max(1000, round(5_000_000 * scale)))
    return CopyWorkload(name, max(10, round(1000 * scale)), _ROWS_OF_A_SMALL_TABLE)
