"""How tables come to be copied: those that lack a copy, and copies that others began."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from penstock.model.errors import TableRefused, refused_alone
from penstock.model.lsn import Frontier
from penstock.model.table_definition import TableDefinition
from penstock.model.table_state import DataSync, Init
from penstock.pipeline.copy.copy_settings import CopySettings
from penstock.pipeline.copy.copy_state import CopyState, Positions, Reading
from penstock.pipeline.copy.copy_work import CopyWork
from penstock.pipeline.tables.registry import TableRegistry
from penstock.source.contract import LeafFile, Snapshot
from penstock.source.copy_plan import Chunk, CopyPlan
from penstock.store import CopyProgress, Store
from penstock.transform.transform_check import refused_later


class CopyAdmission:
    """Takes snapshots, and puts what is to be read under them into the queue."""

    def __init__(
        self,
        state: CopyState,
        store: Store,
        tables: TableRegistry,
        positions: Positions,
        work: CopyWork,
        settings: CopySettings,
    ) -> None:
        self._state = state
        self._store = store
        self._tables = tables
        self._positions = positions
        self._source = work.source
        self._target = work.target
        self._schema = work.schema
        self._transform = work.transform
        self._worker = settings.worker
        self._one_snapshot = settings.one_snapshot
        self._keeps_foreign_rows = settings.keeps_foreign_rows

    def admit(self) -> None:
        """Begin the copies of tables that have none."""
        new = [
            oid
            for oid in self._state.phase(Init)
            if self._is_known_to_stream(oid)
            # The chunks of a copy that was given up come to their end before the next begins.
            and not self._state.queue.is_under_way(oid)
            and self._store.get_wish(oid) is None
            and self._state.may_begin(oid)
        ]
        mine = self._store.claim_copies(self._worker, new) if new else set()
        if not mine:
            return
        try:
            number, snapshot, plans = self._begin(mine)
        except BaseException:
            # Another try places them anew, and may not come.
            self._positions.free(mine)
            self._store.release_claims(self._worker, mine)
            raise
        # Without tables as long as nobody knows whether their states are written: then it goes.
        reading = self._state.readings[number] = Reading(number, snapshot)
        self._store.update_table_states({oid: DataSync() for oid in plans})
        reading.tables |= plans.keys()
        for plan in plans.values():
            self._state.queue.add(plan.chunks)

    def _begin(self, mine: Collection[int]) -> tuple[int, Snapshot, dict[int, CopyPlan]]:
        """Under a new snapshot: its number, itself, and what is to be read under it. Nothing of it
        stays where this raises.
        """
        if self._target.merges:
            # From before the snapshot on: its point is where the stream may be already.
            frontier = self._positions.standing.frontier
            self._positions.place(dict.fromkeys(mine, frontier))
        before, files = self._source.define(mine), self._source.leaf_files(mine)
        with self._new_snapshot() as (number, snapshot):
            if self._schema is not None:
                self._schema.before(snapshot, list(before.values()))
            plans = self._plans(self._renewed(sorted(mine), before, snapshot.lsn))
            plans = self._with_leaves_of(files, plans)
            if self._target.merges:
                self._positions.free([oid for oid in mine if oid not in plans])
                at = Frontier.before(snapshot.lsn)
                self._positions.place(dict.fromkeys(plans, at))
            self._store.start_copies(plans, snapshot.lsn)
        return number, snapshot, plans

    @contextmanager
    def _new_snapshot(self) -> Iterator[tuple[int, Snapshot]]:
        """Let go where the block fails: another try takes another one."""
        number, snapshot = self._source.snapshots.take()
        try:
            yield number, snapshot
        except BaseException:
            self._source.snapshots.release(number)
            raise

    def _renewed(
        self, oids: Sequence[int], before: Mapping[int, TableDefinition], lsn: int
    ) -> list[TableDefinition]:
        """The tables as they are at the snapshot, also at the destination: they may have changed
        while they waited. What changes after the snapshot is told in the stream, and they begin
        again; those that changed between ``before`` it and now do so at once, since nobody knows on
        which side of it they did.
        """
        known = {table.oid: table for table in self._state.definitions(oids)}
        now = self._source.define(list(known))
        self._start_again([oid for oid in known if oid not in now], "it is gone from the source")
        unsteady = [oid for oid, table in now.items() if before.get(oid) != table]
        if unsteady and self._one_snapshot:
            unsteady = list(now)
        self._start_again(unsteady, "it was changed just when its snapshot was taken")
        tables = [now[oid] for oid in known if oid in now and oid not in unsteady]
        unsuited = self._unsuited([(known[table.oid], table) for table in tables])
        tables = [table for table in tables if table.oid not in unsuited]
        changed = [table for table in tables if table != known[table.oid]]
        unsure = {table.oid for table in changed} | self._tables.unprepared | self._state.unsure
        refused = self._fit([table for table in tables if table.oid in unsure])
        fitted = {table.oid for table in tables} - refused
        self._tables.prepared(fitted)
        self._state.unsure -= fitted
        kept = [
            replace(table, version=known[table.oid].version)
            for table in tables
            if table.oid not in refused
        ]
        self._store.store_table_schemas(
            [table for table in kept if not table.says_the_same(known[table.oid])], lsn - 1
        )
        return [table for table in tables if table.oid not in refused]

    def _unsuited(self, pairs: Sequence[tuple[TableDefinition, TableDefinition]]) -> set[int]:
        """Tables that have changed so that rules do not suit them any more; they are refused. A
        copy may come before the stream tells of the change, or in its place.
        """
        refused: set[int] = set()
        if self._transform is None:
            return refused
        known = {**self._store.get_table_schemas(), **{now.oid: now for _, now in pairs}}.values()
        for before, now in pairs:
            error = refused_later(self._transform, before, now, known, merges=self._target.merges)
            if error is not None:
                refused.add(now.oid)
                self._state.refuse(error)
        return refused

    def _with_leaves_of(
        self, files: Mapping[int, Mapping[int, LeafFile]], plans: Mapping[int, CopyPlan]
    ) -> dict[int, CopyPlan]:
        """Without those that have a partition which was emptied since ``files`` were read, before
        the snapshot: the stream tells nothing of that, and has rows that went with it.
        """
        steady = {
            oid: plan
            for oid, plan in plans.items()
            if oid not in files or not set(plan.leaf_files.items()) - _expected(files[oid], plan)
        }
        why = "a partition was emptied just when its snapshot was taken"
        self._start_again([oid for oid in plans if oid not in steady], why)
        return steady

    def _start_again(self, tables: Collection[int], why: str) -> None:
        if tables:
            self._state.start_again(tables, why)

    def _fit(self, tables: Sequence[TableDefinition]) -> set[int]:
        """Let the destination have these tables as they are now; those that it refuses."""
        refused = set()
        for table in tables:
            former = [v.definition for v in self._store.get_schema_versions(table.oid)]
            try:
                with refused_alone(table.oid):
                    self._target.fit(table, former)
            except TableRefused as error:
                refused.add(table.oid)
                self._state.refuse(error)
        return refused

    def _is_known_to_stream(self, oid: int) -> bool:
        """Only then may its snapshot be taken. To an append destination the stream brings all
        changes, so the query has to know the table before its rows are copied; to others it brings
        none until then, so a query that still does has to end.
        """
        if not self._target.merges:
            return oid in self._tables.part.known
        return not self._tables.is_delivered(oid)

    def _plans(self, tables: Sequence[TableDefinition]) -> dict[int, CopyPlan]:
        """What to read, with every target empty; tables that cannot be copied are refused."""
        plans = {}
        made = self._source.plan(tables)
        there = made.found.keys() | made.refused.keys()
        gone = [table.oid for table in tables if table.oid not in there]
        self._start_again(gone, "it was changed just now, or is gone from the source")
        for table in (table for table in tables if table.oid in there):
            try:
                with refused_alone(table.oid):
                    self._empty(table, made.refused.get(table.oid))
            except TableRefused as error:
                self._state.refuse(error)
            else:
                plans[table.oid] = made.found[table.oid]
        return plans

    def _empty(self, table: TableDefinition, refused: TableRefused | None) -> None:
        """Empty the target. Raises TableRefused where the table cannot be copied."""
        if refused is not None:
            raise refused
        if self._keeps_foreign_rows and self._target.has_foreign_rows(table):
            raise _not_empty(table)
        self._target.copies.truncate_table(table)

    def adopt(self) -> None:
        """Go on with copies that an earlier run began, or that lost their snapshot."""
        copies, in_hand = self._store.get_copies(), self._state.in_hand
        # One whose chunks are all there needs no snapshot any more.
        lost = [
            oid
            for oid in self._state.phase(DataSync)
            if oid not in in_hand
            and self._store.get_wish(oid) != "cancelled"
            and not (oid in copies and copies[oid].is_complete)
        ]
        if not lost:
            return
        lost = sorted(self._store.claim_copies(self._worker, lost))
        asked = copies if self._one_snapshot else lost
        if gone := [oid for oid in asked if self._is_gone(copies.get(oid))]:
            again = self._idle(copies) if self._one_snapshot else gone
            self._start_again(again, "the destination does not know what was copied to it")
            lost = [oid for oid in lost if oid not in again]
        for reading in [r for r in self._state.readings.values() if not r.is_gone]:
            lsn = reading.snapshot.lsn
            here = [oid for oid in lost if oid in copies and copies[oid].last_lsn == lsn]
            self._take_in(here, reading)
            lost = [oid for oid in lost if oid not in here]
        if lost and self._one_snapshot:
            self._state.queue.drop(copies)
            self._state.start_again(
                self._idle(copies), "the snapshot is gone, and all tables share one"
            )
            return
        schemas = self._store.get_table_schemas()
        keyless = [oid for oid in lost if oid not in copies or not schemas[oid].merge_key]
        if keyless:
            # Without a key nothing tells a row that was copied before from one that was not.
            self._state.start_again(keyless, "its snapshot is gone, and it has no key")
        keyed = [oid for oid in lost if oid not in keyless]
        if keyed:
            with self._new_snapshot() as (number, snapshot):
                self._store.copy_snapshots(keyed, snapshot.lsn)
                self._state.readings[number] = Reading(number, snapshot)
            self._take_in(keyed, self._state.readings[number])

    def _is_gone(self, copy: CopyProgress | None) -> bool:
        """Whether the destination has lost what the store knows to be copied."""
        return copy is not None and bool(copy.done) and not self._target.knows_copy(copy.table)

    def _idle(self, tables: Collection[int]) -> list[int]:
        return [oid for oid in tables if not self._state.is_busy(oid)]

    def _take_in(self, oids: Collection[int], reading: Reading) -> None:
        copies = self._store.get_copies()
        for oid in oids:
            reading.tables.add(oid)
            self._state.queue.add(_missing(copies[oid]))


def _expected(files: Mapping[int, LeafFile], plan: CopyPlan) -> set[tuple[int, int]]:
    """Partitions with their files; a new one begins with a file that has its oid for a name."""
    known = {oid: leaf.file for oid, leaf in files.items()}
    return {(oid, known.get(oid, oid)) for oid in plan.leaf_files}


def _missing(copy: CopyProgress) -> list[Chunk]:
    return [chunk for chunk in copy.plan.chunks if chunk.number not in copy.done]


def _not_empty(table: TableDefinition) -> TableRefused:
    return TableRefused(
        f"the destination's table for {table.qualified_name} holds rows that Penstock did not "
        "bring; it was not copied",
        remedy="empty it, or let the copy do that with source.copy: {existing_rows: truncate}; "
        "then `penstock tables retry`",
        table=table.oid,
    )
