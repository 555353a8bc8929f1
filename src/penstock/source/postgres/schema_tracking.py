"""Event triggers in the source: each schema change becomes a row of a log, and part of the stream.

A change is told as the tables that it touched, before and after it, each as a catalogue document.
It is sent as a transactional logical message, so that it stands between the rows that were written
before it and those that were written after it; a change that is rolled back never happened.

A statement never fails because of us: what cannot be logged is a warning, and told in the stream,
so that the catalogue is asked instead. ``SET penstock.track_ddl = off`` lets a session opt out.
"""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg
from psycopg import errors, sql

from penstock.model.schema_message import PREFIX
from penstock.source.postgres.catalogue import document as catalogue_document
from penstock.source.postgres.source_errors import source_errors

NOT_TRACKED = (
    "this role may not create event triggers, so a schema change is noticed with the first row "
    "that comes after it. Not covered are changes that do not show in the columns of a row "
    "(indexes, constraints, defaults, NOT NULL), and rewrites"
)
INSTALL_TRACKING = (
    "Run `penstock init` once as a superuser, or as what your hosting service has in its place; "
    "roles without that right use what it created. Or set schema_changes.track to false."
)

_TRIGGERS = ("penstock_ddl", "penstock_drop", "penstock_rewrite")

# Dropped with everything that depends on them, which is nothing but each other.
_FUNCTIONS = (
    *("note_ddl()", "note_drop()", "note_rewrite()", "log_schema(text, oid[], oid[], boolean)"),
    *("touched_tables(oid, oid)", "tables_with(oid[])", "table_document(oid)", "parts_of(json)"),
    "is_tracked_schema(name)",
)

_LOG: tuple[LiteralString, ...] = (
    "CREATE SCHEMA IF NOT EXISTS penstock",
    # One number for each command, growing; not without gaps, and no transaction waits for another.
    "CREATE SEQUENCE IF NOT EXISTS penstock.schema_version",
    """
    CREATE TABLE IF NOT EXISTS penstock.schema_log (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        schema_name text NOT NULL,
        version bigint NOT NULL,
        table_oid oid NOT NULL,
        table_name text NOT NULL,
        command_tag text NOT NULL,
        is_rewrite boolean NOT NULL DEFAULT false,
        before json,
        after json,
        xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
        changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        acknowledged_at timestamptz,
        parts oid[] NOT NULL DEFAULT '{}'
    )""",
    "CREATE INDEX IF NOT EXISTS schema_log_table ON penstock.schema_log (table_oid, id)",
    "CREATE INDEX IF NOT EXISTS schema_log_parts ON penstock.schema_log USING gin (parts)",
)

_IS_TRACKED = """
CREATE OR REPLACE FUNCTION penstock.is_tracked_schema(name name) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
SELECT name <> 'information_schema' AND name <> 'penstock' AND name NOT LIKE 'pg\\_%'
$$
"""

# The settings are for the values of rows that are older than a column, which it holds as text.
_DOCUMENT = f"""
CREATE OR REPLACE FUNCTION penstock.table_document(of oid) RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO'
SET intervalstyle = 'postgres' SET timezone = 'UTC' SET bytea_output = 'hex'
SET extra_float_digits = 1 AS $$
BEGIN
    RETURN ({catalogue_document.as_function(catalogue_document.TABLES, "ARRAY[of]")});
END
$$
"""

# All tables with one of these types, directly or inside of other types.
_TABLES_WITH = """
CREATE OR REPLACE FUNCTION penstock.tables_with(kinds oid[]) RETURNS oid[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
WITH RECURSIVE types (oid) AS (
    SELECT unnest(kinds)
    UNION
    SELECT wider.oid FROM types CROSS JOIN LATERAL (
        SELECT t.typarray FROM pg_type t WHERE t.oid = types.oid AND t.typarray <> 0
        UNION ALL SELECT t.oid FROM pg_type t WHERE t.typbasetype = types.oid
        UNION ALL SELECT r.rngtypid FROM pg_range r WHERE r.rngsubtype = types.oid
        UNION ALL SELECT r.rngmultitypid FROM pg_range r WHERE r.rngtypid = types.oid
        UNION ALL SELECT c.reltype FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
                   WHERE a.atttypid = types.oid AND c.relkind = 'c'
    ) AS wider (oid)
)
SELECT ARRAY(SELECT DISTINCT a.attrelid FROM types JOIN pg_attribute a ON a.atttypid = types.oid
              WHERE a.attnum > 0 AND NOT a.attisdropped)
$$
"""

