"""The executor's side of a copy: a chunk goes straight into its target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from psycopg import errors

from penstock.cadence import paced
from penstock.config.connection_url import ConnectionUrl
from penstock.destination.contract import ChunkReceipt, ChunkWriter
from penstock.destination.postgres.copying.copied_rows import CopiedRows, copy_refusal
from penstock.destination.postgres.merging.dead_letters import target_refusal
from penstock.destination.postgres.own_tables import may_disable_triggers
from penstock.destination.postgres.sessions.session import (
    Connection,
    as_destination_error,
    destination_errors,
    is_passing,
    is_refusal,
    open_session,
    session_name,
)
from penstock.destination.postgres.staging.stage import Stage
from penstock.destination.postgres.staging.task_writer import (
    forget_session,
    kept_session,
)
from penstock.destination.postgres.targets.target_record import begin_chunk, end_chunk
from penstock.failpoints import failpoint
from penstock.model.lsn import Position
from penstock.model.table_definition import TableDefinition
from penstock.model.table_rows import ChunkReader
from penstock.source.postgres.logged_in import as_logged_in

# Built-in types whose binary form every server reads as the same value. An interval is not among
# them, since before version 17 an infinite one would be taken for a finite; nor is money, which
# means what lc_monetary says, nor xml, which may declare an encoding.
_SAME_BINARY = frozenset(
    (
        *("boolean", "bytea", "smallint", "integer", "bigint", "real", "double precision"),
        *("numeric", "text", "character varying", "character", '"char"', "name", "oid", "uuid"),
        *("json", "jsonb", "pg_lsn", "date", "time without time zone", "time with time zone"),
        *("timestamp without time zone", "timestamp with time zone"),
        *("inet", "cidr", "macaddr", "macaddr8", "bit", "bit varying"),
        *("point", "line", "lseg", "box", "path", "polygon", "circle"),
        *("int4range", "int8range", "numrange", "daterange", "tsrange", "tstzrange"),
    )
)


def passes_binary(table: TableDefinition, stage: Stage) -> bool:
    """Whether the binary form of every column means the same at both ends."""
    theirs = {column.name: column.type for column in table.columns}
    return all(
        (kind := theirs.get(column.name)) is not None
        and not kind.is_user_defined
        # A modifier may stand inside: timestamp(3) with time zone.
        and kind.name + kind.modifier[kind.modifier.find(")") + 1 :] in _SAME_BINARY
        and kind.name + kind.modifier + ("[]" if kind.is_array else "") == column.type
        for column in stage.columns
    )


# So long one that writes a chunk is waited for by another one that is to write it, too: it has lost
# its lease, or Spark has given it up.
_PATIENCE = paced(30.0)
# Those in a transaction whose client sends nothing; ours, whoever has begun them.
_END_STUCK = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = %s AND datname = current_database() AND usename = session_user
AND pid <> pg_backend_pid() AND wait_event = 'ClientRead'
AND xact_start < clock_timestamp() - %s * interval '1 second'
"""


@dataclass(frozen=True)
class PostgresChunkWriter(ChunkWriter):
    """Writes chunks of one table, each in one transaction with the record that it is there."""

    url: ConnectionUrl
    pipeline: str
    stage: Stage
    copy: int
    again: bool
    binary: bool
    dead_letter: bool
    disable_triggers: bool

    def write(self, rows: ChunkReader) -> ChunkReceipt:
        conn = kept_session(self.url, "copy", self._connect)
        try:
            found = self._write(conn, rows)
        except psycopg.Error as error:
            if is_refusal(error):
                raise copy_refusal(
                    self.stage, f"chunk {rows.chunk}", rows.snapshot, error
                ) from error
            if not is_passing(error):
                at = Position(rows.snapshot.commit_lsn, 0)
                raise target_refusal(conn.info.user, self.stage, at, error) from error
            forget_session(self.url, "copy")
            raise as_destination_error(error, "copying rows") from error
        failpoint("postgres.copy_chunk_written")
        return found

    def _connect(self) -> Connection:
        # What is recorded as copied is never copied again, so it has to be durable.
        settings = {"synchronous_commit": "on"}
        conn = open_session(self.url, session_name(self.pipeline, "copy"), settings)
        with destination_errors("preparing the connection"):
            if self.disable_triggers and may_disable_triggers(conn):
                conn.execute("SET session_replication_role = replica")
        return conn

    def _write(self, conn: Connection, rows: ChunkReader) -> ChunkReceipt:
        self.stage.places(rows.table)
        try:
            return self._written(conn, rows, _PATIENCE)
        except errors.LockNotAvailable:
            # Nothing was read yet. Whoever has it does not go on: a machine that is frozen would
            # hold it for as long as it is.
            with as_logged_in(conn):
                conn.execute(_END_STUCK, [session_name(self.pipeline, "copy"), _PATIENCE])
            return self._written(conn, rows, 0)

    def _written(self, conn: Connection, rows: ChunkReader, patience: float) -> ChunkReceipt:
        oid, names = self.stage.oid, [column.name for column in rows.table.columns]
        with conn.transaction():
            there = begin_chunk(conn, self.pipeline, oid, self.copy, rows.chunk, patience=patience)
            if there is not None:
                return ChunkReceipt(*there)
            count, size = self._add(conn, rows, names)
            end_chunk(conn, self.pipeline, oid, rows.chunk, count, size)
        return ChunkReceipt(count, size)

    def _add(self, conn: Connection, rows: ChunkReader, names: Sequence[str]) -> tuple[int, int]:
        copied = CopiedRows(conn, self.stage, names, over=self.again)
        if self.stage.kind != "history" and not self.dead_letter:
            binary = self.binary and rows.has_binary
            return copied.add_raw(rows.raw(binary=binary), binary=binary)
        count = size = 0
        for part in rows.texts():
            size += copied.add_texts(part, self.pipeline if self.dead_letter else None)
            count += len(part)
        return count, size
