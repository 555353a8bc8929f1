"""The SQL of the event triggers in the source: each schema change becomes a row of a log, and part
of the stream. No I/O.

A change is told as the tables that it touched, before and after it, each as a catalogue document.
It is sent as a transactional logical message, so that it stands between the rows that were written
before it and those that were written after it; a change that is rolled back never happened.

A statement never fails because of us: what cannot be logged is a warning, and told in the stream,
so that the catalogue is asked instead. ``SET penstock.track_ddl = off`` lets a session opt out.

All of it lies in a schema of its own, which belongs to whoever installed it, because it runs with
that role's rights: nobody else may put something there, or replace it.
"""

from __future__ import annotations

from penstock.model.schema_message import PREFIX
from penstock.source.postgres.catalogue import document as catalogue_document

SCHEMA = "penstock_ddl"

TRIGGERS = (
    ("penstock_ddl", "ddl_command_end", "note_ddl"),
    ("penstock_drop", "sql_drop", "note_drop"),
    ("penstock_rewrite", "table_rewrite", "note_rewrite"),
)
"""Name, event and function of each."""

_LOG = (
    # One number for each command, growing; not without gaps, and no transaction waits for another.
    # It begins behind those of a log that was here before, which pipelines may remember.
    "CREATE SEQUENCE IF NOT EXISTS penstock_ddl.schema_version",
    """
    SELECT setval('penstock_ddl.schema_version', (extract(epoch FROM now()) * 1000)::bigint)
      FROM penstock_ddl.schema_version WHERE NOT is_called
    """,
    """
    CREATE TABLE IF NOT EXISTS penstock_ddl.schema_log (
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
    "CREATE INDEX IF NOT EXISTS schema_log_table ON penstock_ddl.schema_log (table_oid, id)",
    "CREATE INDEX IF NOT EXISTS schema_log_parts ON penstock_ddl.schema_log USING gin (parts)",
    """
    CREATE TABLE IF NOT EXISTS penstock_ddl.seal_key (
        is_the_only_one boolean PRIMARY KEY DEFAULT true CHECK (is_the_only_one),
        inner_pad bytea NOT NULL,
        outer_pad bytea NOT NULL
    )""",
    # The two padded forms of a key of HMAC-SHA256: 64 random bytes, xor 0x36 and 0x5c.
    """
    INSERT INTO penstock_ddl.seal_key (inner_pad, outer_pad)
    WITH made AS MATERIALIZED (
        SELECT string_agg(decode(replace(gen_random_uuid()::text, '-', ''), 'hex'), '') AS key
          FROM generate_series(1, 4)
    )
    SELECT string_agg(set_byte('\\x00', 0, get_byte(key, n) # 54), '' ORDER BY n),
           string_agg(set_byte('\\x00', 0, get_byte(key, n) # 92), '' ORDER BY n)
      FROM made CROSS JOIN generate_series(0, 63) AS n
    ON CONFLICT DO NOTHING
    """,
)

# A role that may replicate reads every change anyway. Hosting services have a role for it.
_MAY_REPLICATE = """
CREATE OR REPLACE FUNCTION penstock_ddl.may_replicate(role name) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = role AND (r.rolreplication OR r.rolsuper))
    OR EXISTS (SELECT FROM pg_roles r
                WHERE r.rolname = 'rds_replication' AND pg_has_role(role, r.oid, 'MEMBER'))
$$
"""

_READ_KEY = """
CREATE OR REPLACE FUNCTION penstock_ddl.read_key(OUT inner_pad bytea, OUT outer_pad bytea)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF penstock_ddl.may_replicate(session_user) THEN
        SELECT k.inner_pad, k.outer_pad INTO inner_pad, outer_pad FROM penstock_ddl.seal_key k;
    END IF;
END
$$
"""

_ACKNOWLEDGE = """
CREATE OR REPLACE FUNCTION penstock_ddl.acknowledge(versions bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF penstock_ddl.may_replicate(session_user) THEN
        UPDATE penstock_ddl.schema_log SET acknowledged_at = now()
         WHERE version = ANY (versions) AND acknowledged_at IS NULL;
    END IF;
END
$$
"""

# Bytes, not text: what is sealed must not depend on the database's encoding.
_SEND = f"""
CREATE OR REPLACE FUNCTION penstock_ddl.send(body json) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    content bytea := convert_to(body::text, 'UTF8');
    seal bytea;
BEGIN
    SELECT sha256(k.outer_pad || sha256(k.inner_pad || content)) INTO STRICT seal
      FROM penstock_ddl.seal_key k;
    PERFORM pg_logical_emit_message(
        true, '{PREFIX}', convert_to(encode(seal, 'hex'), 'UTF8') || content);
END
$$
"""  # noqa: S608 (the prefix is a constant)

_IS_TRACKED = """
CREATE OR REPLACE FUNCTION penstock_ddl.is_tracked_schema(name name) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
SELECT name NOT IN ('information_schema', 'penstock', 'penstock_ddl') AND left(name, 3) <> 'pg_'
$$
"""

# The settings are those of the session that changes a table: for names as the server writes them,
# and for the values of rows that are older than a column, which it holds as text.
_DOCUMENT = f"""
CREATE OR REPLACE FUNCTION penstock_ddl.table_document(of oid) RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO'
SET intervalstyle = 'postgres' SET timezone = 'UTC' SET bytea_output = 'hex'
SET extra_float_digits = 1 SET standard_conforming_strings = on SET lc_monetary = 'C'
SET quote_all_identifiers = off AS $$
BEGIN
    RETURN ({catalogue_document.as_function(catalogue_document.TABLES, "ARRAY[of]")});
END
$$
"""

# All tables with one of these types, directly or inside of other types.
_TABLES_WITH = """
CREATE OR REPLACE FUNCTION penstock_ddl.tables_with(kinds oid[]) RETURNS oid[]
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
CREATE OR REPLACE FUNCTION penstock_ddl.touched_tables(class oid, object oid) RETURNS SETOF oid
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
        direct := direct || penstock_ddl.tables_with(kinds);
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
       AND penstock_ddl.is_tracked_schema(n.nspname);
END
$$
"""

# The indexes and partitions of a table: when one is dropped, nothing else tells whose it was.
_PARTS = """
CREATE OR REPLACE FUNCTION penstock_ddl.parts_of(document json) RETURNS oid[]
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT ARRAY(SELECT (item ->> 'oid')::oid FROM json_array_elements(document -> 'indexes') AS item)
    || ARRAY(SELECT item::oid
               FROM json_array_elements_text(document #> '{tables,0,partitions}') AS item)
$$
"""

# Of the tables that may have changed those that have; and those that are gone.
#
# Not every change of a table locks it against others: of two transactions that change it at once
# (an index each, a value of an enum), or of which one has an older snapshot, neither sees what the
# other did. So each tells which changes of the table it has ``seen``, its own among them; ten, as
# no table is changed by more at once. And what it finds may be as the newest row says although
# something lies between, where that row did not see the one before it.
_LOG_SCHEMA = """
CREATE OR REPLACE FUNCTION penstock_ddl.log_schema(
    tag text, touched oid[], gone oid[], is_rewrite boolean
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    one oid;
    earlier penstock_ddl.schema_log;
    seen bigint[];
    was_overtaken boolean;
    later json;
    number bigint;
    told json[] := '{}';
BEGIN
    FOREACH one IN ARRAY touched || gone LOOP
        SELECT * INTO earlier FROM penstock_ddl.schema_log
         WHERE table_oid = one ORDER BY id DESC LIMIT 1;
        seen := ARRAY(SELECT l.version FROM penstock_ddl.schema_log l
                       WHERE l.table_oid = one ORDER BY l.id DESC LIMIT 10);
        was_overtaken := coalesce((
            SELECT l.after::text IS DISTINCT FROM earlier.before::text
              FROM penstock_ddl.schema_log l
             WHERE l.table_oid = one AND l.id < earlier.id ORDER BY l.id DESC LIMIT 1), false);
        later := CASE WHEN one = ANY (gone) THEN NULL ELSE penstock_ddl.table_document(one) END;
        CONTINUE WHEN later::text IS NOT DISTINCT FROM earlier.after::text
                  AND NOT is_rewrite AND NOT was_overtaken;
        number := coalesce(number, nextval('penstock_ddl.schema_version'));
        INSERT INTO penstock_ddl.schema_log (
            schema_name, version, table_oid, table_name, command_tag, is_rewrite, before, after,
            parts
        ) VALUES (
            coalesce(later #>> '{tables,0,schema}', earlier.schema_name), number, one,
            coalesce(later #>> '{tables,0,name}', earlier.table_name), tag, is_rewrite,
            earlier.after, later, penstock_ddl.parts_of(later)
        );
        told := told || json_build_object(
            'table', one::bigint, 'document', later, 'seen', to_json(seen));
    END LOOP;
    IF cardinality(told) > 0 THEN
        PERFORM penstock_ddl.send(json_build_object(
            'xid', pg_current_xact_id()::text, 'version', number, 'tag', tag,
            'rewrite', is_rewrite, 'tables', array_to_json(told)
        ));
    END IF;
END
$$
"""


def _trigger(name: str, tables: str) -> str:
    """A trigger function that logs ``tables``, two arrays of oids: touched ones, and gone ones.

    The owner's rights are those of log_schema alone: what a command was about is only told to the
    function that the trigger calls.
    """
    return f"""
CREATE OR REPLACE FUNCTION penstock_ddl.{name}() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    touched oid[];
    gone oid[] := '{{}}';
    is_rewrite boolean := false;
    rewritten json := '[]';
    failure text;
BEGIN
    IF lower(current_setting('penstock.track_ddl', true)) IN ('off', 'false', 'no', '0') THEN
        RETURN;
    END IF;
    BEGIN
{tables}
        IF cardinality(touched) + cardinality(gone) > 0 THEN
            PERFORM penstock_ddl.log_schema(tg_tag, touched, gone, is_rewrite);
        END IF;
    EXCEPTION WHEN OTHERS THEN
        RAISE WARNING 'penstock could not log this schema change: %', sqlerrm;
        failure := sqlerrm;
    END;
    IF failure IS NOT NULL THEN
        IF is_rewrite THEN
            rewritten := json_build_array(json_build_object(
                'table', pg_event_trigger_table_rewrite_oid()::bigint, 'document', NULL));
        END IF;
        BEGIN
            PERFORM penstock_ddl.send(json_build_object(
                'xid', pg_current_xact_id()::text, 'tag', tg_tag, 'failure', failure,
                'rewrite', is_rewrite, 'tables', rewritten
            ));
        EXCEPTION WHEN OTHERS THEN
            RAISE WARNING 'penstock could not tell of this schema change: %', sqlerrm;
        END;
    END IF;
END
$$
"""


_NOTE_DDL = _trigger(
    "note_ddl",
    """
        SELECT coalesce(array_agg(DISTINCT one), '{}') INTO touched
          FROM pg_event_trigger_ddl_commands() AS command
         CROSS JOIN LATERAL penstock_ddl.touched_tables(command.classid, command.objid) AS one;
""",
)

# An index or a partition is gone when we are asked, but not from what was logged of its table. An
# index that REINDEX CONCURRENTLY made anew, of which nothing tells before Postgres 17, is found by
# its name alone.
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
               UNION SELECT l.table_oid FROM penstock_ddl.schema_log l
                WHERE dropped.object_type IN ('index', 'table')
                  AND (dropped.original OR dropped.normal)
                  AND l.parts @> ARRAY[dropped.objid]
               UNION SELECT l.table_oid FROM penstock_ddl.schema_log l
                      CROSS JOIN LATERAL json_array_elements(l.after -> 'indexes') AS item
                WHERE dropped.object_type = 'index'
                  AND (dropped.original OR dropped.normal)
                  AND NOT EXISTS (SELECT FROM penstock_ddl.schema_log known
                                   WHERE known.parts @> ARRAY[dropped.objid])
                  AND l.schema_name = dropped.schema_name
                  AND item ->> 'name' = dropped.object_name
               ) AS logged (oid)
         CROSS JOIN LATERAL penstock_ddl.touched_tables(
               'pg_class'::regclass, logged.oid) AS one (oid)
         WHERE NOT dropped.is_temporary;
        SELECT coalesce(array_agg(DISTINCT dropped.objid), '{}') INTO gone
          FROM pg_event_trigger_dropped_objects() AS dropped
         WHERE dropped.object_type = 'table' AND dropped.classid = 'pg_class'::regclass
           AND NOT dropped.is_temporary
           AND penstock_ddl.is_tracked_schema(dropped.schema_name::name);
""",
)

# 2: a default that has to be worked out for each row; 4: another type. Before it happens.
_NOTE_REWRITE = _trigger(
    "note_rewrite",
    """
        is_rewrite := true;
        SELECT coalesce(array_agg(one), '{}') INTO touched
          FROM penstock_ddl.touched_tables(
               'pg_class'::regclass, pg_event_trigger_table_rewrite_oid()) AS one
         WHERE one = pg_event_trigger_table_rewrite_oid()
           AND pg_event_trigger_table_rewrite_reason() & 6 <> 0;
""",
)

# What is there before the first change, so that the change has a before.
FILL = """
INSERT INTO penstock_ddl.schema_log (
    schema_name, version, table_oid, table_name, command_tag, after, parts
)
SELECT n.nspname, numbers.last_value, c.oid, c.relname, 'INIT', made.document,
       penstock_ddl.parts_of(made.document)
  FROM penstock_ddl.schema_version AS numbers
 CROSS JOIN pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 CROSS JOIN LATERAL (SELECT penstock_ddl.table_document(c.oid) AS document) AS made
 WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't'
   AND penstock_ddl.is_tracked_schema(n.nspname)
   AND NOT EXISTS (SELECT FROM penstock_ddl.schema_log l WHERE l.table_oid = c.oid)
 ORDER BY c.oid
"""

STATEMENTS = (
    *_LOG, _IS_TRACKED, _DOCUMENT, _TABLES_WITH, _TOUCHED, _PARTS, _MAY_REPLICATE, _READ_KEY,
    _ACKNOWLEDGE, _SEND, _LOG_SCHEMA, _NOTE_DDL, _NOTE_DROP, _NOTE_REWRITE,
)  # fmt: skip
"""What makes all but the schema and the triggers, or brings it up to date."""
