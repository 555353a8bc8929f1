"""From the last chunk of a table to its place among the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise

from penstock.metrics.written import JobResult
from penstock.model.errors import TableRefused, refused_alone
from penstock.model.lsn import Frontier
from penstock.model.table_definition import TableDefinition
from penstock.model.table_state import (
    Catchup,
    DataSync,
    FinishedCopy,
    Ready,
    SyncDone,
    SyncWait,
    TableState,
)
from penstock.pipeline.copy.copy_target import CopyTarget
from penstock.pipeline.copy.replay import Replay
from penstock.pipeline.run.joins import CurrentJoins
from penstock.pipeline.tables.registry import TableRegistry
from penstock.source.contract import CopySource
from penstock.store import Store

_KEYS_AT_A_TIME = 1000
"""Their rows are those with large values, and are held in memory."""


class FinishCopies:
    """Takes tables whose chunks are all written as far as ``sync_done``.

    Every step may be made again after a crash.
    """

    def __init__(
        self,
        store: Store,
        target: CopyTarget,
        tables: TableRegistry,
        replay: Replay,
        source: CopySource,
        joins: CurrentJoins,
    ) -> None:
        self._store = store
        self._target = target
        self._tables = tables
        self._refuse = tables.refuse
        self._replay = replay
        self._committer = replay.committer
        self._source = source
        self._joins = joins

    def finish(self, tables: Sequence[TableDefinition]) -> None:
        """Returns when all of them are in sync, but for those that were refused."""
        move_on = self._store.move_on
        move_on(_oids(tables), DataSync, FinishedCopy())
        tables = each(tables, self._target.finish_copy, self._refuse)
        move_on(_oids(tables), FinishedCopy, SyncWait())
        end_lsn = self._committer.standing.frontier.end_lsn
        move_on(_oids(tables), SyncWait, Catchup(end_lsn))
        if not self._target.merges:
            # Its changes were delivered all the while; their positions say which value is newer.
            move_on(_oids(tables), Catchup, SyncDone(end_lsn))
            move_on(_oids(tables), SyncDone, Ready())
            return
        if tables:
            self._catch_up(tables)

    def _catch_up(self, tables: Sequence[TableDefinition]) -> None:
        oids = frozenset(table.oid for table in tables)
        copies = self._store.get_copies()
        consistent = max((copies[oid].last_lsn for oid in oids if oid in copies), default=0)
        self._target.replays.replaying(oids)
        try:
            self._replay.bring_near(oids, consistent)
            if any(self._target.replays.parked_keys(oid) for oid in oids):
                self._read_parked(tables)
        finally:
            self._target.replays.replaying(())
        tables = each(tables, self._complete, self._refuse)
        if not tables:
            return
        # That may have taken long.
        self._replay.bring_near([table.oid for table in tables])
        # Where little was left, nothing was replayed, and the destination need not have heard where
        # the tables stand. The next driver would take them for being where all others are.
        reached = {table.oid: self._committer.standing.at(table.oid) for table in tables}
        self._committer.commit_aside(JobResult(), reached)
        if not self._join(reached):
            # The next query brings them on.
            done = {oid: SyncDone(at.end_lsn) for oid, at in reached.items()}
            self._store.update_table_states(done)

    def _complete(self, table: TableDefinition) -> None:
        self._target.complete_table(table)
        self._tables.note(table.oid, self._target.notes(table.oid))

    def _join(self, tables: Mapping[int, Frontier]) -> bool:
        """Let tables that are near join the query of now; False where there is none."""
        joins = self._joins.query
        point = None if joins is None else joins.point(tables, self._replay.check)
        if joins is None or point is None:
            return False

        def act() -> None:
            standing = self._committer.standing
            self._committer.release(tables)
            self._tables.join({oid: SyncDone(standing.at(oid).end_lsn) for oid in tables})

        try:
            self._replay.bring_to(tables, point.end_lsn)
        except BaseException:
            # Batches that hold their changes must not be committed.
            joins.end()
            raise
        return joins.join(tables, act)

    def _read_parked(self, tables: Sequence[TableDefinition]) -> None:
        """Read again what could not be replayed.

        First a snapshot, then the replay exactly up to its point: so all that was parked until then
        is known, and is what the snapshot says, and nothing is parked after it.
        """
        with self._source.snapshot_of_now() as (point, read_keys):
            self._replay.bring_to([table.oid for table in tables], point)
            for table in tables:
                keys = self._target.replays.parked_keys(table.oid)
                for first in range(0, len(keys), _KEYS_AT_A_TIME):
                    some = keys[first : first + _KEYS_AT_A_TIME]
                    rows = read_keys(table, some)
                    with refused_alone(table.oid):
                        self._target.replays.settle_parked(rows, some)


def _oids(tables: Collection[TableDefinition]) -> list[int]:
    return [table.oid for table in tables]


def each(
    tables: Sequence[TableDefinition],
    step: Callable[[TableDefinition], None],
    refuse: Callable[[TableRefused], None],
) -> list[TableDefinition]:
    """Take the step for each of the tables; those for which it was not refused."""
    done = []
    for table in tables:
        try:
            with refused_alone(table.oid):
                step(table)
        except TableRefused as error:
            refuse(error)
        else:
            done.append(table)
    return done


class FinishAtOnce:
    """A table whose chunks are written is done: no changes come after them."""

    def __init__(
        self, target: CopyTarget, store: Store, refuse: Callable[[TableRefused], None]
    ) -> None:
        self._target = target
        self._store = store
        self._refuse = refuse

    def finish(self, tables: Sequence[TableDefinition]) -> None:
        tables = each(tables, self._target.finish_copy, self._refuse)
        tables = each(tables, self._target.complete_table, self._refuse)
        path: list[TableState] = [FinishedCopy(), SyncWait(), Catchup(0), SyncDone(0), Ready()]
        for before, state in pairwise([DataSync(), *path]):
            self._store.move_on(_oids(tables), type(before), state)
