"""``memory-tables``: the reference member of the staged merge family, for tests and as an example.

Its tables live in a SQLite file, all columns as Postgres texts. What it does to them with SQL is
what a warehouse's member does, in one transaction for all tables and the position.
"""

# ruff: noqa: S608 (statements are made of numbered names)

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.destination.contract import Capabilities, DestinationOptions
from penstock.destination.families.kept_tables import Key
from penstock.destination.families.staged_merge.destination import StagedMergeDestination
from penstock.destination.families.staged_merge.joined_rows import MergedRows
from penstock.destination.families.staged_merge.receipt import Mark
from penstock.destination.families.staged_merge.stage import FolderStage
from penstock.destination.families.staged_merge.task_writer import PARK
from penstock.destination.families.target import Target
from penstock.destination.sqlite_file import SqliteLedger, connect, transaction
from penstock.model.array_text import first_element
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import TableDefinition
from penstock.transform.net_rows import DELETE, INSERT

Row = dict[str, str | None]


class MemoryTablesOptions(DestinationOptions):
    """``path`` is a folder that the driver and all executors see."""

    path: Path


class MemoryTablesDestination(StagedMergeDestination):
    """Keeps the current rows of every table; ``read_rows`` reads them."""

    name = "memory-tables"
    options_model = MemoryTablesOptions
    capabilities = Capabilities(
        mode="merge", exactly_once=True, remembers=True, atomic=True, batch_age=0.1
    )

    @cached_property
    def _conn(self) -> sqlite3.Connection:
        return connect(self.options.path / "tables.sqlite")

    @cached_property
    def stage(self) -> FolderStage:
        return FolderStage(str(self.options.path / "stage" / self.pipeline))

    @cached_property
    def ledger(self) -> SqliteLedger:
        return SqliteLedger(self._conn, self.name, self.pipeline)

    def transaction(self) -> AbstractContextManager[object]:
        return transaction(self._conn)

    def close(self) -> None:
        super().close()
        self._conn.close()

    # Tables and columns are numbered: SQLite takes names that differ in case for the same.

    def create(self, table: TableDefinition, target: Target) -> None:
        # A table without columns has rows, too.
        columns = ", ".join(["rowid INTEGER PRIMARY KEY", *_names(target)])
        self._conn.execute(f"CREATE TABLE {_table(target)} ({columns})")
        if target.key:
            key = ", ".join(f"c{index}" for index in target.key)
            self._conn.execute(
                f"CREATE UNIQUE INDEX {_table(target)}_key ON {_table(target)} ({key})"
            )

    def drop(self, target: Target) -> None:
        self._conn.execute(f"DROP TABLE IF EXISTS {_table(target)}")

    def alter(self, change: TableChange, before: Target, after: Target) -> None:
        values = {}
        for old, new in change.columns:
            if new is not None and old is not None and old.name in before.columns:
                values[new.name] = f"c{before.columns.index(old.name)}"
            elif new is not None and (text := first_element(new.missing)) is not None:
                values[new.name] = "'" + text.replace("'", "''") + "'"
        picked = ", ".join(["rowid", *(values.get(name, "NULL") for name in after.columns)])
        self._conn.execute(f"CREATE TEMP TABLE kept AS SELECT {picked} FROM {_table(before)}")
        self.drop(before)
        assert change.after is not None  # noqa: S101 (it is there, or there is no target after it)
        self.create(change.after, after)
        self._conn.execute(f"INSERT INTO {_table(after)} SELECT * FROM kept")
        self._conn.execute("DROP TABLE kept")

    def empty(self, target: Target) -> None:
        self._conn.execute(f"DELETE FROM {_table(target)}")

    def load(self, target: Target, rows: pa.Table, *, over: bool) -> None:
        verb = "INSERT OR REPLACE" if over else "INSERT"
        columns = [rows.column(name).to_pylist() for name in _names(target)]
        self._insert(verb, target, zip(*columns, strict=True) if columns else [()] * rows.num_rows)

    def apply(self, rows: MergedRows, at: Mark) -> Sequence[Key]:
        if rows.emptied:
            self.empty(rows.target)
        if rows.kind == "counted":
            self._apply_counted(rows)
        elif rows.is_all_inserts:
            self._insert("INSERT", rows.target, zip(*map(_texts, rows.columns), strict=True))
        else:
            return self._merge(rows)
        return ()

    def _merge(self, rows: MergedRows) -> list[Key]:
        target = rows.target
        before = list(zip(*map(_texts, rows.before), strict=True))
        after = list(zip(*map(_texts, rows.after), strict=True))
        news = [list(row) for row in zip(*map(_texts, rows.columns), strict=True)]
        parked: set[int] = set()
        # Old rows are read before any leaves.
        for row in np.flatnonzero(rows.is_partial | (rows.op == PARK)).tolist():
            old = self._find(target, before[row]) if rows.op[row] != PARK else None
            if old is None:
                parked.add(row)
                continue
            for index, mask in enumerate(rows.unset):
                if mask is not None and mask[row]:
                    news[row][index] = old[index]
        if parked and rows.kind != "replayed":
            raise AssertionError(f"rows that change are not there: {target.qualified_name}")
        for row in np.flatnonzero((rows.op != INSERT) & (rows.op != PARK)).tolist():
            if row not in parked:
                self._conn.execute(
                    f"DELETE FROM {_table(target)} WHERE {_same(target)}", before[row]
                )
        puts = [row for row in np.flatnonzero(rows.op != DELETE).tolist() if row not in parked]
        self._insert("INSERT", target, [news[row] for row in puts])
        return [after[row] for row in sorted(parked)]

    def _find(self, target: Target, key: Key) -> tuple[str | None, ...] | None:
        columns = ", ".join(_names(target))
        query = f"SELECT {columns} FROM {_table(target)} WHERE {_same(target)}"
        found: tuple[str | None, ...] | None = self._conn.execute(query, key).fetchone()
        return found

    def _apply_counted(self, rows: MergedRows) -> None:
        texts = list(zip(*map(_texts, rows.columns), strict=True)) or [()] * len(rows)
        same = " AND ".join(f"{name} IS ?" for name in _names(rows.target)) or "TRUE"
        table = _table(rows.target)
        for row, count in zip(texts, rows.count.tolist(), strict=True):
            self._insert("INSERT", rows.target, [row] * count)
            if count < 0:
                self._conn.execute(
                    f"DELETE FROM {table} WHERE rowid IN"
                    f" (SELECT rowid FROM {table} WHERE {same} LIMIT ?)",
                    [*row, -count],
                )

    def _insert(self, verb: str, target: Target, rows: Iterable[Sequence[str | None]]) -> None:
        columns = ", ".join(["rowid", *_names(target)])
        values = ", ".join(["NULL", *("?" for _ in target.columns)])
        self._conn.executemany(f"{verb} INTO {_table(target)} ({columns}) VALUES ({values})", rows)


def read_rows(folder: Path, pipeline: str, schema: str, name: str) -> list[Row]:
    """The rows of a table, for whoever compares them."""
    conn = connect(folder / "tables.sqlite")
    try:
        notes = SqliteLedger(conn, MemoryTablesDestination.name, pipeline).read("table/")
        targets = map(Target.from_text, notes.values())
        (target,) = (t for t in targets if (t.schema, t.name) == (schema, name))
        found = conn.execute(
            f"SELECT {', '.join([*_names(target), 'rowid'])} FROM {_table(target)}"
        )
        return [dict(zip(target.columns, row[:-1], strict=True)) for row in found]
    finally:
        conn.close()


def _table(target: Target) -> str:
    return f"t{target.oid}"


def _names(target: Target) -> list[str]:
    return [f"c{index}" for index in range(len(target.columns))]


def _same(target: Target) -> str:
    return " AND ".join(f"c{index} = ?" for index in target.key)


def _texts(column: pa.Array) -> list[str | None]:
    texts: list[str | None] = column.to_pylist()
    return texts
