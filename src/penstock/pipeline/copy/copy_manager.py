"""The import manager: copies the tables that are to be copied, beside the stream.

It compares what is followed with what was copied, takes a snapshot for the tables that lack a copy,
puts their chunks into one queue and keeps the tasks busy that empty it. A table whose chunks are
all written is finished (finish_copies.py) in a thread of its own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from penstock.backoff import Backoff
from penstock.cadence import paced
from penstock.metrics.written import CopyResult
from penstock.model.error_policy import Action, decide
from penstock.model.errors import (
    PenstockError,
    SlotError,
    SnapshotGone,
    TableChanged,
    TableRefused,
    TableRewritten,
)
from penstock.model.table_state import (
    Catchup,
    DataSync,
    Errored,
    FinishedCopy,
    Init,
    Ready,
    SyncDone,
    SyncWait,
)
from penstock.pipeline.copy.copy_admission import CopyAdmission
from penstock.pipeline.copy.copy_progress import CopyView, copy_view, under_way
from penstock.pipeline.copy.copy_queue import CopyUnit
from penstock.pipeline.copy.copy_settings import CopySettings
from penstock.pipeline.copy.copy_state import CopyState, Positions, Reading
from penstock.pipeline.copy.copy_work import CopiesStopped, CopyWork
from penstock.pipeline.copy.replay import TablesChanged
from penstock.pipeline.copy.wal_budget import WalBudget
from penstock.pipeline.run.context import RunContext
from penstock.pipeline.run.engine import TableToCopy
from penstock.pipeline.tables.registry import TableRegistry
from penstock.source.contract import Snapshot
from penstock.source.copy_plan import CopyPlan

_TURN_SECONDS = 0.05
_LOOK_SECONDS = paced(0.5)
_VIEW_SECONDS = 0.5


_log = logging.getLogger(__name__)


class CopyManager:
    """Runs in a thread of its own from ``start`` to ``stop``; ``check`` raises what ended it."""

    def __init__(
        self,
        context: RunContext,
        tables: TableRegistry,
        positions: Positions,
        work: CopyWork,
        settings: CopySettings,
    ) -> None:
        self._store = context.store
        self._engine = context.engine
        self._metrics = context.metrics
        self._tables = tables
        self._settings = settings
        self._source = work.source
        self._snapshots = work.source.snapshots
        self._target = work.target
        self._finish = work.finish
        self._stopping = work.end.told
        self._budget = WalBudget(context, work.source)
        self._state = CopyState(context.store, tables, positions, settings)
        self._admission = CopyAdmission(
            self._state, context.store, tables, positions, work, settings
        )
        self._units: dict[Future[CopyResult], tuple[CopyUnit, Reading]] = {}
        self._finishing: Future[None] | None = None
        self._schema = work.schema
        self._completing: Future[None] | None = None
        self._looked_at: frozenset[int] = frozenset()
        self._pause = Backoff()
        self._next_look = self._next_view = 0.0
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-copies", daemon=True)
        self._pool = ThreadPoolExecutor(settings.parallelism + 2, "penstock-copy")

    # -- its life --------------------------------------------------------------------------------

    def start(self) -> None:
        self._store.begin_claims(self._settings.worker)
        self._thread.start()

    def stop(self) -> None:
        """Let what is under way come to its end; snapshots stay, for whoever comes next."""
        self._stopping.set()
        self._thread.join()
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._schema is not None:
            self._schema.end()

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    @property
    def is_settled(self) -> bool:
        """Whether all that goes with the tables is there, too. For any thread."""
        return self._schema is None or (
            self._schema.is_whole
            and self._completing is None
            and self._looked_at.issuperset(self._state.phase(Errored))
        )

    def views(self) -> list[CopyView]:
        """How far each table's copy is."""
        now, states = time.time(), self._store.get_table_states()
        return [
            copy_view(self._tables.qualified_name(oid), states[oid].phase, copy, now)
            for oid, copy in self._store.get_copies().items()
            if oid in states
        ]

    def show(self, observe: Callable[[list[CopyView]], None]) -> None:
        """Called often; lets somebody see how far the copies are now and then."""
        if time.monotonic() >= self._next_view:
            self._next_view = time.monotonic() + _VIEW_SECONDS
            views = self.views()
            self._metrics.copying(
                {v.table: max(0, v.bytes - v.bytes_done) for v in under_way(views)}
            )
            observe(views)

    def _run(self) -> None:
        try:
            self._state.readings = {
                n: Reading(n, held) for n, held in self._snapshots.found().items()
            }
            while not self._stopping.is_set():
                try:
                    if not self._turn():
                        self._stopping.wait(_TURN_SECONDS)
                except PenstockError as error:
                    # A snapshot waits for open transactions; they will end.
                    if decide(error) is not Action.RETRY and not isinstance(error, SlotError):
                        raise
                    self._retry(error)
                    _log.warning(error.message, extra={"event": "copy_failed"})
                    self._pause.wait(self._stopping.is_set)
        except BaseException as error:
            self._failure = error

    def _turn(self) -> bool:
        """One look at everything; whether something was done."""
        self._snapshots.keep()
        busy = self._collect_units()
        busy |= self._collect_finished()
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_SECONDS
            self._store.load_wishes()
            self._heed_wishes()
            self._heed_budget()
            self._admission.adopt()
            self._admission.admit()
        busy |= self._hand_out()
        busy |= self._begin_finishing()
        self._see_to_schema()
        self._release_readings()
        return busy

    # -- chunks ----------------------------------------------------------------------------------

    def _hand_out(self) -> bool:
        resting = {
            oid
            for oid in self._state.queue.tables
            if self._store.get_wish(oid) in ("paused", "resync")
        }
        handed = False
        allowed = self._allowed()
        while len(self._units) < allowed:
            # Chunks of one task are read under one snapshot.
            for reading in self._state.readings.values():
                others = self._state.queue.tables - reading.tables
                unit = self._state.queue.take(resting | others)
                if unit is not None:
                    break
            else:
                break
            copies = self._store.get_copies()
            plans = {oid: copies[oid].plan for oid in unit.tables}
            again = {oid for oid in unit.tables if copies[oid].snapshots > 1}
            future = self._pool.submit(self._copy, unit, reading.snapshot, plans, again)
            self._units[future] = (unit, reading)
            handed = True
        return handed

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
                self._target.copies.chunk_writer(schemas[oid], again=oid in again),
            )
            for oid in unit.tables
        }
        return self._engine.copy_chunks(unit.chunks, self._source.opener(snapshot), tables)

    def _allowed(self) -> int:
        """How many tasks may copy now: one is left to the stream, if somebody waits for that."""
        if self._settings.leaves_room and self._state.phase(Ready, SyncDone):
            return max(1, self._settings.parallelism - 1)
        return self._settings.parallelism

    def _collect_units(self) -> bool:
        done = [future for future in self._units if future.done()]
        for future in done:
            unit, reading = self._units.pop(future)
            self._state.queue.done(unit)
            try:
                result = future.result()
            except PenstockError as error:
                self._unit_failed(unit, reading, error)
                self._retry(error)
                continue
            self._target.copies.commit_chunks(result.receipts)
            copies = self._store.get_copies()
            written = {
                (chunk.table, chunk.number): (receipt.rows, receipt.bytes)
                for chunk, receipt in zip(unit.chunks, result.receipts, strict=True)
                if chunk.table in copies and chunk.table in reading.tables
            }
            self._store.chunks_done(written)
            self._metrics.copied(
                (
                    (self._tables.qualified_name(table), rows, size)
                    for (table, _), (rows, size) in written.items()
                ),
                result.written,
            )
            self._pause = Backoff()
        return bool(done)

    def _unit_failed(self, unit: CopyUnit, reading: Reading, error: PenstockError) -> None:
        copies = self._store.get_copies()
        chunks = [c for c in unit.chunks if c.table in reading.tables and c.table in copies]
        if isinstance(error, TableRewritten | TableChanged):
            self._state.queue.again([chunk for chunk in chunks if chunk.table != error.table])
            self._state.start_again([error.table], error.message)
        elif isinstance(error, TableRefused):
            self._state.drop(error.table)
            self._state.refuse(error)
            self._state.queue.again([chunk for chunk in chunks if chunk.table != error.table])
        elif isinstance(error, SnapshotGone):
            _log.warning("%s; a new one is taken", error.message, extra={"event": "snapshot_gone"})
            self._state.queue.drop(reading.tables)
            reading.tables.clear()
            reading.is_gone = True
        elif decide(error) in (Action.RETRY, Action.AGAIN):
            _log.warning(error.message, extra={"event": "copy_failed"})
            self._state.queue.again(chunks)
            self._pause.wait(self._stopping.is_set)
        else:
            raise error

    # -- tables go on ----------------------------------------------------------------------------

    def _begin_finishing(self) -> bool:
        if self._finishing is not None:
            return False
        copies = self._store.get_copies()
        waiting = self._state.queue.tables
        done = [
            oid
            for oid in self._state.phase(DataSync)
            if oid in copies
            and copies[oid].is_complete
            and oid not in waiting
            and self._store.get_wish(oid) is None
        ]
        done += [
            oid
            for oid in self._state.phase(FinishedCopy, SyncWait, Catchup)
            if self._store.get_wish(oid) is None
        ]
        if not done:
            return False
        for oid in done:
            for reading in self._state.readings.values():
                reading.tables.discard(oid)
        self._state.finishing = frozenset(done)
        self._finishing = self._pool.submit(self._finish.finish, self._state.definitions(done))
        return True

    def _collect_finished(self) -> bool:
        if self._finishing is None or not self._finishing.done():
            return False
        finished, tables = self._finishing, self._state.finishing
        self._finishing, self._state.finishing = None, frozenset()
        try:
            finished.result()
        except CopiesStopped:
            pass
        except TablesChanged as error:
            self._retry(error)
            self._state.start_again(error.tables, error.message)
        except TableChanged as error:
            self._retry(error)
            self._state.start_again([error.table], error.message)
        except TableRefused as error:
            self._metrics.failed("copy", error)
            self._state.refuse(error)
        except PenstockError as error:
            if decide(error) not in (Action.RETRY, Action.AGAIN):
                raise
            self._retry(error)
            # The tables stay where they are on their way, and are taken up again from there.
            _log.warning(error.message, extra={"event": "copy_failed"})
            self._pause.wait(self._stopping.is_set)
            return True
        self._store.release_claims(self._settings.worker, tables)
        return True

    def _see_to_schema(self) -> None:
        """What comes after the rows is made once, by a thread of its own: it may take long."""
        if self._schema is None:
            return
        if self._completing is not None and self._completing.done():
            completing, self._completing = self._completing, None
            with suppress(CopiesStopped):
                completing.result()
        if self._completing is not None:
            return
        errored = frozenset(self._state.phase(Errored))
        if self._schema.is_whole and errored - self._looked_at:
            self._completing = self._pool.submit(self._heal, errored - self._looked_at)
            self._looked_at = errored
        elif self._schema.is_due:
            self._looked_at &= errored
            self._completing = self._pool.submit(self._schema.keep)
        elif not self._schema.is_whole and self._tables.are_settled:
            self._completing = self._pool.submit(self._schema.after)

    def _heal(self, errored: frozenset[int]) -> None:
        """Try tables again that were refused, if the schema had changed meanwhile."""
        if self._schema is not None and self._schema.heals():
            for oid in errored.intersection(self._state.phase(Errored)):
                self._store.retry_table(oid)

    def _retry(self, error: PenstockError) -> None:
        """Count what is begun again."""
        self._metrics.failed("copy", error)
        self._metrics.retried("copy")

    def _release_readings(self) -> None:
        used = {reading.number for _unit, reading in self._units.values()}
        for number in [
            n for n, r in self._state.readings.items() if not r.tables and n not in used
        ]:
            del self._state.readings[number]
            self._snapshots.release(number)

    # -- wishes and trouble ----------------------------------------------------------------------

    def _heed_wishes(self) -> None:
        for oid, state in self._store.get_table_states().items():
            wish = self._store.get_wish(oid)
            if wish not in ("cancelled", "resync"):
                continue
            self._state.queue.drop([oid])
            if self._state.is_busy(oid):
                continue
            if not isinstance(state, Init):
                self._state.give_up([oid])
            if wish == "resync":
                self._store.fulfil_wishes({oid: "resync"})

    def _heed_budget(self) -> None:
        """Give copies up before what they hold back fills the source's disk."""
        holding = [oid for oid in self._state.phase(DataSync) if oid not in self._state.finishing]
        why = self._budget.over_budget() if holding else None
        if why is None:
            return
        if self._settings.pause_over_budget:
            _log.warning("%s; the copies are given up and rest until `penstock tables resume`", why)
            self._store.set_wishes(dict.fromkeys(holding, "paused"))
        else:
            _log.warning("%s; the copies start again", why)
        self._state.give_up(holding)
