"""The staging tables of a pipeline, as its driver knows them.

Two lanes take turns: while one is merged, tasks fill the other. A third is for tables that are
brought on by themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

import psycopg

from penstock.destination.postgres.sessions.session import Connection
from penstock.destination.postgres.staging.known_stages import KnownStages
from penstock.destination.postgres.staging.receipt import StagedBatch, total
from penstock.destination.postgres.staging.stage import (
    CATCHUP_LANE,
    LANES,
    Stage,
    drop_stages,
    empty_stages,
    ensure_stages,
)
from penstock.destination.postgres.staging.staging_plan import planned_stages
from penstock.destination.postgres.targets.target_table import TargetTable

# A staging table that is scanned with less than this left over in it is not worth emptying.
_SWEEP_BYTES = 8 * 2**20

Planned = Mapping[int, Sequence[Stage]]
"""For each lane its staging tables."""


class StagingTables:
    """Makes them, and keeps what is known of them."""

    def __init__(self, pipeline: str, *, has_history: bool) -> None:
        self._pipeline = pipeline
        self._has_history = has_history
        self._last_lane = LANES[0]
        # Replaced, never changed: other threads read them while tables are prepared.
        self._lanes = {lane: KnownStages({}) for lane in (*LANES, CATCHUP_LANE)}
        self._lost: frozenset[int] = frozenset()
        """Tables whose staging tables may be gone: the server has lost commits."""
        self._catching_up: set[int] = set()
        self._left: dict[Stage, int] = {}
        """How many bytes of merged rows are left in them."""

    def next_lane(self) -> int:
        """The lane of the next batch."""
        self._last_lane = LANES[(LANES.index(self._last_lane) + 1) % len(LANES)]
        return self._last_lane

    def of(self, lane: int) -> KnownStages:
        return self._lanes[lane]

    def catching_up(self, table: int) -> Stage:
        """Where a table is staged that is brought on by itself."""
        return self._lanes[CATCHUP_LANE][table]

    def make(self, conn: Connection, targets: Sequence[TargetTable]) -> Planned:
        """Those that targets need and that are not there. What it returns is for ``made``, once the
        caller's transaction is committed.
        """
        planned = planned_stages(
            conn, self._pipeline, targets, (*LANES, CATCHUP_LANE), has_history=self._has_history
        )
        # Those that are known may be in use by tasks.
        new = [
            stage
            for lane in LANES
            for stage in planned[lane]
            if stage.oid in self._lost or self._lanes[lane].get(stage.oid) != stage
        ]
        ensure_stages(conn, new)
        known = self._lanes[CATCHUP_LANE]
        drop_stages(conn, [stage for stage in planned[CATCHUP_LANE] if stage.oid not in known])
        return planned

    def made(self, planned: Planned) -> None:
        for lane, stages in planned.items():
            made = {stage.oid: stage for stage in stages}
            self._lanes[lane] = KnownStages({**self._lanes[lane], **made})
            self._lost -= made.keys()

    def missing(self, tables: Collection[int]) -> list[Stage]:
        """What has to be made before these tables are brought on by themselves."""
        stages = self._lanes[CATCHUP_LANE]
        return [stages[oid] for oid in tables if oid not in self._catching_up]

    def catch_up(self, tables: Collection[int]) -> None:
        """Nothing is missing for them any more."""
        self._catching_up |= set(tables)

    def caught_up(self, table: int) -> None:
        self._catching_up.discard(table)

    def were_lost(self, tables: Collection[int]) -> None:
        """The server stands before where it stood: what was made since may be gone."""
        self._lost, self._catching_up = frozenset(tables), set()

    def of_table(self, table: int) -> list[Stage]:
        return [stages[table] for stages in self._lanes.values() if table in stages]

    def forget(self, table: int) -> None:
        self._catching_up.discard(table)
        for lane, known in self._lanes.items():
            left = {oid: stage for oid, stage in known.items() if oid != table}
            self._lanes[lane] = KnownStages(left)

    def tidy(self, conn: Connection, batch: StagedBatch) -> None:
        """Empty those that have grown by a batch that was merged.

        A task that outlived its batch may still write to one: then it is left for later.
        """
        if not batch.runs:
            # It has no lane, and those of others are in use by the tasks of the next batch.
            return
        stages = self._lanes[batch.lane]
        for oid, parts in batch.parts(with_truncated=True).items():
            stage = stages[oid]
            self._left[stage] = self._left.get(stage, 0) + total(parts, "bytes")
        full = [stage for stage in stages.values() if self._left.get(stage, 0) > _SWEEP_BYTES]
        if full:
            with suppress(psycopg.errors.LockNotAvailable), conn.transaction():
                conn.execute("SET LOCAL lock_timeout = '200ms'")
                conn.execute("SET LOCAL synchronous_commit = off")
                empty_stages(conn, full)
                for stage in full:
                    del self._left[stage]
