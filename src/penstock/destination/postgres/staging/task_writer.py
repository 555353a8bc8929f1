"""The executor's side: folds a task's changes to net rows and copies them into staging tables."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import sql

from penstock.config.connection_url import ConnectionUrl
from penstock.decode.changes import ChangeSet, TableChanges
from penstock.decode.copy_text import copy_lines
from penstock.decode.text_bytes import text_bytes
from penstock.destination.contract import TaskWriter
from penstock.destination.postgres.copying.replayed_rows import ReplayedRows
from penstock.destination.postgres.merging.dead_letters import Letter, refusal, stage_letter
from penstock.destination.postgres.merging.halving import refused_rows
from penstock.destination.postgres.sessions.session import (
    Connection,
    as_destination_error,
    copy_in,
    is_lost,
    is_refusal,
    open_session,
    said,
    session_name,
)
from penstock.destination.postgres.staging.receipt import Part, StagedBatch, StagedRun, Truncated
from penstock.destination.postgres.staging.stage import Stage
from penstock.destination.postgres.staging.staged_rows import (
    Mask,
    StagedRows,
    key_text,
    staged_rows,
)
from penstock.failpoints import failpoint
from penstock.model.errors import TableRefused, unreadable_alone
from penstock.model.lsn import Position
from penstock.model.table_schema import TableSchema
from penstock.transform.table_order import after, in_table_order

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
    replayed: frozenset[int] = frozenset()
    """Tables whose changes come over rows that were copied."""

    def write(self, changes: Iterable[ChangeSet]) -> bytes:
        runs = []
        for run in changes:
            try:
                runs.append(self._stage_run(run))
            except psycopg.Error as error:
                forget_session(self.url, "task")
                raise as_destination_error(error, "staging rows") from error
        return StagedBatch(self.lane, tuple(runs)).to_bytes()

    def _stage_run(self, run: ChangeSet) -> StagedRun:
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
        parts = _Staging(
            kept_session(self.url, "task", self._connect),
            list(self._all_loads(run.tables, truncates)),
            self.pipeline if self.dead_letter else None,
        ).run()
        failpoint("postgres.staged")
        return StagedRun(tuple(truncates), tuple(parts))

    def _connect(self) -> Connection:
        return open_session(self.url, session_name(self.pipeline, "task"), _SESSION)

    def _alike(
        self, tables: Sequence[TableChanges], truncates: Sequence[Truncated]
    ) -> Iterator[list[TableChanges]]:
        """The tables of a run; those that can be folded in one go, together."""
        held: list[TableChanges] = []
        for changes in in_table_order(tables):
            stage = self.stages.get(changes.table.oid)
            if stage is None:
                raise _unknown(changes.table)
            if stage.kind != "history":
                oid = changes.table.oid
                ends = [(e.commit_lsn, e.ordinal) for e in truncates if oid in e.tables]
                changes = after(changes, ends)  # noqa: PLW2901
            if not len(changes):
                continue
            if held and not (changes.follows(held[-1]) and self._same_shape(held[-1], changes)):
                yield held
                held = []
            held.append(changes)
        if held:
            yield held

    def _same_shape(self, one: TableChanges, other: TableChanges) -> bool:
        first, second = self.stages[one.table.oid], self.stages[other.table.oid]
        return (
            one.table.oid != other.table.oid
            and first.kind == second.kind == "keyed"
            and not self.replayed.intersection((first.oid, second.oid))
            and first.key == second.key
            and first.places(one.table, int(one.commit_lsn[0]))
            == second.places(other.table, int(other.commit_lsn[0]))
        )

    def _all_loads(
        self, tables: Sequence[TableChanges], truncates: Sequence[Truncated]
    ) -> Iterator[_Load]:
        part, staged = secrets.randbits(48), set[int]()
        for some in self._alike(tables, truncates):
            oids = {changes.table.oid for changes in some}
            if oids & staged:
                # Rows of a part are net rows: those that come later are another's.
                part, staged = secrets.randbits(48), set()
            staged |= oids
            yield from self._loads(part, some)

    def _loads(self, part: int, tables: Sequence[TableChanges]) -> Iterator[_Load]:
        stages = [self.stages[changes.table.oid] for changes in tables]
        places = stages[0].places(tables[0].table, int(tables[0].commit_lsn[0]))
        try:
            with unreadable_alone(stages[0].oid, stages[0].source):
                rows = self._fold(stages[0], places, tables)
        except TableRefused:
            if len(tables) == 1:
                raise
            # Any of them may be the one.
            for changes in tables:
                yield from self._loads(part, [changes])
            return
        lines = None if len(tables) == 1 else _lines(part, rows, 0, len(rows))
        for stage, (first, last) in zip(stages, pairwise(rows.bounds), strict=True):
            if last > first:
                yield _Load(stage, part, rows, first, last, lines)

    def _fold(
        self, stage: Stage, places: Sequence[int], tables: Sequence[TableChanges]
    ) -> StagedRows:
        if stage.oid in self.replayed and stage.kind == "keyed":
            return ReplayedRows(stage, places, tables[0])
        return staged_rows(stage, places, tables)


@dataclass(frozen=True)
class _Load:
    """What goes into one staging table: some rows, whose lines may be known already."""

    stage: Stage
    part: int
    rows: StagedRows
    first: int
    last: int
    lines: pa.Array | None

    @property
    def statement(self) -> bytes:
        columns = sql.SQL(", ").join(map(sql.Identifier, ("part", *self.rows.names)))
        copy = sql.SQL("COPY {} ({}) FROM STDIN").format(self.stage.staging_id, columns)
        return copy.as_bytes(None)

    def chunks(self) -> Iterator[tuple[int, pa.Array]]:
        """Its lines, so many at a time, and the number of the first of them."""
        if self.lines is not None:
            yield self.first, self.lines.slice(self.first, self.last - self.first)
            return
        for first in range(self.first, self.last, _CHUNK_ROWS):
            last = min(first + _CHUNK_ROWS, self.last)
            yield first, _lines(self.part, self.rows, first, last)


class _Staging:
    """Copies rows into staging tables; those that the server refuses are found one by one."""

    def __init__(self, conn: Connection, loads: Sequence[_Load], letters_of: str | None) -> None:
        self._conn = conn
        self._loads = loads
        self._letters_of = letters_of

    def run(self) -> list[Part]:
        sizes = [0] * len(self._loads)

        def data(number: int, load: _Load) -> Iterator[memoryview]:
            for _, lines in load.chunks():
                found = text_bytes(lines)
                sizes[number] += len(found)
                yield found

        try:
            copy_in(
                self._conn,
                [(load.statement, data(number, load)) for number, load in enumerate(self._loads)],
            )
        except psycopg.Error as error:
            if not is_refusal(error):
                raise
            return [self._one_by_one(load) for load in self._loads]
        return [
            _part(load, np.ones(load.last - load.first, bool), size)
            for load, size in zip(self._loads, sizes, strict=True)
        ]

    def _one_by_one(self, load: _Load) -> Part:
        """Copy what can be copied, and find the rows that cannot."""
        kept = np.ones(load.last - load.first, bool)
        size = 0

        def copy(first: int, last: int) -> None:
            nonlocal size
            data = text_bytes(lines.slice(first, last - first))
            copy_in(self._conn, [(load.statement, iter([data]))])
            size += len(data)

        for start, lines in load.chunks():
            for row, error in refused_rows(0, len(lines), copy):
                self._refuse(load, start + row, error)
                kept[start + row - load.first] = False
        return _part(load, kept, size)

    def _refuse(self, load: _Load, row: int, error: psycopg.Error) -> None:
        rows, stage, position = load.rows, load.stage, Position(*load.rows.position(row))
        values = rows.values(stage, row)
        if self._letters_of is None:
            raise refusal(stage, key_text(stage, values), position, said(error)) from error
        letter = Letter(
            rows.op_name(row),
            values,
            position,
            error.sqlstate or "",
            said(error),
            rows.times(row),
        )
        stage_letter(self._conn, self._letters_of, stage, load.part, letter)


def _part(load: _Load, kept: Mask, size: int) -> Part:
    return load.rows.part(load.stage.oid, load.part, slice(load.first, load.last), kept, size)


def _lines(part: int, rows: StagedRows, first: int, last: int) -> pa.Array:
    return copy_lines([str(part), *rows.columns(first, last)], last - first)


def _unknown(table: TableSchema) -> TableRefused:
    return TableRefused(
        f"table {table.qualified_name} came in the stream, but was not there when the pipeline "
        "started",
        remedy="start `penstock run` again",
        table=table.oid,
    )


def kept_session(
    url: ConnectionUrl, purpose: str, open_one: Callable[[], Connection]
) -> Connection:
    """The session that this process keeps for a purpose; made where there is none."""
    key = f"{purpose} {url.reveal()}"
    conn = _sessions.get(key)
    if conn is None or conn.closed or is_lost(conn):
        conn = open_one()
        _sessions[key] = conn
    return conn


def forget_session(url: ConnectionUrl, purpose: str) -> None:
    conn = _sessions.pop(f"{purpose} {url.reveal()}", None)
    if conn is not None:
        conn.close()
