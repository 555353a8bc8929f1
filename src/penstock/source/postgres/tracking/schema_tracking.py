"""The event triggers in the source: made, found, judged and removed."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import psycopg
from psycopg import errors, sql

from penstock.model.errors import SourceError
from penstock.model.schema_message import SealKey
from penstock.source.postgres.made_once import make_once
from penstock.source.postgres.source_errors import source_errors
from penstock.source.postgres.tracking.trigger_sql import FILL, SCHEMA, STATEMENTS, TRIGGERS

NOT_TRACKED = (
    "this role may not create event triggers, so a schema change is noticed with the first row "
    "that comes after it. Not covered are changes that do not show in the columns of a row "
    "(indexes, constraints, defaults, NOT NULL), and rewrites"
)
INSTALL_TRACKING = (
    "Run `penstock init` once as a superuser, or as what your hosting service has in its place; "
    "roles without that right use what it created. Or set schema_changes.track to false."
)

_TRIGGER_NAMES = [name for name, _event, _function in TRIGGERS]

# What the triggers call runs with their owner's rights. Whoever else could replace that, write what
# it reads, or seal messages is named here, with what is wrong.
_INTRUDERS = """
WITH home AS (
    SELECT n.oid, n.nspowner, n.nspacl, t.evtowner AS owner
      FROM pg_namespace n
      JOIN pg_proc p ON p.pronamespace = n.oid
      JOIN pg_event_trigger t ON t.evtfoid = p.oid
     WHERE n.nspname = %(schema)s
     ORDER BY t.evtname LIMIT 1
),
wrong (what, who) AS (
    SELECT 'the schema belongs to another role', home.nspowner
      FROM home WHERE home.nspowner <> home.owner
    UNION ALL
    SELECT 'the schema lets others create objects', g.grantee
      FROM home CROSS JOIN LATERAL aclexplode(home.nspacl) AS g
     WHERE g.privilege_type = 'CREATE' AND g.grantee <> home.owner
    UNION ALL
    SELECT format('function %%s belongs to another role', p.oid::regprocedure), p.proowner
      FROM home JOIN pg_proc p ON p.pronamespace = home.oid WHERE p.proowner <> home.owner
    UNION ALL
    SELECT format('function %%s may be called by others', p.oid::regprocedure), g.grantee
      FROM home JOIN pg_proc p ON p.pronamespace = home.oid
     CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS g
     WHERE p.proname IN ('send', 'log_schema') AND g.grantee <> home.owner
    UNION ALL
    SELECT format('%%s belongs to another role', c.oid::regclass), c.relowner
      FROM home JOIN pg_class c ON c.relnamespace = home.oid WHERE c.relowner <> home.owner
    UNION ALL
    SELECT format('others have rights on %%s', c.oid::regclass), g.grantee
      FROM home JOIN pg_class c ON c.relnamespace = home.oid
     CROSS JOIN LATERAL aclexplode(c.relacl) AS g WHERE g.grantee <> home.owner
    UNION ALL
    SELECT format('event trigger %%s belongs to another role', t.evtname), t.evtowner
      FROM home CROSS JOIN pg_event_trigger t JOIN pg_proc p ON p.oid = t.evtfoid
     WHERE p.pronamespace = home.oid AND t.evtowner <> home.owner
)
SELECT format('%%s (%%s)', what, CASE who WHEN 0 THEN 'everybody' ELSE pg_get_userbyid(who) END)
  FROM wrong ORDER BY 1