# Which tables look different when something is changed: the table itself with those that inherit
# from it, that it is a partition of, and that refer to it by a foreign key; the table of an index,
# a constraint or an owned sequence; all tables with a type. One question after another: together
# they would be planned anew for each statement, which takes longer than to answer them.
_TOUCHED = """
CREATE OR REPLACE FUNCTION penstock.touched_tables(class oid, object oid) RETURNS SETOF oid
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    relation record;
    direct oid[] := '{}';
    kinds oid[] := '{}';
BEGIN
    IF class = 'pg_class'::regclass THEN
        SELECT c.relkind, c.reltype INTO relation FROM pg_class c WHERE c.oid = object;
        IF relation.relkind IN ('r', 'p') THEN
            direct := ARRAY[object];
        ELSIF relation.relkind IN ('i', 'I') THEN
            direct := ARRAY(SELECT indrelid FROM pg_index WHERE indexrelid = object);
        ELSIF relation.relkind = 'S' THEN
            direct := ARRAY(SELECT refobjid FROM pg_depend
                             WHERE classid = class AND objid = object AND refclassid = class
                               AND deptype IN ('a', 'i'));
        ELSIF relation.relkind = 'c' THEN
            kinds := ARRAY[relation.reltype];
        END IF;
    ELSIF class = 'pg_constraint'::regclass THEN
        direct := ARRAY(SELECT conrelid FROM pg_constraint WHERE oid = object AND conrelid <> 0);
        kinds := ARRAY(SELECT contypid FROM pg_constraint WHERE oid = object AND contypid <> 0);
    ELSIF class = 'pg_type'::regclass THEN
        kinds := ARRAY[object];
    ELSIF class = 'pg_namespace'::regclass THEN
        direct := ARRAY(SELECT c.oid FROM pg_class c WHERE c.relnamespace = object);
        kinds := ARRAY(SELECT t.oid FROM pg_type t WHERE t.typnamespace = object);
    END IF;
    IF cardinality(kinds) > 0 THEN
        direct := direct || penstock.tables_with(kinds);
    END IF;
    IF cardinality(direct) = 0 THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH RECURSIVE family (oid) AS (
        SELECT unnest(direct)
        UNION SELECT i.inhrelid FROM family JOIN pg_inherits i ON i.inhparent = family.oid
    )
    SELECT c.oid
      FROM (SELECT oid FROM family
            UNION SELECT i.inhparent FROM pg_inherits i WHERE i.inhrelid = ANY (direct)
            UNION SELECT a.relid FROM unnest(direct) AS one (oid)
                    CROSS JOIN LATERAL pg_partition_ancestors(one.oid) AS a
            UNION SELECT k.conrelid FROM pg_constraint k WHERE k.confrelid = ANY (direct)
           ) AS touched
      JOIN pg_class c ON c.oid = touched.oid
      JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't'
       AND penstock.is_tracked_schema(n.nspname);
END
$$
"""

# The indexes and partitions of a table: when one is dropped, nothing else tells whose it was.
_PARTS = """
CREATE OR REPLACE FUNCTION penstock.parts_of(document json) RETURNS oid[]
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT ARRAY(SELECT (item ->> 'oid')::oid FROM json_array_elements(document -> 'indexes') AS item)
    || ARRAY(SELECT item::oid
               FROM json_array_elements_text(document #> '{tables,0,partitions}') AS item)
$$
"""

