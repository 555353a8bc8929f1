"""A target follows a change of its table, inside the transaction of the rows around the change."""

from __future__ import annotations

import psycopg
from psycopg import errors, sql

from penstock.destination.postgres.sessions.session import Connection, is_refusal
from penstock.destination.postgres.targets.alter_columns import (
    AlteredColumns,
    drop_columns,
    rename_columns,
)
from penstock.destination.postgres.targets.alter_objects import AlteredObjects
from penstock.destination.postgres.targets.alter_types import alter_types, ensure_schema
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import TableDefinition
from penstock.model.table_name import TableName
from penstock.source.postgres.catalogue.definitions import definitions_of, qualified_names


def alter_target(conn: Connection, pipeline: str, change: TableChange) -> list[str]:
    """Bring a target from ``change.before`` to ``change.after``, both as they should be over here.

    Inside the caller's transaction. What is as it should be already stays: a person may have made
    the change, and types are shared. Returns what could not be made and does not matter for rows.
    psycopg's errors come through.
    """
    before, after = change.before, change.after
    if before is None or after is None:
        raise ValueError("a target is made or dropped elsewhere")
    if not change.differences():
        return []
    with qualified_names(conn):
        return _alter(conn, pipeline, change, before, after)


def _alter(
    conn: Connection,
    pipeline: str,
    change: TableChange,
    before: TableDefinition,
    after: TableDefinition,
) -> list[str]:
    # What goes makes room for new names, and new names come before what is written with them.
    target = _target(conn, before, after)
    objects = AlteredObjects(conn, pipeline, change, target)
    objects.drop(before, after)
    drop_columns(conn, change, target)
    rename_columns(conn, change, _target(conn, before, after))
    objects.rename()
    if (target.schema, target.name) != (after.schema, after.name):
        _rename_table(conn, target, after)
    notes = alter_types(conn, change)

    def empty() -> None:
        objects.drop_referring()
        conn.execute(sql.SQL("TRUNCATE {}").format(sql.Identifier(after.schema, after.name)))

    columns = AlteredColumns(conn, change, after, _target(conn, after, after), empty)
    columns.alter()
    columns.add()
    try:
        with conn.transaction():
            objects.make_keys(after)
    except psycopg.Error as error:
        if not (change.is_rewrite and is_refusal(error)):
            raise
        empty()
        objects.make_keys(after)
    return [*notes, *columns.notes, *objects.make(after)]


def _target(conn: Connection, before: TableDefinition, after: TableDefinition) -> TableDefinition:
    """The table as it is over here, under its old name or, where a person renamed it, its new."""
    names = dict.fromkeys(TableName(table.schema, table.name) for table in (before, after))
    found = {(t.schema, t.name): t for t in definitions_of(conn, list(names))}
    for table in (before, after):
        if (table.schema, table.name) in found:
            return found[table.schema, table.name]
    raise errors.UndefinedTable(f"relation {before.qualified_name} does not exist")


def _rename_table(conn: Connection, target: TableDefinition, after: TableDefinition) -> None:
    rename = sql.SQL("ALTER TABLE {} RENAME TO {}")
    schema, name = target.schema, target.name
    if schema != after.schema:
        ensure_schema(conn, after.schema)
        if name != after.name:
            # Neither name is known to be free in the other schema.
            between = f"penstock_renamed_{target.oid}"
            conn.execute(rename.format(sql.Identifier(schema, name), sql.Identifier(between)))
            name = between
        conn.execute(
            sql.SQL("ALTER TABLE {} SET SCHEMA {}").format(
                sql.Identifier(schema, name), sql.Identifier(after.schema)
            )
        )
    if name != after.name:
        old_name = sql.Identifier(after.schema, name)
        conn.execute(rename.format(old_name, sql.Identifier(after.name)))