"""

# What versions before this one left in the schema of the store, which belongs to the pipeline.
_FORMER = (
    """
    DROP FUNCTION IF EXISTS penstock.note_ddl(), penstock.note_drop(), penstock.note_rewrite(),
        penstock.log_schema(text, oid[], oid[], boolean), penstock.touched_tables(oid, oid),
        penstock.tables_with(oid[]), penstock.table_document(oid), penstock.parts_of(json),
        penstock.is_tracked_schema(name)
    """,
    "DROP TABLE IF EXISTS penstock.schema_log",
    "DROP SEQUENCE IF EXISTS penstock.schema_version",
)


def is_tracking(conn: psycopg.Connection[Any]) -> bool:
    """Whether all triggers are there, fire in ordinary sessions and tell this role the truth.

    Raises SourceError where somebody else than their owner could replace them.
    """
    with source_errors("looking for the triggers that tell of schema changes"):
        row = conn.execute(
            "SELECT count(*) FROM pg_event_trigger t"
            "  JOIN pg_proc p ON p.oid = t.evtfoid"
            "  JOIN pg_namespace n ON n.oid = p.pronamespace"
            " WHERE t.evtname = ANY (%s) AND t.evtenabled IN ('O', 'A') AND n.nspname = %s",
            [_TRIGGER_NAMES, SCHEMA],
        ).fetchone()
        if row != (len(TRIGGERS),):
            return False
        _require_sound(conn)
        return read_key(conn) is not None


def read_key(conn: psycopg.Connection[Any]) -> SealKey | None:
    """What the triggers seal their messages with; None without triggers, or where this role may
    not know.
    """
    try:
        row = conn.execute(
            sql.SQL("SELECT inner_pad, outer_pad FROM {}()").format(
                sql.Identifier(SCHEMA, "read_key")
            ),
            binary=True,
        ).fetchone()
    except (errors.InvalidSchemaName, errors.UndefinedFunction, errors.InsufficientPrivilege):
        return None
    return None if row is None or row[0] is None else SealKey(bytes(row[0]), bytes(row[1]))


def ensure_tracking(conn: psycopg.Connection[Any]) -> bool:
    """Whether it is there in the end. What another role installed is left as it is."""
    return install_tracking(conn) or is_tracking(conn)


def install_tracking(conn: psycopg.Connection[Any]) -> bool:
    """Make log and triggers, or bring them up to date; False where the right to is missing.

    Raises SourceError where the schema is there and not this role's own: whoever it belongs to
    could replace what would run with this role's rights.
    """
    with source_errors("setting up the log of schema changes"):
        try:
            make_once(conn, partial(_install, conn))
        except (errors.InsufficientPrivilege, _NotOwn):
            return False
    return True


def _install(conn: psycopg.Connection[Any]) -> None:
    # Nothing of our own is logged.
    conn.execute("SET LOCAL penstock.track_ddl = off")
    _take_schema(conn)
    # Drivers that start at once would replace the same function at once. Only the owner can hold
    # this lock: somebody else who tries is refused, and lets it go.
    conn.execute(f"COMMENT ON SCHEMA {SCHEMA} IS 'Penstock: tells of schema changes'".encode())
    for statement in STATEMENTS:
        conn.execute(statement.encode())
    _revoke(conn)
    for name, event, function in TRIGGERS:
        _create_trigger(conn, name, event, function)
    for statement in _FORMER:
        conn.execute(statement)
    conn.execute(FILL)
    _require_sound(conn)


class _NotOwn(Exception):
    """Another role's triggers use the schema."""


def _take_schema(conn: psycopg.Connection[Any]) -> None:
    """Make the schema, or find it as one's own. Raises _NotOwn where another role's triggers use
    it.
    """
    row = conn.execute(
        "SELECT n.nspowner = r.oid, pg_get_userbyid(n.nspowner)::text,"
        "       r.rolsuper AND NOT EXISTS ("
        "           SELECT FROM pg_event_trigger t JOIN pg_proc p ON p.oid = t.evtfoid"
        "            WHERE p.pronamespace = n.oid AND t.evtowner = n.nspowner)"
        "  FROM pg_namespace n, pg_roles r WHERE n.nspname = %s AND r.rolname = current_user",
        [SCHEMA],
    ).fetchone()
    if row is None:
        conn.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(SCHEMA)))
        return
    is_own, owner, is_squatted = row
    if not is_own and is_squatted:
        raise SourceError(
            f"The source has a schema {SCHEMA} that belongs to {owner} and holds no triggers of "
            "Penstock. What is put there would be theirs to replace, and runs with the rights of "
            "whoever installs it.",
            remedy=f"Find out what it is for; then, as a superuser: DROP SCHEMA {SCHEMA} CASCADE, "
            "and run the command again.",
        )
    if not is_own:
        raise _NotOwn


