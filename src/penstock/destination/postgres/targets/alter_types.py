"""User-defined types at the destination: brought to what the columns of a table need.

A type belongs to many tables, each of which tells of its change: what is there already is left.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import psycopg
from psycopg import sql

from penstock.destination.postgres.sessions.session import Connection, is_passing, run, said
from penstock.destination.postgres.targets.create_table import create_schema, create_type, type_sql
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import TypeDefinition
from penstock.model.type_change import attribute_changes, has_labels, label_changes
from penstock.source.postgres.catalogue.definitions import types_of

_CHECK = re.compile(r'CONSTRAINT (?:"(?P<quoted>(?:[^"]|"")+)"|(?P<bare>\S+)) ')


def alter_types(conn: Connection, change: TableChange) -> list[str]:
    """Rename, change and create; says what a domain has to go without.

    One that the table no longer uses stays: others may use it.
    """
    if not any(step.kind == "user_type" for step in change.differences()):
        return []
    there = types_of(conn)
    for old, new in change.types:
        if old and new and _key(old) in there and _key(new) not in there:
            _rename(conn, old, new)
    return ensure_types(conn, [new for _old, new in change.types if new is not None])


def ensure_types(conn: Connection, kinds: Sequence[TypeDefinition]) -> list[str]:
    """Let these types, each after those that it is made of, be there as they are here."""
    there = types_of(conn) if kinds else {}
    notes: list[str] = []
    for new in kinds:
        found = there.get(_key(new))
        if found is None or not _is_alterable(found, new):
            found = _create(conn, new, is_left_over=found is not None)
        if found != new:
            notes += _alter(conn, found, new)
    return notes


def ensure_schema(conn: Connection, schema: str) -> None:
    # Asked first: IF NOT EXISTS alone needs the right to create one even if it is there.
    found = conn.execute("SELECT FROM pg_namespace WHERE nspname = %s", [schema])
    if found.fetchone() is None:
        conn.execute(create_schema(schema))


def _key(kind: TypeDefinition) -> tuple[str, str]:
    return (kind.schema, kind.name)


def _name(kind: TypeDefinition) -> sql.Identifier:
    return sql.Identifier(kind.schema, kind.name)


def _rename(conn: Connection, old: TypeDefinition, new: TypeDefinition) -> None:
    if old.name != new.name:
        statement = sql.SQL("ALTER TYPE {} RENAME TO {}")
        conn.execute(statement.format(_name(old), sql.Identifier(new.name)))
    if old.schema != new.schema:
        ensure_schema(conn, new.schema)
        moved = [new.name, *([old.multirange] if old.multirange else [])]
        for name in moved:
            conn.execute(
                sql.SQL("ALTER TYPE {} SET SCHEMA {}").format(
                    sql.Identifier(old.schema, name), sql.Identifier(new.schema)
                )
            )


def _is_alterable(found: TypeDefinition, wanted: TypeDefinition) -> bool:
    """Whether there are statements that make the one the other."""
    return (
        found.kind == wanted.kind
        and (found.base, found.collation) == (wanted.base, wanted.collation)
        and (
            has_labels(found.labels, wanted.labels)
            or label_changes(found.labels, wanted.labels) is not None
        )
    )


def _create(conn: Connection, kind: TypeDefinition, *, is_left_over: bool) -> TypeDefinition:
    """The type without what a domain may have to go without. One of that name that nothing uses
    was left over when the source dropped it.
    """
    if is_left_over:
        conn.execute(sql.SQL("DROP TYPE {}").format(_name(kind)))
    ensure_schema(conn, kind.schema)
    optional = [*kind.constraints, *([] if kind.default is None else [kind.default])]
    run(conn, create_type(kind, optional))
    return replace(kind, constraints=(), default=None)


def _alter(conn: Connection, found: TypeDefinition, wanted: TypeDefinition) -> list[str]:
    if found.multirange != wanted.multirange:
        conn.execute(
            sql.SQL("ALTER TYPE {} RENAME TO {}").format(
                sql.Identifier(found.schema, found.multirange), sql.Identifier(wanted.multirange)
            )
        )
    for statement in _label_statements(found, wanted) + _attribute_statements(found, wanted):
        run(conn, statement)
    return _alter_domain(conn, found, wanted)


def _label_statements(found: TypeDefinition, wanted: TypeDefinition) -> list[sql.Composed]:
    statements: list[sql.Composed] = []
    if has_labels(found.labels, wanted.labels):
        # More than that: another table has come here with a later state of the type.
        return statements
    for change in label_changes(found.labels, wanted.labels) or ():
        parts: list[sql.Composable] = [sql.SQL("ALTER TYPE {}").format(_name(wanted))]
        if change.renamed_from is not None:
            parts.append(sql.SQL("RENAME VALUE {} TO").format(sql.Literal(change.renamed_from)))
        else:
            parts.append(sql.SQL("ADD VALUE"))
        parts.append(sql.Literal(change.label))
        if change.after is not None:
            parts.append(sql.SQL("AFTER {}").format(sql.Literal(change.after)))
        elif change.before is not None:
            parts.append(sql.SQL("BEFORE {}").format(sql.Literal(change.before)))
        statements.append(sql.SQL(" ").join(parts))
    return statements


def _attribute_statements(found: TypeDefinition, wanted: TypeDefinition) -> list[sql.Composed]:
    statements = []
    for change in attribute_changes(found.attributes, wanted.attributes):
        old, new = change.before, change.after
        action: sql.Composable
        if new is None:
            assert old is not None  # noqa: S101 (one of the two is there)
            action = sql.SQL("DROP ATTRIBUTE {}").format(sql.Identifier(old[0]))
        elif old is None:
            action = sql.SQL("ADD ATTRIBUTE {} {}").format(sql.Identifier(new[0]), type_sql(new[1]))
        elif old[0] != new[0]:
            action = sql.SQL("RENAME ATTRIBUTE {} TO {}").format(
                sql.Identifier(old[0]), sql.Identifier(new[0])
            )
        else:
            action = sql.SQL("ALTER ATTRIBUTE {} TYPE {}").format(
                sql.Identifier(new[0]), type_sql(new[1])
            )
        statements.append(sql.SQL("ALTER TYPE {} {}").format(_name(wanted), action))
    return statements


def _alter_domain(conn: Connection, found: TypeDefinition, wanted: TypeDefinition) -> list[str]:
    alter = sql.SQL("ALTER DOMAIN {} ").format(_name(wanted))
    gone = [check for check in found.constraints if check not in wanted.constraints]
    for check in gone:
        name = sql.Identifier(_check_name(check))
        conn.execute(alter + sql.SQL("DROP CONSTRAINT {}").format(name))
    if found.not_null != wanted.not_null:
        action = "SET NOT NULL" if wanted.not_null else "DROP NOT NULL"
        conn.execute(alter + sql.SQL(action))
    notes = []
    # As the source's server wrote them.
    optional = {
        check: sql.SQL(f"ADD {check}")
        for check in wanted.constraints
        if check not in found.constraints
    }
    if found.default != wanted.default:
        if found.default is not None:
            conn.execute(alter + sql.SQL("DROP DEFAULT"))
        if wanted.default is not None:
            optional[wanted.default] = sql.SQL(f"SET DEFAULT {wanted.default}")
    for part, action_sql in optional.items():
        error = attempt(conn, alter + action_sql)
        if error is not None:
            notes.append(f"the domain {wanted.qualified_name} goes without {part}: {said(error)}")
    return notes


def attempt(conn: Connection, *statements: sql.Composed) -> psycopg.Error | None:
    """Run them in a savepoint; why it could not be done, where the server refused."""
    try:
        with conn.transaction():
            for statement in statements:
                run(conn, statement)
    except psycopg.Error as error:
        if is_passing(error):
            raise
        return error
    return None


def _check_name(check: str) -> str:
    match = _CHECK.match(check)
    assert match is not None  # noqa: S101 (that is how the catalogue document writes them)
    return match["bare"] or match["quoted"].replace('""', '"')
