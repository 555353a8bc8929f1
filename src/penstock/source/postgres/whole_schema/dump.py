"""Takes the whole schema of the source, under the snapshot that its rows are copied under."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.config.connection_url import ConnectionUrl
from penstock.model.errors import SourceError, SourceUnavailable
from penstock.source.postgres.connect import connect, without_secrets
from penstock.source.postgres.snapshot.reading import is_held
from penstock.source.postgres.snapshot.snapshot_record import HeldSnapshot
from penstock.source.postgres.source_errors import source_errors
from penstock.source.postgres.whole_schema.programs import find_programs
from penstock.source.schema_dump import (
    DumpedIndex,
    DumpedRole,
    DumpFacts,
    DumpOptions,
    SchemaDump,
    SequenceValue,
)

OWN_SCHEMAS = ("penstock", "penstock_ddl")
"""Penstock's own, which are no part of anybody's schema."""

# By their keys rows can be found: plain columns, all rows, checked at once.
_INDEXES = """
SELECT i.indexrelid::bigint, coalesce(c.oid, 0)::bigint,
       coalesce(pg_partition_root(i.indrelid), i.indrelid)::bigint,
       n.nspname::text, x.relname::text, i.indisprimary, t.relispartition,
       CASE WHEN i.indisunique AND i.indimmediate AND i.indpred IS NULL AND NOT i.indisexclusion
                 AND NOT 0 = ANY (i.indkey)
            THEN ARRAY(SELECT a.attname::text
                         FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)
                         JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
                        WHERE k.place <= i.indnkeyatts ORDER BY k.place)
            ELSE '{}' END
  FROM pg_index i
  JOIN pg_class x ON x.oid = i.indexrelid
  JOIN pg_class t ON t.oid = i.indrelid AND t.relkind IN ('r', 'p')
  JOIN pg_namespace n ON n.oid = x.relnamespace
  LEFT JOIN pg_constraint c ON c.conindid = i.indexrelid AND c.contype IN ('p', 'u', 'x')
 WHERE n.nspname <> ALL (%s) AND n.nspname !~ '^pg_'
"""

_FOREIGN_KEYS = """
SELECT c.oid::bigint, n.nspname::text, t.relname::text, c.conname::text
  FROM pg_constraint c
  JOIN pg_class t ON t.oid = c.conrelid
  JOIN pg_namespace n ON n.oid = t.relnamespace
 WHERE c.contype = 'f' AND n.nspname <> ALL (%s)
"""

_POPULATED = """
SELECT n.nspname::text, c.relname::text
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind = 'm' AND c.relispopulated
"""

_ROLES = """
SELECT r.rolname::text, r.rolcanlogin, r.rolinherit,
       ARRAY(SELECT g.rolname::text FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid
              WHERE m.member = r.oid ORDER BY 1)
  FROM pg_roles r
 WHERE r.rolname !~ '^pg_' AND NOT r.rolsuper
 ORDER BY 1
"""

# Sequences that the role may not read are left alone, as are those of sessions. CASE: the planner
# may ask for the privilege first, which no other relation has.
_SEQUENCES = """
SELECT n.nspname::text, c.relname::text
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind = 'S' AND c.relpersistence <> 't' AND n.nspname <> ALL (%s)
   AND n.nspname !~ '^pg_'
   AND CASE WHEN c.relkind = 'S' THEN has_sequence_privilege(c.oid, 'SELECT') END
 ORDER BY 1, 2
