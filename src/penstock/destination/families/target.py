"""A table of a destination that holds rows, as far as rows need it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.model.errors import TableRefused
from penstock.model.plain_type import plain_type
from penstock.model.table_definition import Announced, TableDefinition
from penstock.model.table_schema import TableSchema
from penstock.transform.table_order import column_places, expect_announced


@dataclass(frozen=True)
class Target:
    """``key`` are the places of the columns that identify a row; without any, rows are counted.

    ``left_out`` are columns that rows come with and that are not wanted. ``types`` are those of the
    columns, as far as values differ by them (plain_type.py).
    """

    oid: int
    schema: str
    name: str
    columns: tuple[str, ...]
    key: tuple[int, ...]
    left_out: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    announced: tuple[Announced, ...] = field(default=(), compare=False)
    """How the stream announces the columns. Not stored: it is as old as the definition."""
    source: Target | None = field(default=None, compare=False)
    """Of a change table (``mode: append``): the table whose changes its rows are. Not stored."""

    @classmethod
    def of(cls, table: TableDefinition) -> Target:
        delivered = [column for column in table.columns if column.is_delivered]
        names = tuple(column.name for column in delivered)
        key = tuple(names.index(name) for name in table.merge_key)
        left_out = tuple(c.name for c in table.columns if c.published and c.ignored)
        types = tuple(plain_type(column, table.types) for column in delivered)
        return cls(
            table.oid, table.schema, table.name, names, key, left_out, types, table.announced
        )

    @property
    def qualified_name(self) -> str:
        return f"{self.schema}.{self.name}"

    def places(self, table: TableSchema, commit_lsn: int = 0) -> list[int]:
        """As ``column_places``: where its columns are in the table that rows come with."""
        places = column_places(self.columns, table, commit_lsn, self.left_out)
        key = [self.columns[place] for place in self.key]
        expect_announced(table, self.announced, key, commit_lsn)
        return places

    def to_text(self) -> str:
        unstored = ("announced", "source")
        return json.dumps({k: v for k, v in asdict(self).items() if k not in unstored})

    @classmethod
    def from_text(cls, text: str) -> Target:
        value: dict[str, Any] = {
            name: tuple(part) if isinstance(part, list) else part
            for name, part in json.loads(text).items()
        }
        return cls(**value)


def target_of(targets: Mapping[int, Target], table: TableSchema) -> Target:
    """Where the rows of a table go. Raises TableRefused where nobody prepared it."""
    if table.oid not in targets:
        raise TableRefused(
            f"table {table.qualified_name} came in the stream, but was not there when the pipeline "
            "started",
            remedy="start `penstock run` again",
            table=table.oid,
        )
    return targets[table.oid]
