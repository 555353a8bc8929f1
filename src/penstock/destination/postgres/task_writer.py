"""The executor's side: folds a task's changes to net rows and copies them into staging tables."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import sql

from penstock.config.connection_url import ConnectionUrl
from penstock.decode.changes import ChangeSet, TableChanges
from penstock.destination.contract import TaskWriter
from penstock.destination.encode.copy_text import copy_lines
from penstock.destination.encode.text_bytes import text_bytes
from penstock.destination.postgres.dead_letters import Letter, refusal, stage_letter
from penstock.destination.postgres.receipt import Part, StagedBatch, StagedRun, Truncated
from penstock.destination.postgres.session import (
    Connection,
    as_destination_error,
    is_refusal,
    open_session,
    said,
)
from penstock.destination.postgres.stage import Stage
from penstock.destination.postgres.staged_rows import StagedRows, staged_rows
from penstock.errors import TableRefused
from penstock.failpoints import failpoint
from penstock.lsn import Position
from penstock.table_schema import TableSchema

# Nothing staged has to survive: a crash of the server empties the tables anyway.
_SESSION = {"synchronous_commit": "off"}
# Rows that are encoded at a time: bounds what stands twice in memory.
_CHUNK_ROWS = 50_000

# A worker process serves many tasks; connections outlive them. Module-level, since a writer is
# unpickled anew for each task.
_sessions: dict[str, Connection] = {}


@dataclass(frozen=True)
class PostgresWriter(TaskWriter):
    """Stages the changes of the tables that it knows; all others were excluded by the pipeline."""

    url: ConnectionUrl
    pipeline: str
    lane: int
    stages: Mapping[int, Stage]
    dead_letter: bool

    def write(self, changes: Iterable[ChangeSet]) -> bytes:
        runs = []
        for run in changes:
            try:
                runs.append(self._stage_run(run))
            except psycopg.Error as error:
                _forget_session(self.url)
                raise as_destination_error(error, "staging rows") from error
        return StagedBatch(self.lane, tuple(runs)).to_bytes()

    def _stage_run(self, run: ChangeSet) -> StagedRun:
        conn = _session(self.url, self.pipeline)
        truncates = [
            Truncated(
                tuple(table.oid for table in event.tables if table.oid in self.stages),
                event.restart_identity,
                *event.stamp.position,
                event.stamp.xid,
                event.stamp.commit_micros,
            )
            for event in run.truncates
        ]
        parts = [
            part
            for changes in in_table_order(run.tables)
            if changes.table.oid in self.stages
            for part in self._stage_table(conn, changes, truncates)
        ]
        failpoint("postgres.staged")
        return StagedRun(tuple(truncates), tuple(parts))

    def _stage_table(
        self, conn: Connection, changes: TableChanges, truncates: Sequence[Truncated]
    ) -> Iterator[Part]:
        stage = self.stages[changes.table.oid]
        if stage.kind != "history":
            changes = _after_truncates(changes, truncates)
        if len(changes):
            rows = staged_rows(stage, _columns(stage, changes.table), changes)
            pipeline = self.pipeline if self.dead_letter else None
            yield _Copy(conn, stage, rows, pipeline).run()


class _Copy:
    """Copies rows into a staging table; those that the server refuses are found one by one."""

    def __init__(
        self, conn: Connection, stage: Stage, rows: StagedRows, letters_of: str | None
    ) -> None:
        self._conn = conn
        self._stage = stage
        self._rows = rows
        self._letters_of = letters_of
        self._part = secrets.randbits(48)
        self._refused: list[int] = []
        self._bytes = 0
        columns = sql.SQL(", ").join(map(sql.Identifier, ("part", *rows.names)))
        self._statement = sql.SQL("COPY {} ({}) FROM STDIN").format(stage.staging_id, columns)

    def run(self) -> Part:
        count = len(self._rows)
        chunks = [
            (first, min(first + _CHUNK_ROWS, count)) for first in range(0, count, _CHUNK_ROWS)
        ]
        try:
            with self._conn.cursor() as cursor, cursor.copy(self._statement) as copy:
                for first, last in chunks:
                    data = text_bytes(self._lines(first, last))
                    self._bytes += len(data)
                    copy.write(data)
        except psycopg.Error as error:
            if not is_refusal(error):
                raise
            self._bytes = 0
            for first, last in chunks:
                self._halve(first, self._lines(first, last))
        kept = np.ones(count, bool)
        kept[self._refused] = False
        return self._rows.part(self._stage.oid, self._part, kept, self._bytes)

    def _lines(self, first: int, last: int) -> pa.Array:
        columns = [str(self._part), *self._rows.columns(first, last)]
        return copy_lines(columns, last - first)

    def _halve(self, first: int, lines: pa.Array) -> None:
        """Copy what can be copied, and find the rows that cannot."""
        try:
            with self._conn.cursor() as cursor, cursor.copy(self._statement) as copy:
                copy.write(text_bytes(lines))
            self._bytes += len(text_bytes(lines))
        except psycopg.Error as error:
            if not is_refusal(error):
                raise
            if len(lines) > 1:
                half = len(lines) // 2
                self._halve(first, lines.slice(0, half))
                self._halve(first + half, lines.slice(half))
            else:
                self._refuse(first, error)

    def _refuse(self, row: int, error: psycopg.Error) -> None:
        rows, position = self._rows, Position(*self._rows.position(row))
        if self._letters_of is None:
            raise refusal(self._stage, rows.key_text(row), position, said(error)) from error
        letter = Letter(
            rows.op_name(row),
            rows.values(row),
            position,
            error.sqlstate or "",
            said(error),
            rows.times(row),
        )
        stage_letter(self._conn, self._letters_of, self._stage, self._part, letter)
        self._refused.append(row)


def in_table_order(tables: Sequence[TableChanges]) -> Iterator[TableChanges]:
    """The changes of a run with each table's in position order.

    A table whose definition changed in the run and changed back is there twice, interleaved.
    """
    by_table: dict[int, list[TableChanges]] = {}
    for changes in tables:
        by_table.setdefault(changes.table.oid, []).append(changes)
    for versions in by_table.values():
        if len(versions) == 1:
            yield versions[0]
        else:
            yield from _interleaved(versions)


def _interleaved(versions: Sequence[TableChanges]) -> Iterator[TableChanges]:
    which = np.repeat(np.arange(len(versions)), [len(changes) for changes in versions])
    place = np.concatenate([np.arange(len(changes)) for changes in versions])
    commit_lsn = np.concatenate([changes.commit_lsn for changes in versions])
    ordinal = np.concatenate([changes.ordinal for changes in versions])
    order = np.lexsort((ordinal, commit_lsn))
    which, place = which[order], place[order]
    bounds = [0, *(np.flatnonzero(np.diff(which)) + 1).tolist(), len(which)]
    for first, last in pairwise(bounds):
        yield versions[which[first]].part(int(place[first]), int(place[last - 1]) + 1)


def _after_truncates(changes: TableChanges, truncates: Sequence[Truncated]) -> TableChanges:
    ends = [
        (event.commit_lsn, event.ordinal)
        for event in truncates
        if changes.table.oid in event.tables
    ]
    if not ends:
        return changes
    commit_lsn, ordinal = max(ends)
    later = (changes.commit_lsn > commit_lsn) | (
        (changes.commit_lsn == commit_lsn) & (changes.ordinal > ordinal)
    )
    # They stand in position order.
    return changes.part(int(len(later) - later.sum()), len(later))


def _columns(stage: Stage, table: TableSchema) -> list[int]:
    """For each staged column its place in the table as the stream announced it."""
    places = {column.name: index for index, column in enumerate(table.columns)}
    wanted = {column.name for column in stage.columns}
    if set(places) != wanted:
        missing, new = sorted(wanted - set(places)), sorted(set(places) - wanted)
        raise TableRefused(
            f"table {table.qualified_name} has changed at the source: "
            + "; ".join(
                f"columns {what}: {', '.join(names)}"
                for what, names in (("gone", missing), ("new", new))
                if names
            ),
            remedy="schema changes are not followed yet: change the target in the same way, then "
            f"run `penstock tables retry` for {table.qualified_name}",
            table=table.oid,
        )
    return [places[column.name] for column in stage.columns]


def _session(url: ConnectionUrl, pipeline: str) -> Connection:
    key = url.reveal()
    conn = _sessions.get(key)
    if conn is None or conn.closed:
        conn = open_session(url, f"penstock {pipeline} task", _SESSION)
        _sessions[key] = conn
    return conn


def _forget_session(url: ConnectionUrl) -> None:
    conn = _sessions.pop(url.reveal(), None)
    if conn is not None:
        conn.close()
