"""A target that is to be copied becomes what its table is, whatever it is now.

What it was when it was last written to is not known then: a change may have been lost with the
destination, or been left out while the table was set aside. Its rows do not matter, so names decide
which column is which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import psycopg
from psycopg import sql

from penstock.destination.postgres.sessions.session import Connection, is_passing
from penstock.destination.postgres.targets.alter_table import alter_target
from penstock.destination.postgres.targets.alter_types import ensure_types
from penstock.destination.postgres.targets.table_names import TableNames
from penstock.destination.postgres.targets.target_record import recorded_target
from penstock.destination.postgres.targets.target_table import TargetTable, wanted_targets
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import ColumnDefinition, TableDefinition
from penstock.model.table_name import TableName
from penstock.source.postgres.catalogue.definitions import definitions_of, qualified_names

# What belongs together of a column.
_TRAITS = (
    ("type", "collation"),
    ("default",),
    ("not_null",),
    ("identity",),
    ("generated", "stored"),
)


def fit_target(
    conn: Connection,
    pipeline: str,
    names: TableNames,
    table: TableDefinition,
    former: Sequence[TableDefinition],
) -> list[str]:
    """Inside the caller's transaction; returns what could not be made and does not matter for rows.

    ``former`` is what the table was before: what a person has added or chosen is none of it, and
    stays. psycopg's errors come through.
    """
    wanted, *once = wanted_targets(conn, [table, *former], names)
    target = recorded_target(conn, pipeline, table)
    if target is None:
        # Other tables may have brought its types here, as they were then.
        with qualified_names(conn):
            return ensure_types(conn, wanted.types)
    try:
        with conn.transaction():
            return _alter(conn, pipeline, wanted, once, target)
    except psycopg.Error as error:
        if not target.created or is_passing(error):
            raise
        # There may be no statements that lead there; it is ours, and its rows do not matter.
        name = sql.Identifier(target.schema, target.name)
        with conn.transaction():
            conn.execute(sql.SQL("DROP TABLE {}").format(name))
            with qualified_names(conn):
                return ensure_types(conn, wanted.types)


def _alter(
    conn: Connection,
    pipeline: str,
    wanted: TableDefinition,
    once: Sequence[TableDefinition],
    target: TargetTable,
) -> list[str]:
    (actual,) = definitions_of(conn, [TableName(target.schema, target.name)])
    # Indexes and constraints go before the copy and come after it.
    after = replace(wanted, indexes=(), constraints=())
    before = replace(
        actual,
        oid=after.oid,
        columns=tuple(_columns(actual, after, once)),
        indexes=(),
        constraints=(),
        partitions=after.partitions,
        replica_identity=after.replica_identity,
        identity_key=after.identity_key,
        unique_keys=after.unique_keys,
    )
    return alter_target(conn, pipeline, TableChange(before, after, is_rewrite=True))


def _columns(
    actual: TableDefinition, after: TableDefinition, former: Sequence[TableDefinition]
) -> list[ColumnDefinition]:
    wanted = {column.name: column for column in after.columns}
    once: dict[str, list[ColumnDefinition]] = {}
    for table in (*former, after):
        for column in table.columns:
            once.setdefault(column.name, []).append(column)
    found = []
    for column in actual.columns:
        if column.name in wanted:
            found.append(_as_it_was(column, wanted[column.name], once[column.name]))
        elif column.name in once:
            # No column of the source has such a number: it goes.
            found.append(replace(column, attnum=-column.attnum))
    return found


def _as_it_was(
    actual: ColumnDefinition, wanted: ColumnDefinition, once: Sequence[ColumnDefinition]
) -> ColumnDefinition:
    """The column as it is, but for what was never the source's: that is as it should be."""
    kept: dict[str, Any] = {}
    for traits in _TRAITS:
        here = tuple(getattr(actual, trait) for trait in traits)
        if any(here == tuple(getattr(column, trait) for trait in traits) for column in once):
            kept.update(zip(traits, here, strict=True))
    if actual.sequence is not None and any(column.sequence is not None for column in once):
        # Under whatever name: the one of the source may have been taken.
        kept |= {"sequence": actual.sequence, "default": actual.default}
    return replace(wanted, **kept)
