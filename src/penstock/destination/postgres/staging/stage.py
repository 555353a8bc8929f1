"""Staging tables: where executors put the rows of a batch until the driver merges them.

One for each target, kept from batch to batch. They are UNLOGGED: what a crash of the server empties
is counted before it is merged. Columns that hold values are numbered (c1, c2, …), so that no name
of the source meets one of ours; those of user-defined types are text until they are merged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from psycopg import sql

from penstock.destination.postgres.sessions.session import Connection
from penstock.model.stored import Stored
from penstock.model.table_definition import Announced
from penstock.model.table_schema import TableSchema
from penstock.transform.table_order import column_places, expect_announced

SCHEMA = "penstock"

Kind = Literal["keyed", "counted", "history"]
"""keyed: net rows by key; counted: net rows of a table without one; history: every change."""


@dataclass(frozen=True)
class StagedColumn:
    """A column of the target that rows come with. ``type`` is its type there, as SQL."""

    name: str
    type: str
    is_user_defined: bool


@dataclass(frozen=True)
class Stage(Stored):
    """A staging table and the target that it serves."""

    oid: int
    source: str
    """What to call the source's table when speaking to a person."""
    target: tuple[str, str]
    staging: str
    kind: Kind
    columns: tuple[StagedColumn, ...]
    key: tuple[int, ...]
    """Indexes of the columns that identify a row; empty unless ``kind`` is keyed."""
    extras: tuple[str, ...] = ()
    """Columns that only the target has, and that a row made anew must not lose."""
    unique: tuple[tuple[int, ...], ...] = ()
    """Other columns that no two rows share, by index."""
    left_out: frozenset[str] = frozenset()
    """Columns that rows may come with and that the target does not have."""
    announced: tuple[Announced, ...] = ()
    """How the stream announces the columns."""
    takes_lines: bool = False
    """Whether a COPY of rows into the target does what an INSERT of them does."""

    def __hash__(self) -> int:
        # Statements are looked up by it all the time; hashing every column shows.
        return hash(self.staging)

    @cached_property
    def target_id(self) -> sql.Identifier:
        return sql.Identifier(*self.target)

    @cached_property
    def staging_id(self) -> sql.Identifier:
        return sql.Identifier(SCHEMA, self.staging)

    def places(self, table: TableSchema, commit_lsn: int = 0) -> list[int]:
        """As ``column_places``: where its columns are in the table that rows come with."""
        names = [column.name for column in self.columns]
        places = column_places(names, table, commit_lsn, self.left_out)
        expect_announced(table, self.announced, [names[place] for place in self.key], commit_lsn)
        return places

    def layout(self) -> list[tuple[str, str]]:
        """Name and type of each column of the staging table."""
        columns = [("part", "bigint"), ("commit_lsn", "bigint"), ("ordinal", "bigint")]
        if self.kind == "counted":
            columns.append(("n", "bigint"))
        elif self.kind == "keyed":
            columns += [("op", '"char"'), ("unset", "smallint[]")]
        else:
            columns += [
                ("op", "text"),
                ("xid", "bigint"),
                ("committed", "timestamp with time zone"),
                ("unset", "text[]"),
                ("old", "jsonb"),
            ]
        columns += [(f"c{i + 1}", self._type(i)) for i in range(len(self.columns))]
        columns += [(f"k{i + 1}", self._type(column)) for i, column in enumerate(self.key)]
        return columns

    def _type(self, column: int) -> str:
        return "text" if self.columns[column].is_user_defined else self.columns[column].type


LANES = (0, 1)
"""Batches take turns with two staging tables for each target: one is merged and emptied while the
next batch is staged in the other.
"""
CATCHUP_LANE = 2
"""For batches that bring only some tables on, while those of the others go on."""
FIRST_SECTION_LANE = 3
"""From here on: for rows that come after a schema change of their own transaction."""


def staging_name(pipeline: str, oid: int, lane: int) -> str:
    return f"stage_{pipeline}_{oid}_{lane}"


def staging_pattern(pipeline: str) -> str:
    """The regular expression that these names of the pipeline match, and no others."""
    return rf"^stage_{re.escape(pipeline)}_[0-9]+_[0-9]+$"


_EXISTING = """
SELECT c.relname::text, array_agg(a.attname::text ORDER BY a.attnum),
       array_agg(format_type(a.atttypid, a.atttypmod) ORDER BY a.attnum),
       pg_relation_size(c.oid)
  FROM pg_class c
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
 WHERE c.relnamespace = to_regnamespace(%s) AND c.relname = ANY(%s)
 GROUP BY c.oid
"""


def ensure_stages(conn: Connection, stages: Sequence[Stage]) -> None:
    """Make the staging tables that are missing or were made for other columns; empty the others."""
    names = [stage.staging for stage in stages]
    existing = {
        name: (dict(zip(columns, types, strict=True)), size)
        for name, columns, types, size in conn.execute(_EXISTING, [SCHEMA, names])
    }
    left = []
    for stage in stages:
        layout, size = existing.get(stage.staging, (None, 0))
        if layout == dict(stage.layout()):
            if size:
                left.append(stage)
            continue
        if layout is not None:
            conn.execute(sql.SQL("DROP TABLE {}").format(stage.staging_id))
        columns = sql.SQL(", ").join(
            # Types come from format_type() at this very server, with a search path that
            # qualifies all that is not built in.
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind))
            for name, kind in stage.layout()
        )
        # Autovacuum has nothing to gain in tables that are emptied all the time.
        conn.execute(
            sql.SQL("CREATE UNLOGGED TABLE {} ({}) WITH (autovacuum_enabled = false)").format(
                stage.staging_id, columns
            )
        )
    empty_stages(conn, left)


def drop_stages(conn: Connection, stages: Iterable[Stage]) -> None:
    """Drop those of the staging tables that are there."""
    found = conn.execute(
        "SELECT relname::text FROM pg_class WHERE relnamespace = to_regnamespace(%s)"
        " AND relname = ANY(%s)",
        [SCHEMA, [stage.staging for stage in stages]],
    )
    for (name,) in found.fetchall():
        conn.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(SCHEMA, name)))


def drop_sections(conn: Connection, pipeline: str) -> None:
    """Drop those that a transaction with schema changes needed."""
    found = conn.execute(
        "SELECT relname::text FROM pg_class WHERE relnamespace = to_regnamespace(%s)"
        " AND relname ~ %s AND substring(relname FROM '[0-9]+$')::bigint >= %s",
        [SCHEMA, staging_pattern(pipeline), FIRST_SECTION_LANE],
    )
    for (name,) in found.fetchall():
        conn.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(SCHEMA, name)))


def empty_stages(conn: Connection, stages: Iterable[Stage]) -> None:
    tables = [stage.staging_id for stage in stages]
    if tables:
        conn.execute(sql.SQL("TRUNCATE {}").format(sql.SQL(", ").join(tables)))