# Of the tables that may have changed those that have; and those that are gone.
_LOG_SCHEMA = f"""
CREATE OR REPLACE FUNCTION penstock.log_schema(
    tag text, touched oid[], gone oid[], is_rewrite boolean
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    one oid;
    earlier penstock.schema_log;
    later json;
    number bigint;
    told json[] := '{{}}';
BEGIN
    FOREACH one IN ARRAY touched || gone LOOP
        SELECT * INTO earlier FROM penstock.schema_log
         WHERE table_oid = one ORDER BY id DESC LIMIT 1;
        later := CASE WHEN one = ANY (gone) THEN NULL ELSE penstock.table_document(one) END;
        CONTINUE WHEN later::text IS NOT DISTINCT FROM earlier.after::text AND NOT is_rewrite;
        number := coalesce(number, nextval('penstock.schema_version'));
        INSERT INTO penstock.schema_log (
            schema_name, version, table_oid, table_name, command_tag, is_rewrite, before, after,
            parts
        ) VALUES (
            coalesce(later #>> '{{tables,0,schema}}', earlier.schema_name), number, one,
            coalesce(later #>> '{{tables,0,name}}', earlier.table_name), tag, is_rewrite,
            earlier.after, later, penstock.parts_of(later)
        );
        told := told || json_build_object('table', one::bigint, 'document', later);
    END LOOP;
    IF cardinality(told) > 0 THEN
        PERFORM pg_logical_emit_message(true, '{PREFIX}', json_build_object(
            'version', number, 'tag', tag, 'rewrite', is_rewrite, 'tables', array_to_json(told)
        )::text);
    END IF;
END
$$
"""  # noqa: S608 (the prefix is a constant)


def _trigger(name: str, tables: str) -> str:
    """A trigger function that logs ``tables``, two arrays of oids: touched ones, and gone ones.

    The owner's rights are those of log_schema alone: what a command was about is only told to the
    function that the trigger calls.
    """
    return f"""
CREATE OR REPLACE FUNCTION penstock.{name}() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    touched oid[];
    gone oid[] := '{{}}';
    is_rewrite boolean := false;
BEGIN
    IF lower(current_setting('penstock.track_ddl', true)) IN ('off', 'false', 'no', '0') THEN
        RETURN;
    END IF;
    BEGIN
{tables}
        IF cardinality(touched) + cardinality(gone) > 0 THEN
            PERFORM penstock.log_schema(tg_tag, touched, gone, is_rewrite);
        END IF;
    EXCEPTION WHEN OTHERS THEN
        RAISE WARNING 'penstock could not log this schema change: %', sqlerrm;
        PERFORM pg_logical_emit_message(true, '{PREFIX}', json_build_object(
            'tag', tg_tag, 'failure', sqlerrm
        )::text);
    END;
END
$$
"""


_NOTE_DDL = _trigger(
    "note_ddl",
    """
        SELECT coalesce(array_agg(DISTINCT one), '{}') INTO touched
          FROM pg_event_trigger_ddl_commands() AS command
         CROSS JOIN LATERAL penstock.touched_tables(command.classid, command.objid) AS one;
""",
)

# An index or a partition is gone when we are asked, but not from what was logged of its table.
_NOTE_DROP = _trigger(
    "note_drop",
    """
        SELECT coalesce(array_agg(DISTINCT one.oid), '{}') INTO touched
          FROM pg_event_trigger_dropped_objects() AS dropped
         CROSS JOIN LATERAL (
               SELECT dropped.objid WHERE dropped.object_type = 'table column'
               UNION SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                WHERE dropped.object_type IN ('table constraint', 'default value')
                  AND n.nspname = dropped.address_names[1] AND c.relname = dropped.address_names[2]
               UNION SELECT l.table_oid FROM penstock.schema_log l
                WHERE dropped.object_type IN ('index', 'table')
                  AND (dropped.original OR dropped.normal)
                  AND l.parts @> ARRAY[dropped.objid]
               ) AS logged (oid)
         CROSS JOIN LATERAL penstock.touched_tables('pg_class'::regclass, logged.oid) AS one (oid)
         WHERE NOT dropped.is_temporary;
        SELECT coalesce(array_agg(DISTINCT dropped.objid), '{}') INTO gone
          FROM pg_event_trigger_dropped_objects() AS dropped
         WHERE dropped.object_type = 'table' AND dropped.classid = 'pg_class'::regclass
           AND NOT dropped.is_temporary AND penstock.is_tracked_schema(dropped.schema_name::name);
""",
)

# 2: a default that has to be worked out for each row; 4: another type. Before it happens.
_NOTE_REWRITE = _trigger(
    "note_rewrite",
    """
        is_rewrite := true;
        SELECT coalesce(array_agg(one), '{}') INTO touched
          FROM penstock.touched_tables(
               'pg_class'::regclass, pg_event_trigger_table_rewrite_oid()) AS one
         WHERE one = pg_event_trigger_table_rewrite_oid()
           AND pg_event_trigger_table_rewrite_reason() & 6 <> 0;
""",
)