def _revoke(conn: psycopg.Connection[Any]) -> None:
    """Leave to others what they need, whatever default privileges gave them."""
    others = conn.execute(
        "SELECT DISTINCT CASE g.grantee WHEN 0 THEN NULL ELSE pg_get_userbyid(g.grantee)::text END"
        "  FROM pg_namespace n CROSS JOIN LATERAL ("
        "       SELECT c.relacl AS acl FROM pg_class c WHERE c.relnamespace = n.oid"
        "       UNION ALL SELECT coalesce(p.proacl, acldefault('f', p.proowner))"
        "         FROM pg_proc p WHERE p.pronamespace = n.oid"
        "       UNION ALL SELECT n.nspacl) AS acls"
        " CROSS JOIN LATERAL aclexplode(acls.acl) AS g"
        " WHERE n.nspname = %s AND g.grantee <> n.nspowner",
        [SCHEMA],
    ).fetchall()
    schema = sql.Identifier(SCHEMA)
    for (role,) in others:
        grantee = sql.SQL("PUBLIC") if role is None else sql.Identifier(role)
        for what in ("", "ALL TABLES IN ", "ALL SEQUENCES IN ", "ALL FUNCTIONS IN "):
            revoke = sql.SQL("REVOKE ALL ON {}SCHEMA {} FROM {}")
            conn.execute(revoke.format(sql.SQL(what), schema, grantee))
    conn.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO PUBLIC").format(schema))
    for function in ("read_key()", "acknowledge(bigint[])", "may_replicate(name)"):
        conn.execute(f"GRANT EXECUTE ON FUNCTION {SCHEMA}.{function} TO PUBLIC".encode())


def _require_sound(conn: psycopg.Connection[Any]) -> None:
    found = conn.execute(_INTRUDERS, {"schema": SCHEMA}).fetchall()
    if found:
        raise SourceError(
            "Somebody else than their owner could replace the triggers that tell of schema "
            f"changes, or speak for them: {'; '.join(text for (text,) in found)}.",
            remedy=f"As a superuser: DROP SCHEMA {SCHEMA} CASCADE, then run `penstock init` as the "
            "role that is to own them. Look at what those roles did meanwhile.",
        )


def _create_trigger(conn: psycopg.Connection[Any], name: str, event: str, function: str) -> None:
    row = conn.execute(
        "SELECT n.nspname = %s, t.evtenabled = 'A'"
        "  FROM pg_event_trigger t JOIN pg_proc p ON p.oid = t.evtfoid"
        "  JOIN pg_namespace n ON n.oid = p.pronamespace WHERE t.evtname = %s",
        [SCHEMA, name],
    ).fetchone()
    if row == (True, True):
        return
    if row is not None:
        conn.execute(sql.SQL("DROP EVENT TRIGGER {}").format(sql.Identifier(name)))
    conn.execute(
        sql.SQL("CREATE EVENT TRIGGER {} ON {} EXECUTE FUNCTION {}()").format(
            sql.Identifier(name), sql.Identifier(event), sql.Identifier(SCHEMA, function)
        )
    )
    # Also for sessions that apply what other servers changed: their rows come, too.
    conn.execute(sql.SQL("ALTER EVENT TRIGGER {} ENABLE ALWAYS").format(sql.Identifier(name)))


def remove_tracking(conn: psycopg.Connection[Any]) -> list[str]:
    """Drop triggers, functions and log; says what was removed. Another role's stay."""
    with (
        source_errors("removing the log of schema changes"),
        suppress(errors.InsufficientPrivilege),
        conn.transaction(),
    ):
        conn.execute("SET LOCAL penstock.track_ddl = off")
        there = conn.execute(
            "SELECT evtname::text FROM pg_event_trigger WHERE evtname = ANY (%s) ORDER BY evtname",
            [_TRIGGER_NAMES],
        ).fetchall()
        for (name,) in there:
            conn.execute(sql.SQL("DROP EVENT TRIGGER {}").format(sql.Identifier(name)))
        conn.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(SCHEMA)))
        return [f"event trigger {name}" for (name,) in there]
    return []
