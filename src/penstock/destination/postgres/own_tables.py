"""The schema ``penstock`` at the destination: progress, dead letters, copies, staging."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from psycopg import sql

from penstock.destination.postgres import progress
from penstock.destination.postgres.merging import dead_letters
from penstock.destination.postgres.sessions.session import Connection, destination_errors
from penstock.destination.postgres.staging.stage import SCHEMA, staging_pattern
from penstock.destination.postgres.targets import target_record
from penstock.destination.postgres.targets.target_table import TargetTable
from penstock.destination.postgres.whole_schema import record as schema_record
from penstock.model.errors import DestinationError
from penstock.source.postgres.made_once import make_once


def ensure_own_tables(conn: Connection) -> None:
    """Create what is missing; says which right the role lacks."""
    with destination_errors("creating Penstock's own tables"):
        make_once(conn, partial(_make_own_tables, conn))


def _make_own_tables(conn: Connection) -> None:
    exists = conn.execute("SELECT to_regnamespace(%s) IS NOT NULL", [SCHEMA]).fetchone()
    if not exists or not exists[0]:
        conn.execute("CREATE SCHEMA penstock")
    for statement in (
        progress.TABLE,
        *dead_letters.TABLES,
        *target_record.TABLES,
        schema_record.TABLE,
    ):
        conn.execute(statement.encode())
    target_record.add_chunk_counts(conn)
    progress.add_source(conn)


def has_own_tables(conn: Connection) -> bool:
    row = conn.execute("SELECT to_regclass('penstock.progress') IS NOT NULL").fetchone()
    return bool(row and row[0])


def forget_pipeline(conn: Connection, pipeline: str) -> list[str]:
    """Remove a pipeline's position and staging tables. Targets and dead letters stay."""
    if not has_own_tables(conn):
        return []
    with conn.transaction():
        staging = conn.execute(
            "SELECT relname::text FROM pg_class WHERE relnamespace = to_regnamespace(%s)"
            " AND relkind = 'r' AND relname ~ %s",
            [SCHEMA, staging_pattern(pipeline)],
        ).fetchall()
        for (name,) in staging:
            conn.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(SCHEMA, name)))
        own = ("progress", "stage_dead_letter", *target_record.NAMES, schema_record.NAME)
        for table in own:
            there = conn.execute("SELECT to_regclass(%s)::text", [f"{SCHEMA}.{table}"]).fetchone()
            if there == (None,):
                continue  # an earlier version had fewer
            conn.execute(
                sql.SQL("DELETE FROM {} WHERE pipeline = %s").format(sql.Identifier(SCHEMA, table)),
                [pipeline],
            )
    return [f"position and {len(staging)} staging tables at the destination"]


def check_rights(conn: Connection, *, disable_triggers: bool) -> tuple[str, ...]:
    """Raise DestinationError where the role could not write; what a person should know else."""
    with destination_errors("checking rights"):
        row = conn.execute(
            "SELECT current_user::text, current_database()::text,"
            " pg_is_in_recovery(), current_setting('transaction_read_only')::bool,"
            " has_database_privilege(current_database(), 'CREATE'),"
            " CASE WHEN to_regnamespace('penstock') IS NULL THEN NULL"
            " ELSE has_schema_privilege('penstock', 'CREATE, USAGE') END"
        ).fetchone()
        role, database, recovers, read_only, may_create, may_use = row or ("", "", 0, 0, 0, 0)
        if recovers or read_only:
            raise DestinationError(
                f"database {database} is read-only",
                remedy="point destination.url at a primary server that can be written to",
            )
        if may_use is False or (may_use is None and not may_create):
            raise DestinationError(
                f"role {role} may not keep Penstock's own tables in database {database}",
                remedy=f"run as the database's owner: GRANT CREATE ON DATABASE {database} TO "
                f"{role}; or create the schema for it: CREATE SCHEMA penstock AUTHORIZATION {role}",
            )
    if disable_triggers and not may_disable_triggers(conn):
        note = (
            f"role {role} may not set session_replication_role, so triggers and foreign keys of "
            "existing target tables stay on while rows are applied; GRANT SET ON PARAMETER "
            f"session_replication_role TO {role} (Postgres 15 and newer) turns them off"
        )
        return (note,)
    return ()


# Actions that a foreign key takes by itself when a row that it refers to goes or moves.
_ACTIONS = """
SELECT format('%%s of %%I.%%I', f.conname, n.nspname, c.relname)
  FROM unnest(%s::text[], %s::text[]) AS wanted (schema, name)
  JOIN pg_namespace r ON r.nspname = wanted.schema
  JOIN pg_class parent ON parent.relnamespace = r.oid AND parent.relname = wanted.name
  JOIN pg_constraint f ON f.confrelid = parent.oid AND f.contype = 'f' AND f.conparentid = 0
                      AND (f.confdeltype IN ('c', 'n', 'd') OR f.confupdtype IN ('c', 'n', 'd'))
  JOIN pg_class c ON c.oid = f.conrelid
  JOIN pg_namespace n ON n.oid = c.relnamespace
 ORDER BY 1
"""


def refuse_actions(conn: Connection, targets: Sequence[TargetTable]) -> None:
    """Raise DestinationError where triggers are on, and rows would go that the source still has.

    The source's own actions arrive as changes. Ours delete a row to make it anew, and a cascade
    would take along what refers to it.
    """
    found = conn.execute(
        _ACTIONS, [[target.schema for target in targets], [target.name for target in targets]]
    )
    names = [name for (name,) in found]
    if names:
        raise DestinationError(
            "Foreign keys at the destination would delete or change rows by themselves while rows "
            f"are applied: {', '.join(names)}",
            remedy="let the role switch them off (GRANT SET ON PARAMETER session_replication_role "
            "TO it, Postgres 15 and newer, or a superuser; and destination.disable_triggers: true),"
            " or make them again with ON DELETE NO ACTION and ON UPDATE NO ACTION",
        )


def may_disable_triggers(conn: Connection) -> bool:
    """Whether this role may switch triggers and foreign keys off for its own session."""
    if conn.info.server_version >= 150000:
        row = conn.execute(
            "SELECT has_parameter_privilege('session_replication_role', 'SET')"
        ).fetchone()
    else:
        row = conn.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user").fetchone()
    return bool(row and row[0])
