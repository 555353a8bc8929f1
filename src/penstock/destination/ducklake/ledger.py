"""What a pipeline keeps in the lake beside its tables: one table of notes, and the fence."""

# ruff: noqa: S608 (names are quoted, values are bound)

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.destination.ducklake.lake import Lake, NoLakeError
from penstock.destination.ducklake.names import quoted
from penstock.destination.families.ledger import Ledger, fenced, once_alone

if TYPE_CHECKING:
    import duckdb

SCHEMA = "penstock"
_DRIVER = "driver"
# So many rows stay in the catalogue, where a change of them needs no file.
_INLINED = 100_000


class LakeLedger(Ledger):
    """A table of the lake's own schema, named after the pipeline: changes of one table by two
    transactions conflict, and pipelines must not get in each other's way.

    The driver's number is a note. Every transaction that writes puts it down anew, so one that
    began before another driver took over cannot be committed after that.
    """

    def __init__(self, lake: Lake, pipeline: str) -> None:
        self._lake = lake
        self._pipeline = pipeline
        self._table = f"{SCHEMA}.{quoted(pipeline)}"
        self._is_there = False

    def take_over(self) -> int:
        return once_alone(self._take_over)

    def _take_over(self) -> int:
        self._make_table()
        with self._lake.transaction() as session:
            driver = self._driver(session) + 1
            self._put(session, {_DRIVER: str(driver)})
            return driver

    def _make_table(self) -> None:
        with self._lake.session() as session:
            if self._exists(session):
                return
        with self._lake.transaction() as session:
            session.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
            session.execute(f"CREATE TABLE {self._table} (name VARCHAR, note VARCHAR)")
        # Not of a table that its own transaction makes. Without it there are more files.
        with self._lake.session() as session:
            session.execute(
                f"CALL ducklake_set_option(?, 'data_inlining_row_limit', {_INLINED},"
                " schema => ?, table_name => ?)",
                [self._lake.name, SCHEMA, self._pipeline],
            )

    def read(self, prefix: str = "") -> dict[str, str]:
        try:
            with self._lake.session() as session:
                if not self._exists(session):
                    return {}
                found = session.execute(
                    f"SELECT name, note FROM {self._table} WHERE starts_with(name, ?)"
                    " AND name <> ?",
                    [prefix, _DRIVER],
                )
                return dict(found.fetchall())
        except NoLakeError:
            return {}

    def write(self, driver: int, notes: Mapping[str, str | None]) -> None:
        with self._lake.transaction() as session:
            if self._driver(session) != driver:
                raise fenced("ducklake", self._pipeline)
            if notes:
                self._put(session, {**notes, _DRIVER: str(driver)})

    def is_current(self, driver: int) -> bool:
        """Whether no other driver took over since."""
        with self._lake.session() as session:
            return self._driver(session) == driver

    def forget(self) -> bool:
        try:
            with self._lake.transaction() as session:
                if not self._exists(session):
                    return False
                session.execute(f"DROP TABLE {self._table}")
                self._is_there = False
                return True
        except NoLakeError:
            return False

    def _exists(self, session: duckdb.DuckDBPyConnection) -> bool:
        if self._is_there:
            return True
        found = session.execute(
            "SELECT 1 FROM duckdb_tables() WHERE database_name = ? AND schema_name = ?"
            " AND table_name = ?",
            [self._lake.name, SCHEMA, self._pipeline],
        )
        self._is_there = found.fetchone() is not None
        return self._is_there

    def _driver(self, session: duckdb.DuckDBPyConnection) -> int:
        if not self._exists(session):
            return 0
        row = session.execute(
            f"SELECT note FROM {self._table} WHERE name = ?", [_DRIVER]
        ).fetchone()
        return 0 if row is None else int(row[0])

    def _put(self, session: duckdb.DuckDBPyConnection, notes: Mapping[str, str | None]) -> None:
        rows = pa.table(
            {
                "name": pa.array(list(notes), pa.string()),
                "note": pa.array(list(notes.values()), pa.string()),
            }
        )
        session.register("penstock_notes", rows)
        session.execute(
            f"DELETE FROM {self._table} WHERE name IN (SELECT name FROM penstock_notes)"
        )
        session.execute(
            f"INSERT INTO {self._table} SELECT * FROM penstock_notes WHERE note IS NOT NULL"
        )
        session.unregister("penstock_notes")
