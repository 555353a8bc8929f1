"""What is remembered of each target: whether we made it, and how far its copy has come."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from penstock.destination.postgres.sessions.session import Connection
from penstock.destination.postgres.targets.target_table import TargetTable
from penstock.model.errors import Fenced
from penstock.model.table_definition import TableDefinition

TABLES = (
    # copy counts the copies that were begun: what was written for an earlier one is void.
    """CREATE TABLE IF NOT EXISTS penstock.target_table (
        pipeline text,
        source_table bigint,
        target oid NOT NULL,
        created boolean NOT NULL,
        foreign_rows boolean NOT NULL,
        complete boolean NOT NULL DEFAULT true,
        copy bigint NOT NULL DEFAULT 0,
        PRIMARY KEY (pipeline, source_table)
    )""",
    # Indexes and constraints that we made, by what they are called in the source.
    """CREATE TABLE IF NOT EXISTS penstock.target_object (
        pipeline text,
        source_table bigint,
        kind text,
        source_name text,
        name text NOT NULL,
        PRIMARY KEY (pipeline, source_table, kind, source_name)
    )""",
    """CREATE TABLE IF NOT EXISTS penstock.copied_chunk (
        pipeline text,
        source_table bigint,
        chunk text,
        PRIMARY KEY (pipeline, source_table, chunk)
    )""",
    # No key: the text of one may be longer than what an index takes.
    """CREATE TABLE IF NOT EXISTS penstock.parked_key (
        pipeline text NOT NULL,
        source_table bigint NOT NULL,
        key text[] NOT NULL
    )""",
)
NAMES = ("target_table", "target_object", "copied_chunk", "parked_key")

_CHUNK_COUNTS = "ALTER TABLE penstock.copied_chunk ADD COLUMN rows bigint, ADD COLUMN bytes bigint"


@dataclass(frozen=True)
class TargetRecord:
    """``target`` is the target's oid; one that somebody made anew has another."""

    target: int
    created: bool
    foreign_rows: bool
    complete: bool
    copy: int


def add_chunk_counts(conn: Connection) -> None:
    """Chunks were recorded without their size at first. Asked before: ALTER TABLE would wait for
    every chunk that is being written.
    """
    row = conn.execute(
        "SELECT count(*) FROM pg_attribute WHERE attname = 'rows'"
        " AND attrelid = to_regclass('penstock.copied_chunk')"
    ).fetchone()
    if row == (0,):
        conn.execute(_CHUNK_COUNTS)


def read_records(
    conn: Connection, pipeline: str, table: int | None = None
) -> dict[int, TargetRecord]:
    """By the table's oid in the source: all, or the one of ``table``."""
    rows = conn.execute(
        "SELECT source_table, target::bigint, created, foreign_rows, complete, copy"
        " FROM penstock.target_table WHERE pipeline = %s AND (%s::bigint IS NULL"
        " OR source_table = %s)",
        [pipeline, table, table],
    )
    return {source: TargetRecord(*rest) for source, *rest in rows}


def recorded_target(conn: Connection, pipeline: str, table: TableDefinition) -> TargetTable | None:
    """The target that a table was last known to have, if it is there, under its name of now."""
    record = read_records(conn, pipeline, table.oid).get(table.oid)
    if record is None:
        return None
    row = conn.execute(
        "SELECT n.nspname::text, c.relname::text FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %s",
        [record.target],
    ).fetchone()
    if row is None:
        return None
    schema, name = row
    return TargetTable(
        table.oid,
        table.schema,
        table.name,
        schema,
        name,
        columns=(),
        created=record.created,
        oid=record.target,
    )


def record_targets(
    conn: Connection, pipeline: str, targets: Sequence[TargetTable], *, is_new: bool
) -> None:
    """Remember targets that are not known yet, or that somebody made anew.

    Rows that stand in a target now are somebody else's, unless we made it, or, where the pipeline
    is not new, was delivered to before anything was remembered.
    """
    known = read_records(conn, pipeline)
    found = [t for t in targets if (r := known.get(t.source_oid)) is None or r.target != t.oid]
    if not found:
        return
    ours = not known and not is_new
    rows = [
        {
            "source": target.source_oid,
            "target": target.oid,
            "created": target.created,
            "foreign": not (target.created or ours) and has_rows(conn, target),
        }
        for target in found
    ]
    forget_copies(conn, pipeline, [target.source_oid for target in found])
    conn.execute(
        "INSERT INTO penstock.target_table AS t"
        " (pipeline, source_table, target, created, foreign_rows)"
        ' SELECT %s, r.source, r.target, r.created, r."foreign" FROM jsonb_to_recordset(%s::jsonb)'
        ' AS r (source bigint, target oid, created boolean, "foreign" boolean)'
        " ON CONFLICT (pipeline, source_table) DO UPDATE SET target = excluded.target,"
        " created = excluded.created, foreign_rows = excluded.foreign_rows, complete = true,"
        " copy = t.copy + 1",
        [pipeline, json.dumps(rows)],
    )
    conn.execute(
        "DELETE FROM penstock.target_object WHERE pipeline = %s AND source_table = ANY(%s)",
        [pipeline, [target.source_oid for target in found]],
    )


