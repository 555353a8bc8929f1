"""Units of chunks on their way: handed to tasks or offered to workers, and collected."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from penstock.failpoints import failpoint
from penstock.metrics.written import CopyResult
from penstock.model.error_policy import Action, decide
from penstock.model.errors import (
    PenstockError,
    RowsRefused,
    SnapshotGone,
    TableChanged,
    TableRefused,
    TableRewritten,
)
from penstock.model.table_state import Ready, SyncDone
from penstock.pipeline.copy.copy_queue import CopyUnit
from penstock.pipeline.copy.copy_retries import CopyRetries
from penstock.pipeline.copy.copy_settings import CopySettings
from penstock.pipeline.copy.copy_state import CopyState
from penstock.pipeline.copy.copy_work import CopyWork
from penstock.pipeline.run.context import RunContext
from penstock.pipeline.run.engine import TableToCopy
from penstock.pipeline.workers.chunk_offers import ChunkOffers, TakenUnit
from penstock.source.contract import Snapshot
from penstock.source.copy_plan import CopyPlan

_log = logging.getLogger(__name__)


class CopyUnits:
    """For the thread that copies. ``pool`` runs the driver's own tasks."""

    def __init__(
        self,
        context: RunContext,
        work: CopyWork,
        settings: CopySettings,
        state: CopyState,
        retries: CopyRetries,
        pool: ThreadPoolExecutor,
    ) -> None:
        self._store = context.store
        self._engine = context.engine
        self._metrics = context.metrics
        self._table_name = state.table_name
        self._source = work.source
        self._copies = work.target.copies
        self._settings = settings
        self._state = state
        self._retries = retries
        self._pool = pool
        self._units: dict[Future[CopyResult], TakenUnit] = {}
        self._offers = ChunkOffers(
            context.config, context.store, work.source, work.target.copies, settings.worker
        )

    @property
    def used_readings(self) -> set[int]:
        """The numbers of the readings that something is copied under."""
        return {taken.reading.number for taken in self._units.values()}

    def take_left(self) -> None:
        """Count what workers did while no driver was there. Called once, at the start."""
        for job, result in self._offers.left():
            copies = self._store.get_copies()
            of_now = {
                oid
                for oid, table in job.tables.items()
                if oid in copies and copies[oid].copy_id == table.copy
            }
            try:
                self._count(CopyUnit(job.chunks), result, of_now)
            except TableRefused as error:
                self._state.refuse(error)
            except PenstockError as error:
                # They are copied once more, as those of which nothing is left.
                if decide(error) not in (Action.RETRY, Action.AGAIN):
                    raise
                _log.warning(error.message, extra={"event": "copy_failed"})
                self._retries.count(error)

    def look(self) -> None:
        """Now and then: see whether there are workers, and take back what they are not to do."""
        self._offers.look(is_waiting=bool(self._state.queue.tables))
        unwanted = [
            future
            for future, taken in self._units.items()
            if not self._offers.are_wanted or not self._is_wanted(taken)
        ]
        for future in self._offers.take_back(unwanted):
            taken = self._units.pop(future)
            self._state.queue.done(taken.unit)
            self._again(taken)

    def _is_wanted(self, taken: TakenUnit) -> bool:
        tables = taken.unit.tables
        return tables <= taken.reading.tables and not any(
            self._store.get_wish(oid) for oid in tables
        )

    def hand_out(self) -> bool:
        """Whether something was handed out."""
        resting = {
            oid
            for oid in self._state.queue.tables
            if self._store.get_wish(oid) in ("paused", "resync")
        }
        if self._offers.are_wanted:
            return self._offer(resting)
        handed = False
        allowed = self._allowed()
        while len(self._units) - self._offers.count < allowed:
            if (taken := self._take(resting)) is None:
                break
            unit = taken.unit
            copies = self._store.get_copies()
            plans = {oid: copies[oid].plan for oid in unit.tables}
            again = {oid for oid in unit.tables if copies[oid].snapshots > 1}
            future = self._pool.submit(self._copy, unit, taken.reading.snapshot, plans, again)
            self._units[future] = taken
            handed = True
        return handed

    def _offer(self, resting: Collection[int]) -> bool:
        taken: list[TakenUnit] = []
        while len(taken) < self._offers.room and (one := self._take(resting)) is not None:
            taken.append(one)
        if not taken:
            return False
        try:
            futures = self._offers.offer(taken)
        except BaseException:
            for each in taken:
                self._state.queue.done(each.unit)
                self._again(each)
            raise
        self._units.update(zip(futures, taken, strict=True))
        return True

    def _take(self, resting: Collection[int]) -> TakenUnit | None:
        """Chunks of one task are read under one snapshot."""
        for reading in self._state.readings.values():
            others = self._state.queue.tables - reading.tables
            unit = self._state.queue.take({*resting, *others})
            if unit is not None:
                return TakenUnit(unit, reading)
        return None

    def _copy(
        self,
        unit: CopyUnit,
        snapshot: Snapshot,
        plans: Mapping[int, CopyPlan],
        again: Collection[int],
    ) -> CopyResult:
        """Copy the chunks of a unit in one task. ``again`` are tables that are read under a later
        snapshot than their first chunks were.
        """
        schemas = self._store.get_table_schemas()
        tables = {
            oid: TableToCopy(
                self._source.layout(schemas[oid]),
                plans[oid].where,
                self._copies.chunk_writer(schemas[oid], again=oid in again),
            )
            for oid in unit.tables
        }
        return self._engine.copy_chunks(unit.chunks, self._source.opener(snapshot), tables)

    def _allowed(self) -> int:
        """How many tasks may copy now: one is left to the stream, if somebody waits for that."""
        if self._settings.leaves_room and self._state.phase(Ready, SyncDone):
            return max(1, self._settings.parallelism - 1)
        return self._settings.parallelism

    def collect(self) -> bool:
        """Commit what was copied; whether there was something."""
        self._offers.collect()
        done = [future for future in self._units if future.done()]
        for future in done:
            taken = self._units.pop(future)
            self._state.queue.done(taken.unit)
            try:
                self._count(taken.unit, future.result(), taken.reading.tables)
            except PenstockError as error:
                self._failed(taken, error)
                self._retries.count(error)
            else:
                self._retries.reset()
            self._offers.settle([future])
        return bool(done)

    def _count(self, unit: CopyUnit, result: CopyResult, tables: Collection[int]) -> None:
        """Commit the chunks of a unit, and note those of ``tables``."""
        self._copies.commit_chunks(result.receipts)
        copies = self._store.get_copies()
        written = {
            (chunk.table, chunk.number): (receipt.rows, receipt.bytes)
            for chunk, receipt in zip(unit.chunks, result.receipts, strict=True)
            if chunk.table in copies and chunk.table in tables
        }
        failpoint("worker.committed")
        self._store.chunks_done(written)
        failpoint("worker.noted")
        self._metrics.copied(
            ((self._table_name(table), rows, size) for (table, _), (rows, size) in written.items()),
            result.written,
        )

    def _failed(self, taken: TakenUnit, error: PenstockError) -> None:
        reading = taken.reading
        if isinstance(error, TableRewritten | TableChanged):
            self._again(taken, but=error.table)
            self._state.start_again([error.table], error.message)
        elif isinstance(error, TableRefused | RowsRefused):
            # First what nobody else would bring back, were the store away.
            self._state.drop(error.table)
            self._again(taken, but=error.table)
            self._state.refuse(error)
        elif isinstance(error, SnapshotGone):
            if reading.is_gone:
                return  # others of the unit's kind have said so
            _log.warning("%s; a new one is taken", error.message, extra={"event": "snapshot_gone"})
            self._state.queue.drop(reading.tables)
            reading.tables.clear()
            reading.is_gone = True
        elif decide(error) in (Action.RETRY, Action.AGAIN):
            _log.warning(error.message, extra={"event": "copy_failed"})
            self._again(taken)
            self._retries.wait()
        else:
            raise error

    def _again(self, taken: TakenUnit, but: int | None = None) -> None:
        """Put chunks back that are still to be copied."""
        copies = self._store.get_copies()
        self._state.queue.again(
            [
                chunk
                for chunk in taken.unit.chunks
                if chunk.table != but
                and chunk.table in taken.reading.tables
                and chunk.table in copies
            ]
        )
