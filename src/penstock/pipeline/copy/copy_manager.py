"""The import manager: copies the tables that are to be copied, beside the stream.

It compares what is followed with what was copied, takes a snapshot for the tables that lack a copy,
puts their chunks into one queue and keeps the tasks busy that empty it. A table whose chunks are
all written is finished (finish_copies.py) in a thread of its own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from penstock.cadence import paced
from penstock.model.error_policy import Action, decide
from penstock.model.errors import (
    PenstockError,
    RowsRefused,
    SlotError,
    TableChanged,
    TableRefused,
)
from penstock.model.table_state import (
    Catchup,
    DataSync,
    Errored,
    FinishedCopy,
    Init,
    SyncWait,
)
from penstock.pipeline.copy.copy_admission import CopyAdmission
from penstock.pipeline.copy.copy_progress import CopyView, copy_view, under_way
from penstock.pipeline.copy.copy_retries import CopyRetries
from penstock.pipeline.copy.copy_settings import CopySettings
from penstock.pipeline.copy.copy_state import CopyState, Positions, Reading
from penstock.pipeline.copy.copy_units import CopyUnits
from penstock.pipeline.copy.copy_work import CopiesStopped, CopyWork
from penstock.pipeline.copy.joined_tables import JoinedTables
from penstock.pipeline.copy.replay import TablesChanged
from penstock.pipeline.copy.wal_budget import WalBudget
from penstock.pipeline.run.context import RunContext
from penstock.pipeline.tables.registry import TableRegistry

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
        self._metrics = context.metrics
        self._tables = tables
        self._settings = settings
        self._snapshots = work.source.snapshots
        self._finish = work.finish
        self._stopping = work.end.told
        self._budget = WalBudget(context, work.source)
        self._state = CopyState(context.store, tables, positions, settings)
        self._admission = CopyAdmission(
            self._state, context.store, tables, positions, work, settings
        )
        self._finishing: Future[None] | None = None
        self._schema = work.schema
        self._completing: Future[None] | None = None
        self._looked_at: frozenset[int] = frozenset()
        self._retries = CopyRetries(context.metrics, self._stopping)
        self._next_look = self._next_view = 0.0
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-copies", daemon=True)
        # Beside the chunks: what is finished, what is made of the schema, what has joined.
        self._pool = ThreadPoolExecutor(settings.parallelism + 3, "penstock-copy")
        self._joined = JoinedTables(work.target, tables, positions, self._pool)
        self._units = CopyUnits(context, work, settings, self._state, self._retries, self._pool)

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
        return self._joined.is_settled and (
            self._schema is None
            or (
                self._schema.is_whole
                and self._completing is None
                and self._looked_at.issuperset(self._state.phase(Errored))
            )
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
            while self._trying(self._find_snapshots) is False and not self._stopping.is_set():
                pass
            self._trying(self._units.take_left)
            while not self._stopping.is_set():
                if not self._trying(self._turn):
                    self._stopping.wait(_TURN_SECONDS)
        except BaseException as error:
            self._failure = error

    def _find_snapshots(self) -> None:
        """Those that an earlier run left, here or on another machine."""
        found = self._snapshots.found()
        self._state.readings = {number: Reading(number, held) for number, held in found.items()}

    def _trying(self, step: Callable[[], bool | None]) -> bool | None:
        """What the step returns; False, after a pause, where another try may succeed."""
        try:
            return step()
        except PenstockError as error:
            # A snapshot waits for open transactions; they will end.
            is_passing = decide(error) in (Action.RETRY, Action.AGAIN)
            if not is_passing and not isinstance(error, SlotError):
                raise
            self._retries.count(error)
            _log.warning(error.message, extra={"event": "copy_failed"})
            self._retries.wait()
            return False

    def _turn(self) -> bool:
        """One look at everything; whether something was done."""
        self._snapshots.keep()
        busy = self._units.collect()
        busy |= self._collect_finished()
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_SECONDS
            self._joined.look()
            self._store.load_wishes()
            self._units.look()
            self._heed_wishes()
            self._heed_budget()
            self._admission.adopt()
            self._admission.admit()
        busy |= self._units.hand_out()
        busy |= self._begin_finishing()
        self._see_to_schema()
        self._release_readings()
        return busy

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
            self._retries.count(error)
            self._state.start_again(error.tables, error.message)
        except TableChanged as error:
            self._retries.count(error)
            self._state.start_again([error.table], error.message)
        except (TableRefused, RowsRefused) as error:
            self._metrics.failed("copy", error)
            self._state.refuse(error)
        except PenstockError as error:
            if decide(error) not in (Action.RETRY, Action.AGAIN):
                raise
            self._retries.count(error)
            # The tables stay where they are on their way, and are taken up again from there.
            _log.warning(error.message, extra={"event": "copy_failed"})
            self._retries.wait()
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
                self._tables.retry(oid)

    def _release_readings(self) -> None:
        used = self._units.used_readings
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
