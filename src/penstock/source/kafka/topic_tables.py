"""The tables that topics tell of: what each looks like now, and under which number the log knows
it. Kept beside the log, durably, before the log has a row that needs it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from penstock.changelog.storage.contract import Storage
from penstock.model.errors import LogError, SourceError
from penstock.model.table_definition import ColumnDefinition, TableDefinition
from penstock.model.table_name import TableName
from penstock.model.table_schema import ColumnSchema, TableSchema
from penstock.source.kafka.column_types import ColumnType, column_type

FILE = "kafka_tables.json"
_FIRST_OID = 16384


@dataclass(frozen=True)
class ToldColumn:
    """``number`` stays with the column for its whole life; ``type`` is the message's word."""

    number: int
    name: str
    type: str
    not_null: bool = False
    has_default: bool = field(default=False, compare=False)
    """Whether rows that are older than the column may have got a value with it."""

    @cached_property
    def known_type(self) -> ColumnType:
        return column_type(self.type)


@dataclass(frozen=True)
class ToldTable:
    """A table as messages tell of it; ``told_id`` is its number there, 0 where none is told."""

    schema: str
    name: str
    columns: tuple[ToldColumn, ...]
    primary_key: tuple[str, ...]
    told_id: int = 0
    oid: int = 0
    told_at: int = field(default=0, compare=False)
    """Where the source stood then, if messages themselves tell of their tables."""
    former: tuple[tuple[str, int], ...] = ()
    """Names that columns had before, and their numbers: messages that are older may come later."""

    @cached_property
    def places(self) -> Mapping[str, int | None]:
        """Which column each name that a message may use stands for; None for a dropped one."""
        at = {c.number: place for place, c in enumerate(self.columns)}
        return {name: at.get(number) for name, number in self.former} | {
            c.name: place for place, c in enumerate(self.columns)
        }

    @property
    def table_name(self) -> TableName:
        return TableName(self.schema, self.name)

    @cached_property
    def layout(self) -> TableSchema:
        """What the log says of its rows."""
        return TableSchema(
            self.oid,
            self.schema,
            self.name,
            "d",
            tuple(
                ColumnSchema(
                    c.name, c.known_type.pg_type, c.known_type.typmod, c.name in self.primary_key
                )
                for c in self.columns
            ),
        )

    @cached_property
    def json_columns(self) -> frozenset[str]:
        return frozenset(c.name for c in self.columns if c.known_type.is_json)

    @cached_property
    def definition(self) -> TableDefinition:
        """What a destination is to make. No expression that a message holds is part of it."""
        return TableDefinition(
            self.oid,
            self.schema,
            self.name,
            "d",
            tuple(
                ColumnDefinition(c.number, c.name, c.known_type.name, not_null=c.not_null)
                for c in self.columns
            ),
            self.primary_key,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "oid": self.oid,
            "told_id": self.told_id,
            "schema": self.schema,
            "name": self.name,
            "primary_key": list(self.primary_key),
            "columns": [[c.number, c.name, c.type, c.not_null] for c in self.columns],
            "former": self.former,
            "told_at": self.told_at,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ToldTable:
        return cls(
            value["schema"],
            value["name"],
            tuple(ToldColumn(*column) for column in value["columns"]),
            tuple(value["primary_key"]),
            value["told_id"],
            value["oid"],
            value["told_at"],
            tuple((name, number) for name, number in value["former"]),
        )


@dataclass(frozen=True)
class TopicTables:
    """All of them. ``lsn`` is the position of the schema change that made them so, and ``changed``
    are the numbers of the tables that it is about: where the log has not got there, it is told
    again.
    """

    tables: Mapping[TableName, ToldTable] = field(default_factory=dict)
    lsn: int = 0
    changed: tuple[int, ...] = ()

    @cached_property
    def by_oid(self) -> Mapping[int, ToldTable]:
        return {table.oid: table for table in self.tables.values()}

    def told(self, new: Sequence[ToldTable], lsn: int) -> TopicTables:
        """What they are once these were told; ``changed`` are those that are new or different.

        Raises SourceError where a message tells of a change that cannot be followed.
        """
        tables, changed = dict(self.tables), []
        for table in new:
            known = tables.get(table.table_name)
            if known is None:
                _refuse_rename(table, tables)
            else:
                _refuse_other_rows(known, table)
            oid = known.oid if known else max([_FIRST_OID, *(t.oid for t in tables.values())]) + 1
            named = replace(table, oid=oid, former=_former(known, table))
            if named != known:
                tables[named.table_name] = named
                changed.append(oid)
        return TopicTables(tables, lsn, tuple(dict.fromkeys(changed)))

    def to_json(self) -> bytes:
        value = {
            "format": 1,
            "lsn": self.lsn,
            "changed": self.changed,
            "tables": [table.to_json() for table in self.tables.values()],
        }
        return json.dumps(value, indent=1).encode()

    def write(self, root: Storage) -> None:
        root.write(FILE, self.to_json(), durable=True)

    @classmethod
    def read(cls, root: Storage) -> TopicTables:
        """Raises LogError where the file cannot be read."""
        data = root.read_bytes(FILE)
        if data is None:
            return cls()
        try:
            value = json.loads(data)
            tables = [ToldTable.from_json(each) for each in value["tables"]]
            return cls({t.table_name: t for t in tables}, value["lsn"], tuple(value["changed"]))
        except (ValueError, KeyError, TypeError) as error:
            raise LogError(
                f"{root.full(FILE)} is torn or altered: {error!r}",
                remedy="restore it from a backup, or start over with `penstock destroy FILE` and "
                "`penstock run FILE`",
            ) from None


def _former(known: ToldTable | None, table: ToldTable) -> tuple[tuple[str, int], ...]:
    """Names that are no longer used. Raises SourceError where one means another column now: an
    older message would put its value there.
    """
    if known is None:
        return ()
    now = {column.name: column.number for column in table.columns}
    before = dict(known.former) | {column.name: column.number for column in known.columns}
    for name, number in before.items():
        if now.get(name, number) != number:
            raise SourceError(
                f"table {table.table_name} has another column under the name {name} than before, "
                "which a kafka source does not follow: messages of both kinds stand in its topic",
                remedy="exclude the table in source.tables, or start over with `penstock destroy "
                "FILE` and `penstock run FILE` once the topic holds rows of the new kind alone",
            )
    return tuple((name, number) for name, number in before.items() if name not in now)


def _refuse_rename(table: ToldTable, known: Mapping[TableName, ToldTable]) -> None:
    for other in known.values():
        if table.told_id and other.told_id == table.told_id:
            raise SourceError(
                f"table {other.table_name} was renamed to {table.table_name}, which a kafka source "
                "does not follow: its messages go to another topic, and nothing orders the two",
                remedy="exclude one of both names in source.tables, or start over under the new "
                "name with `penstock destroy FILE` and `penstock run FILE`",
            )


def _refuse_other_rows(known: ToldTable, table: ToldTable) -> None:
    """Changes after which rows are found or filled in ways that no message tells."""
    numbers = {c.number for c in known.columns}
    for column in table.columns:
        if column.number not in numbers and column.has_default:
            raise SourceError(
                f"column {column.name} was added to table {table.table_name} with a default: the "
                "rows that were there have got it, and no message tells of that",
                remedy="exclude the table in source.tables; or start over with `penstock destroy "
                "FILE` and `penstock run FILE` once the table was copied anew into its topic "
                "(`penstock tables resync` in the pipeline that writes it)",
            )
    if table.primary_key != known.primary_key:
        renamed = {c.name: c.number for c in known.columns}
        now = {c.name: c.number for c in table.columns}
        before = [renamed.get(name) for name in known.primary_key]
        if before != [now.get(name) for name in table.primary_key]:
            raise SourceError(
                f"the primary key of table {table.table_name} was changed from "
                f"({', '.join(known.primary_key)}) to ({', '.join(table.primary_key)}), which a "
                "kafka source does not follow: rows of both kinds stand in its topic",
                remedy="exclude the table in source.tables, or start over with `penstock destroy "
                "FILE` and `penstock run FILE` once the topic holds rows of the new kind alone",
            )