"""
_SEQUENCES_A_STATEMENT = 200
_STOP_SECONDS = 10.0
_TURN_SECONDS = 0.2
_LOCK = "5s"
_SHOWN = 600
# A server that is gone, and a snapshot that went with it.
_PASSES = re.compile(
    r"connection to server|server closed|terminating connection|snapshot .* does not exist"
    r"|invalid snapshot identifier|deadlock detected|canceling statement|lock timeout"
)


def dump_schema(
    url: ConnectionUrl,
    snapshot: HeldSnapshot | None,
    options: DumpOptions,
    check: Callable[[], None],
    *,
    application: str,
) -> SchemaDump:
    """The schema under a snapshot, or as it is now. ``check`` is called meanwhile; what it raises
    ends it.

    Raises SourceError where no pg_dump fits, or where it may not read something.
    """
    with connect(url, application_name=application) as conn, source_errors("reading the schema"):
        programs = find_programs(conn.info.server_version // 10000, options.programs)
        facts = _facts(conn, snapshot, options)
    with tempfile.TemporaryDirectory(prefix="penstock-schema-") as folder:
        file = Path(folder, "schema.dump")
        arguments = [
            *(programs.pg_dump, "--format=custom", "--compress=0", "--schema-only"),
            *("--encoding=UTF8", "--no-password", "--no-publications", "--no-subscriptions"),
            *("--no-security-labels", f"--file={file}"),
            # Whoever alters tables just now is not to wait for somebody who only looks.
            *([f"--snapshot={snapshot.name}"] if snapshot else [f"--lock-wait-timeout={_LOCK}"]),
            *(f"--exclude-schema={schema}" for schema in OWN_SCHEMAS),
        ]
        _run(arguments, url, check, application)
        if snapshot is not None:
            with connect(url, application_name=application) as conn:
                _expect_held(conn, snapshot)
        return SchemaDump(file.read_bytes(), snapshot.lsn if snapshot else 0, facts)


def read_sequences(url: ConnectionUrl, *, application: str) -> list[SequenceValue]:
    """Where every sequence stands now: they belong to no snapshot."""
    with connect(url, application_name=application) as conn, source_errors("reading sequences"):
        names = conn.execute(_SEQUENCES, [list(OWN_SCHEMAS)]).fetchall()
        found = []
        for start in range(0, len(names), _SEQUENCES_A_STATEMENT):
            some = names[start : start + _SEQUENCES_A_STATEMENT]
            each = [
                sql.SQL("SELECT {}, {}, last_value, is_called FROM {}").format(
                    sql.Literal(schema), sql.Literal(name), sql.Identifier(schema, name)
                )
                for schema, name in some
            ]
            found += conn.execute(sql.SQL(" UNION ALL ").join(each)).fetchall()
    return [SequenceValue(*row) for row in found]


def _facts(
    conn: psycopg.Connection[Any], snapshot: HeldSnapshot | None, options: DumpOptions
) -> DumpFacts:
    own = [*OWN_SCHEMAS]
    with conn.transaction():
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            if snapshot is not None:
                name = sql.Literal(snapshot.name)
                conn.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(name))
                _expect_held(conn, snapshot)
        except (psycopg.errors.UndefinedObject, psycopg.errors.InvalidParameterValue) as error:
            raise _snapshot_ended() from error
        indexes = conn.execute(_INDEXES, [own]).fetchall()
        foreign_keys = conn.execute(_FOREIGN_KEYS, [own]).fetchall()
        populated = conn.execute(_POPULATED).fetchall()
        roles = conn.execute(_ROLES).fetchall() if options.roles else []
        large = conn.execute("SELECT count(*) FROM pg_largeobject_metadata").fetchone()
    uncopied = []
    if large and large[0]:
        uncopied.append(
            f"{large[0]} large objects (lo_create) are not copied: logical replication has none"
        )
    return DumpFacts(
        indexes=tuple(
            DumpedIndex(oid, constraint, table, schema, name, tuple(columns), *rest)
            for oid, constraint, table, schema, name, *rest, columns in indexes
        ),
        foreign_keys={oid: (schema, table, name) for oid, schema, table, name in foreign_keys},
        populated=tuple((schema, name) for schema, name in populated),
        roles=tuple(
            DumpedRole(name, login, inherits, tuple(groups))
            for name, login, inherits, groups in roles
        ),
        uncopied=tuple(uncopied),
    )


def _expect_held(conn: psycopg.Connection[Any], snapshot: HeldSnapshot) -> None:
    """After a restart of the server the same name may be another's."""
    with source_errors("asking who holds a snapshot"):
        row = conn.execute(sql.SQL("SELECT {}").format(is_held(snapshot.holder))).fetchone()
    if row != (True,):
        raise _snapshot_ended()


def _snapshot_ended() -> SourceUnavailable:
    return SourceUnavailable("The snapshot ended before the schema was read.")


def _run(
    arguments: list[str], url: ConnectionUrl, check: Callable[[], None], application: str
) -> None:
    parameters = conninfo_to_dict(url.reveal(), application_name=application)
    environment = {name: value for name, value in os.environ.items() if name != "PGPASSWORD"}
    # Not among the arguments, which everybody on this machine can read.
    if (password := parameters.pop("password", None)) is not None:
        environment["PGPASSWORD"] = str(password)
    for secret in ("sslpassword", "oauth_client_secret"):
        parameters.pop(secret, None)
    # A file, not a pipe: nobody reads while it runs.
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [*arguments, f"--dbname={make_conninfo('', **parameters)}"],
            env={**environment, "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
        try:
            while True:
                try:
                    code = process.wait(_TURN_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    check()
        except BaseException:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            raise
        said.seek(0)
        text = without_secrets(said.read().decode(errors="replace"), url)
    if not code:
        return
    if _PASSES.search(text):
        raise SourceUnavailable(f"pg_dump was interrupted: {text[:_SHOWN]}")
    raise SourceError(
        f"pg_dump could not read the schema of database {url.database!r}: {text[:_SHOWN]}.",
        remedy="If a right is missing: GRANT pg_read_all_data TO the role of source.url;"
        " schema: full reads every table's definition, also of those that are not followed.",
    )