def has_rows(conn: Connection, target: TargetTable) -> bool:
    name = sql.Identifier(target.schema, target.name)
    row = conn.execute(sql.SQL("SELECT EXISTS (SELECT FROM {})").format(name)).fetchone()
    return bool(row and row[0])


def has_chunks(conn: Connection, pipeline: str, table: int) -> bool:
    row = conn.execute(
        "SELECT EXISTS (SELECT FROM penstock.copied_chunk"
        " WHERE pipeline = %s AND source_table = %s)",
        [pipeline, table],
    ).fetchone()
    return bool(row and row[0])


def begin_copy(conn: Connection, pipeline: str, table: int) -> None:
    """From now on no chunk counts as written, and what tasks of an earlier copy write is refused.

    Waits for those that are writing.
    """
    conn.execute(
        "UPDATE penstock.target_table SET copy = copy + 1, complete = false, foreign_rows = false"
        " WHERE pipeline = %s AND source_table = %s",
        [pipeline, table],
    )
    forget_copies(conn, pipeline, [table])


def forget_copies(conn: Connection, pipeline: str, tables: Sequence[int]) -> None:
    """Chunks and parked keys."""
    for name in ("copied_chunk", "parked_key"):
        conn.execute(
            sql.SQL("DELETE FROM {} WHERE pipeline = %s AND source_table = ANY(%s)").format(
                sql.Identifier("penstock", name)
            ),
            [pipeline, list(tables)],
        )


def set_complete(conn: Connection, pipeline: str, table: int) -> None:
    conn.execute(
        "UPDATE penstock.target_table SET complete = true"
        " WHERE pipeline = %s AND source_table = %s AND NOT complete",
        [pipeline, table],
    )


def begin_chunk(
    conn: Connection, pipeline: str, table: int, copy: int, chunk: str, *, patience: float
) -> tuple[int, int] | None:
    """Claim a chunk in the transaction that writes it; its rows and bytes where it stands already.
    Waits for another one that writes it now, for ``patience`` seconds (0: as long as it takes), and
    raises LockNotAvailable then.

    Raises Fenced where the copy that it belongs to has been given up.
    """
    wait_for_locks = "SELECT set_config('lock_timeout', %s, true)"
    conn.execute(wait_for_locks, [f"{patience * 1000:.0f}"])
    current = conn.execute(
        "SELECT copy FROM penstock.target_table WHERE pipeline = %s AND source_table = %s"
        " FOR SHARE",
        [pipeline, table],
    ).fetchone()
    if current != (copy,):
        raise Fenced(
            f"destination postgres: the copy of table {table} that chunk {chunk} belongs to was "
            "given up; nothing of the chunk was written",
            remedy="nothing to do: the table is copied anew, or no longer followed",
        )
    fresh = conn.execute(
        "INSERT INTO penstock.copied_chunk (pipeline, source_table, chunk) VALUES (%s, %s, %s)"
        " ON CONFLICT DO NOTHING",
        [pipeline, table, chunk],
    ).rowcount
    conn.execute(wait_for_locks, ["0"])
    if fresh:
        return None
    row = conn.execute(
        "SELECT coalesce(rows, 0), coalesce(bytes, 0) FROM penstock.copied_chunk"
        " WHERE pipeline = %s AND source_table = %s AND chunk = %s",
        [pipeline, table, chunk],
    ).fetchone()
    return (int(row[0]), int(row[1])) if row else (0, 0)


def end_chunk(
    conn: Connection, pipeline: str, table: int, chunk: str, rows: int, size: int
) -> None:
    conn.execute(
        "UPDATE penstock.copied_chunk SET rows = %s, bytes = %s"
        " WHERE pipeline = %s AND source_table = %s AND chunk = %s",
        [rows, size, pipeline, table, chunk],
    )


def forget_target(conn: Connection, pipeline: str, table: int) -> None:
    """All that is remembered of a target."""
    forget_copies(conn, pipeline, [table])
    for name in ("target_object", "target_table"):
        conn.execute(
            sql.SQL("DELETE FROM {} WHERE pipeline = %s AND source_table = %s").format(
                sql.Identifier("penstock", name)
            ),
            [pipeline, table],
        )
