"""All tables of a batch, merged inside the driver's transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import psycopg
from psycopg import errors, sql

from penstock.destination.postgres.merging import history
from penstock.destination.postgres.merging.dead_letters import (
    deliver_letters,
    refusal,
    tables_refusals,
)
from penstock.destination.postgres.merging.merge_sql import copy_lines_in, count_parts
from penstock.destination.postgres.merging.table_merge import Odd, TableMerge, is_odd
from penstock.destination.postgres.sessions.session import (
    Connection,
    copy_in,
    is_passing,
    is_refusal,
    said,
)
from penstock.destination.postgres.staging.receipt import Part, StagedBatch, stretches, total
from penstock.destination.postgres.staging.stage import Stage
from penstock.model.errors import BatchAgain
from penstock.model.lsn import Position

_REFERRED = """
SELECT rn.nspname::text, r.relname::text
  FROM pg_constraint k
  JOIN pg_class c ON c.oid = k.conrelid
  JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_class r ON r.oid = k.confrelid
  JOIN pg_namespace rn ON rn.oid = r.relnamespace
 WHERE n.nspname = %s AND c.relname = %s AND k.conname = %s
"""

# How many tables one counting statement names: one of all would take long to plan.
_TABLES_A_COUNT = 100


@dataclass(frozen=True)
class MergeRules:
    """What is alike for all batches of a pipeline."""

    pipeline: str
    strict: bool
    """Whether a row that the target has otherwise is an error."""
    letters_of: str | None
    """Whose dead letters are kept; None where a refused row stops its table."""


class BatchMerge:
    """One try at a batch."""

    def __init__(
        self,
        conn: Connection,
        rules: MergeRules,
        stages: Mapping[int, Stage],
        batch: StagedBatch,
        *,
        position: Position,
        replayed: frozenset[int] = frozenset(),
    ) -> None:
        """``position`` is where the batch ends; ``replayed`` are tables whose changes come over
        copied rows.
        """
        self._conn = conn
        self._rules = rules
        self._stages = stages
        self._batch = batch
        self._position = position
        self._replayed = replayed

    def run(self, *, thorough: bool) -> None:
        """Merge every table. Quickly, which raises Odd or psycopg's error where that does not do;
        or thoroughly, which raises TableRefused where a row is refused, and for which all rows must
        be staged.
        """
        # A history keeps what a TRUNCATE made void.
        is_history = any(stage.kind == "history" for stage in self._stages.values())
        parts = self._batch.parts(with_truncated=is_history)
        merges = {oid: self._table(oid, parts[oid]) for oid in sorted(parts)}
        self._count(
            {oid: p for oid, p in parts.items() if thorough or not merges[oid].is_only_inserts}
        )
        self._truncate()
        if thorough:
            for merge in merges.values():
                self._thorough(merge)
            self._check_deferred()
        elif self._batch.is_handed:
            self._quick_in_turns({oid: parts[oid] for oid in sorted(parts)})
        else:
            self._quick(list(merges.values()))
        letters = [
            (self._stages[p.table].source, p.part)
            for found in parts.values()
            for p in found
            if p.refused
        ]
        if letters and deliver_letters(self._conn, letters) != sum(
            total(found, "refused") for found in parts.values()
        ):
            raise _lost("dead letters")

    def _table(self, oid: int, parts: Sequence[Part]) -> TableMerge:
        return TableMerge(
            self._conn,
            self._rules.pipeline,
            self._stages[oid],
            parts,
            strict=self._rules.strict,
            replayed=oid in self._replayed,
        )

    def _quick_in_turns(self, parts: Mapping[int, Sequence[Part]]) -> None:
        """Each table's parts in order: some that were staged, some that were handed over, again
        some that were staged. A part's rows are net rows over what the parts before it left.
        """
        turns = zip_longest(*(stretches(found) for found in parts.values()), fillvalue=([], []))
        for turn in turns:
            found = list(zip(parts, turn, strict=True))
            self._quick([self._table(oid, staged) for oid, (staged, _) in found if staged])
            added = [(self._stages[oid], part) for oid, (_, handed) in found for part in handed]
            copy_handed(self._conn, added)

    def _quick(self, merges: Sequence[TableMerge]) -> None:
        """All tables at once: one answer a step for all of them, not one a statement."""
        failures: list[Exception] = []
        try:
            with self._conn.pipeline() as pipeline:
                # Raised outside: psycopg would log what it meets while it leaves with an error.
                try:
                    under_way = [merge.steps() for merge in merges]
                    while under_way:
                        under_way = [steps for steps in under_way if next(steps, steps) is None]
                        pipeline.sync()
                except (Odd, psycopg.Error) as error:
                    failures.append(error)
        except psycopg.Error as error:
            # What comes while leaving follows from the first.
            failures.append(error)
        if failures:
            raise failures[0]

    def _thorough(self, merge: TableMerge) -> None:
        try:
            with self._conn.transaction():
                merge.quick()
        except (Odd, psycopg.Error) as error:
            if not is_odd(error):
                raise
            if isinstance(error, psycopg.Error) and not is_refusal(error):
                # No other way leads around a right that is missing.
                raise merge.refused(error) from error
            merge.thorough(self._rules.letters_of)

    def _count(self, parts: Mapping[int, Sequence[Part]]) -> None:
        """A crash of the server empties staging tables: then the batch is to be staged again."""
        expected = {(p.table, p.part): p.rows for some in parts.values() for p in some if p.rows}
        found: dict[tuple[int, int], int] = {}
        tables = sorted(parts)
        for first in range(0, len(tables), _TABLES_A_COUNT):
            some = tables[first : first + _TABLES_A_COUNT]
            numbers = [p.part for oid in some for p in parts[oid]]
            statement = count_parts([self._stages[oid] for oid in some])
            rows = self._conn.execute(statement, {"parts": numbers})
            # All tables of a run have its number, also one whose rows a later TRUNCATE made void.
            wanted = {(p.table, p.part) for oid in some for p in parts[oid]}
            found.update({(t, part): count for t, part, count in rows if (t, part) in wanted})
        if found != expected:
            raise _lost("rows")

    def _truncate(self) -> None:
        """Tables that the source emptied: all in one statement, as there."""
        truncates = self._batch.truncates
        if not truncates:
            return
        oids = sorted({oid for event in truncates for oid in event.tables})
        stages = [self._stages[oid] for oid in oids]
        if stages and stages[0].kind == "history":
            for event in truncates:
                for stage in (self._stages[oid] for oid in event.tables):
                    with tables_refusals(self._conn, stage, self._last_truncate):
                        history.write_truncate(self._conn, stage, event)
            return
        if not stages:
            return
        restart = any(event.restart_identity for event in truncates)
        try:
            self._truncate_at_once(stages, restart=restart)
        except psycopg.Error as error:
            if is_passing(error):
                raise
            # A table that we do not follow refers to one of them by a foreign key; or one of them
            # is at fault, and each by itself tells which.
            for stage in stages:
                self._empty(stage)

    def _truncate_at_once(self, stages: Sequence[Stage], *, restart: bool) -> None:
        statement = sql.SQL("TRUNCATE {} {}").format(
            sql.SQL(", ").join(stage.target_id for stage in stages),
            sql.SQL("RESTART IDENTITY" if restart else "CONTINUE IDENTITY"),
        )
        try:
            with self._conn.transaction():
                self._conn.execute(statement)
        except errors.InsufficientPrivilege:
            if not restart:
                raise
            # Only the owner of a sequence can restart it.
            self._truncate_at_once(stages, restart=False)

    def _empty(self, stage: Stage) -> None:
        with tables_refusals(self._conn, stage, self._last_truncate):
            self._conn.execute(sql.SQL("DELETE FROM {}").format(stage.target_id))

    def _last_truncate(self) -> Position:
        return max(Position(event.commit_lsn, event.ordinal) for event in self._batch.truncates)

    def _check_deferred(self) -> None:
        """Constraints that wait for the commit: there nobody could tell which table they stop."""
        try:
            with self._conn.transaction():
                self._conn.execute("SET CONSTRAINTS ALL IMMEDIATE")
        except psycopg.Error as error:
            if not is_refusal(error):
                raise
            said_of = (error.diag.schema_name, error.diag.table_name)
            # A foreign key of a table that we do not follow is broken by the one it refers to.
            name = [*said_of, error.diag.constraint_name]
            places = [said_of, *self._conn.execute(_REFERRED, name).fetchall()]
            stages = [s for place in places for s in self._stages.values() if s.target == place]
            if not stages:
                raise
            raise refusal(stages[0], None, self._position, said(error)) from error


def copy_handed(conn: Connection, parts: Sequence[tuple[Stage, Part]]) -> None:
    """Copy rows that were handed over straight into their targets. Raises Odd, psycopg's error, or
    BatchAgain where they are gone.
    """
    handed = [(stage, part.handed) for stage, part in parts if part.handed]
    added = copy_in(conn, [(copy_lines_in(stage), some.lines()) for stage, some in handed])
    # A trigger may have kept some away.
    if added != [some.rows for _, some in handed]:
        raise Odd


def _lost(what: str) -> BatchAgain:
    return BatchAgain(
        f"the destination no longer has all {what} that were staged: its server was restarted "
        "after a crash; the batch is staged again",
        remedy="nothing to do, unless it happens all the time: then look at the server's log",
    )