_CREATE_TRIGGERS = (
    ("penstock_ddl", "ddl_command_end", "note_ddl"),
    ("penstock_drop", "sql_drop", "note_drop"),
    ("penstock_rewrite", "table_rewrite", "note_rewrite"),
)

# What is there before the first change, so that the change has a before.
_FILL = """
INSERT INTO penstock.schema_log (
    schema_name, version, table_oid, table_name, command_tag, after, parts
)
SELECT n.nspname, 0, c.oid, c.relname, 'INIT', made.document, penstock.parts_of(made.document)
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 CROSS JOIN LATERAL (SELECT penstock.table_document(c.oid) AS document) AS made
 WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't' AND penstock.is_tracked_schema(n.nspname)
   AND NOT EXISTS (SELECT FROM penstock.schema_log l WHERE l.table_oid = c.oid)
 ORDER BY c.oid
"""


def is_tracking(conn: psycopg.Connection[Any]) -> bool:
    """Whether all triggers are there and fire in ordinary sessions."""
    row = conn.execute(
        "SELECT count(*) FROM pg_event_trigger WHERE evtname = ANY (%s) AND evtenabled <> 'D'",
        [list(_TRIGGERS)],
    ).fetchone()
    return row == (len(_TRIGGERS),)


def ensure_tracking(conn: psycopg.Connection[Any]) -> bool:
    """Whether it is there in the end. What another role installed is left as it is."""
    return install_tracking(conn) or is_tracking(conn)


def install_tracking(conn: psycopg.Connection[Any]) -> bool:
    """Make log and triggers, or bring them up to date; False where the right to is missing."""
    with source_errors("setting up the log of schema changes"):
        try:
            with conn.transaction():
                # Nothing of our own is logged.
                conn.execute("SET LOCAL penstock.track_ddl = off")
                for statement in _LOG:
                    conn.execute(statement)
                for function in (
                    _IS_TRACKED, _DOCUMENT, _TABLES_WITH, _TOUCHED, _PARTS, _LOG_SCHEMA, _NOTE_DDL,
                    _NOTE_DROP, _NOTE_REWRITE,
                ):  # fmt: skip
                    conn.execute(function.encode())
                conn.execute(
                    "REVOKE ALL ON FUNCTION penstock.log_schema(text, oid[], oid[], boolean)"
                    " FROM public"
                )
                for name, event, function in _CREATE_TRIGGERS:
                    _create_trigger(conn, name, event, function)
                conn.execute(_FILL)
        except errors.InsufficientPrivilege:
            return False
    return True


def _create_trigger(conn: psycopg.Connection[Any], name: str, event: str, function: str) -> None:
    there = conn.execute("SELECT FROM pg_event_trigger WHERE evtname = %s", [name]).fetchone()
    if there is None:
        conn.execute(
            sql.SQL("CREATE EVENT TRIGGER {} ON {} EXECUTE FUNCTION {}()").format(
                sql.Identifier(name), sql.Identifier(event), sql.Identifier("penstock", function)
            )
        )


def remove_tracking(conn: psycopg.Connection[Any]) -> list[str]:
    """Drop triggers, functions and log; says what was removed."""
    with source_errors("removing the log of schema changes"), conn.transaction():
        conn.execute("SET LOCAL penstock.track_ddl = off")
        there = conn.execute(
            "SELECT evtname::text FROM pg_event_trigger WHERE evtname = ANY (%s) ORDER BY evtname",
            [list(_TRIGGERS)],
        ).fetchall()
        for (name,) in there:
            conn.execute(sql.SQL("DROP EVENT TRIGGER {}").format(sql.Identifier(name)))
        for function in _FUNCTIONS:
            conn.execute(f"DROP FUNCTION IF EXISTS penstock.{function}".encode())
        conn.execute("DROP TABLE IF EXISTS penstock.schema_log")
        conn.execute("DROP SEQUENCE IF EXISTS penstock.schema_version")
    return [f"event trigger {name}" for (name,) in there]
