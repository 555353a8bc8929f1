"""What is left of a table once all its changes are applied, for tests, demo and small tables.

Holds the whole table in memory. Columns go by name: a column that a schema change added is
unset in older rows until they change, as the files do not say what its default was.

To compare with the source, read the source's rows as text (``SELECT "a"::text, …``, with the
settings that Penstock's replication connection has) and give them to ``folded_source``: both then
hold values in one form, and ``==`` tells. From NDJSON files the form is Postgres text, exactly.
From Parquet files it is what Python makes of the Arrow value, with dates and timestamps as ISO
text (Python has no year 10000), lists as tuples, and Postgres text where ``_raw`` holds it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from penstock.backoff import tried_again
from penstock.destination.files.committed_files import list_files
from penstock.destination.files.layout import table_folder
from penstock.destination.files.stored_changes import StoredChange, Values, read_changes, values_of
from penstock.model.errors import DestinationError
from penstock.model.lsn import Position
from penstock.model.table_schema import TableSchema
from penstock.pgoutput.messages import UNSET


@dataclass(frozen=True)
class FoldedTable:
    """The rows of a table as a multiset; values in the order of ``columns``."""

    columns: tuple[str, ...]
    rows: Counter[tuple[Any, ...]]

    def __len__(self) -> int:
        return self.rows.total()


def fold(path: str | Path, pipeline: str, schema: str, table: str) -> FoldedTable:
    """The rows of a table after all changes that are committed; also while the pipeline runs.

    Raises DestinationError if two changes share a position or a file is out of order.
    """
    changes = _committed_changes(path, pipeline, schema, table)
    changes.sort(key=lambda change: change.position)
    _check_unique(changes, f"{schema}.{table}")
    rows = _Rows()
    for change in changes:
        rows.apply(change)
    if not changes:
        return FoldedTable((), Counter())
    columns = tuple(column.name for column in changes[-1].table.columns)
    return FoldedTable(columns, rows.counted(columns))


def _committed_changes(
    path: str | Path, pipeline: str, schema: str, table: str
) -> list[StoredChange]:
    """A file that was listed where it waits may move to its place before it is read: then all are
    listed again.
    """
    return tried_again(partial(_read_all, path, pipeline, schema, table), FileNotFoundError)


def _read_all(path: str | Path, pipeline: str, schema: str, table: str) -> list[StoredChange]:
    return [
        change
        for file in list_files(path, pipeline, table_folder(schema, table))
        for change in read_changes(file, Path(path), pipeline, schema, table)
    ]


def folded_source(
    table: TableSchema, texts: Sequence[pa.Array], file_format: Literal["parquet", "ndjson"]
) -> FoldedTable:
    """Rows of the source, a text column each, in the form that ``fold`` gives them."""
    columns = [values_of(text, table, number, file_format) for number, text in enumerate(texts)]
    names = tuple(column.name for column in table.columns)
    return FoldedTable(names, Counter(zip(*columns, strict=True)))


@dataclass
class _Rows:
    """The rows so far, by the values of the columns that identify them.

    Under REPLICA IDENTITY FULL, and without any identity, several rows may be alike.
    """

    identity: tuple[str, ...] = ()
    found: dict[tuple[Any, ...], list[Values]] = field(default_factory=dict)

    def apply(self, change: StoredChange) -> None:
        self._identify_by(change.table)
        if change.op == "truncate":
            self.found.clear()
        elif change.op == "delete":
            self._remove(change.values)
        else:
            # An insert meets its row where the row was copied after it, and replaces it.
            before = self._remove(change.old or change.values) if self._replaces(change) else {}
            self._add({**before, **change.values})

    def counted(self, columns: Iterable[str]) -> Counter[tuple[Any, ...]]:
        names = tuple(columns)
        return Counter(
            tuple(row.get(name, UNSET) for name in names)
            for alike in self.found.values()
            for row in alike
        )

    def _replaces(self, change: StoredChange) -> bool:
        has_key = bool(self.identity) and change.table.replica_identity != "f"
        return has_key or change.op == "update"

    def _identify_by(self, table: TableSchema) -> None:
        identity = tuple(table.columns[column].name for column in table.key_columns)
        if identity != self.identity:
            rows = [row for alike in self.found.values() for row in alike]
            self.identity, self.found = identity, {}
            for row in rows:
                self._add(row)

    def _add(self, row: Values) -> None:
        self.found.setdefault(self._key(row), []).append(row)

    def _remove(self, row: Values) -> Values:
        """Take one such row out; nothing is known of one that was there before the pipeline."""
        key = self._key(row)
        alike = self.found.get(key)
        if not alike:
            return {}
        removed = alike.pop()
        if not alike:
            del self.found[key]
        return removed

    def _key(self, row: Values) -> tuple[Any, ...]:
        return tuple(row.get(name, UNSET) for name in self.identity)


def _check_unique(changes: Sequence[StoredChange], table: str) -> None:
    last: Position | None = None
    for change in changes:
        if change.op != "read" and change.position == last:
            raise DestinationError(
                f"destination files: two changes of {table} stand at {change.position}",
                remedy="a change was written twice, which must never happen: please report it "
                "with the files and the manifests",
            )
        last = change.position
