"""The executor's side: folds a task's changes to net rows, and stages them or hands them over."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import psycopg

from penstock.config.connection_url import ConnectionUrl
from penstock.decode.changes import ChangeSet, TableChanges
from penstock.destination.contract import TaskWriter
from penstock.destination.postgres.copying.replayed_rows import ReplayedRows
from penstock.destination.postgres.sessions.session import (
    Connection,
    as_destination_error,
    is_lost,
    open_session,
    session_name,
)
from penstock.destination.postgres.staging.handover import HandoverPlace
from penstock.destination.postgres.staging.loads import Key, Load, StagingLoader, lines_of
from penstock.destination.postgres.staging.receipt import Part, StagedBatch, StagedRun, Truncated
from penstock.destination.postgres.staging.stage import Stage
from penstock.destination.postgres.staging.staged_rows import (
    StagedRows,
    staged_rows,
)
from penstock.failpoints import failpoint
from penstock.model.errors import TableRefused, unreadable_alone
from penstock.model.table_schema import TableSchema
from penstock.transform.table_order import after, in_table_order

# Nothing staged has to survive: a crash of the server empties the tables anyway.
_SESSION = {"synchronous_commit": "off"}

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
    handover: HandoverPlace | None = None
    """Where rows that are only added may be left for the driver; None: all are staged."""

    def write(self, changes: Iterable[ChangeSet]) -> bytes:
        runs = []
        writer = self
        if self.handover is not None and not self.handover.is_here():
            writer = replace(self, handover=None)
        for run in changes:
            try:
                runs.append(writer._stage_run(run))
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
        loads = list(self._all_loads(run.tables, truncates))
        parts = self._hand_over([load for load in loads if load.is_handed])
        left = [load for load in loads if load.key not in parts]
        if left:
            # What could not be handed over is among them.
            left = [load.staged() for load in left]
            session = kept_session(self.url, "task", self._connect)
            staged = StagingLoader(session, left, self.pipeline if self.dead_letter else None).run()
            parts |= {load.key: part for load, part in zip(left, staged, strict=True)}
        failpoint("postgres.staged")
        return StagedRun(tuple(truncates), tuple(parts[load.key] for load in loads))

    def _hand_over(self, loads: Sequence[Load]) -> dict[Key, Part]:
        """Leave rows for the driver; nothing where there is no room for them."""
        if not loads or self.handover is None:
            return {}
        try:
            file = self.handover.begin()
        except OSError:
            return {}
        try:
            return {load.key: load.hand_over(file) for load in loads}
        except OSError:
            file.give_up()
            return {}
        finally:
            file.close()

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
    ) -> Iterator[Load]:
        part, staged = secrets.randbits(48), set[int]()
        for some in self._alike(tables, truncates):
            oids = {changes.table.oid for changes in some}
            if oids & staged:
                # Rows of a part are net rows: those that come later are another's.
                part, staged = secrets.randbits(48), set()
            staged |= oids
            yield from self._loads(part, some)

    def _loads(self, part: int, tables: Sequence[TableChanges]) -> Iterator[Load]:
        stages = [self.stages[changes.table.oid] for changes in tables]
        places = stages[0].places(tables[0].table, int(tables[0].commit_lsn[0]))
        try:
            with unreadable_alone(stages[0].oid, stages[0].source):
                rows = self._fold(stages[0], places, tables)
                is_handed = self._hands_over(stages, rows)
                lines = rows.plain_lines() if is_handed else None
                if lines is None:
                    rows.read()
        except TableRefused:
            if len(tables) == 1:
                raise
            # Any of them may be the one.
            for changes in tables:
                yield from self._loads(part, [changes])
            return
        if lines is None and len(tables) > 1:
            lines = lines_of(None if is_handed else part, rows, 0, len(rows))
        for stage, (first, last) in zip(stages, pairwise(rows.bounds), strict=True):
            if last > first:
                yield Load(stage, part, rows, first, last, lines, is_handed)

    def _hands_over(self, stages: Sequence[Stage], rows: StagedRows) -> bool:
        return (
            self.handover is not None
            and rows.only_adds
            and all(stage.takes_lines and stage.columns for stage in stages)
        )

    def _fold(
        self, stage: Stage, places: Sequence[int], tables: Sequence[TableChanges]
    ) -> StagedRows:
        if stage.oid in self.replayed and stage.kind == "keyed":
            return ReplayedRows(stage, places, tables[0])
        return staged_rows(stage, places, tables)


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
