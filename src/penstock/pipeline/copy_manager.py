"""The import manager: copies the tables that are to be copied, beside the stream.

It compares what is followed with what was copied, takes a snapshot for the tables that lack a copy,
puts their chunks into one queue and keeps the tasks busy that empty it. A table whose chunks are
all written is finished (finish_copies.py) in a thread of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

from penstock.backoff import Backoff
from penstock.destination.contract import ChunkReceipt, Destination
from penstock.error_policy import Action, decide
from penstock.errors import (
    PenstockError,
    SlotError,
    SnapshotGone,
    TableRefused,
    TableRewritten,
)
from penstock.lsn import Frontier
from penstock.pipeline.copy_progress import CopyView, copy_view
from penstock.pipeline.copy_queue import CopyQueue, CopyUnit
from penstock.pipeline.followed_tables import FollowedTables
from penstock.pipeline.standing import Standing
from penstock.pipeline.table_state import (
    Catchup,
    DataSync,
    FinishedCopy,
    Init,
    Ready,
    SyncDone,
    SyncWait,
    TableState,
)
from penstock.snapshot.chunk import Chunk, CopyPlan
from penstock.snapshot.held_snapshot import HeldSnapshot
from penstock.store import CopyProgress, Store
from penstock.table_definition import TableDefinition

_TURN_SECONDS = 0.05
_LOOK_SECONDS = 0.5


@dataclass
class Reading:
    """Tables that are read under one snapshot; ``is_gone`` once that is there no more."""

    number: int
    snapshot: HeldSnapshot
    tables: set[int] = field(default_factory=set)
    is_gone: bool = False


class Positions(Protocol):
    """Where the stream stands, and what it keeps for tables that are copied."""

    @property
    def standing(self) -> Standing: ...

    def place(self, tables: Mapping[int, Frontier]) -> None: ...

    def free(self, tables: Collection[int]) -> None: ...


class Snapshots(Protocol):
    """Those who hold snapshots."""

    def found(self) -> dict[int, HeldSnapshot]:
        """Those that an earlier run left and that still live, by number."""

    def take(self) -> tuple[int, HeldSnapshot]:
        """A new one, and its number."""

    def keep(self) -> None:
        """Called often while they are needed."""

    def release(self, number: int) -> None: ...


class Finish(Protocol):
    """What comes after a table's last chunk."""

    def finish(self, tables: Sequence[TableDefinition]) -> None: ...


Plan = Callable[[Sequence[TableDefinition]], Mapping[int, CopyPlan | TableRefused]]
"""What to read of each table, or why it cannot be copied."""

CopyUnitNow = Callable[
    [CopyUnit, HeldSnapshot, Mapping[int, CopyPlan], Collection[int]], list[ChunkReceipt]
]
"""Copies the chunks of a unit in one Spark task; the last argument are tables that are read under
a later snapshot than their first chunks were."""


class CopyManager:
    """Runs in a thread of its own from ``start`` to ``stop``; ``check`` raises what ended it."""

    def __init__(
        self,
        destination: Destination,
        store: Store,
        tables: FollowedTables,
        committer: Positions,
        snapshots: Snapshots,
        plan: Plan,
        copy_unit: CopyUnitNow,
        finish: Finish,
        *,
        parallelism: int,
        leaves_room: bool,
        unit_bytes: int,
        worker: str,
        one_snapshot: bool,
        over_budget: Callable[[], str | None],
        pause_over_budget: bool,
        say: Callable[[str], None],
    ) -> None:
        self._destination = destination
        self._store = store
        self._tables = tables
        self._committer = committer
        self._snapshots = snapshots
        self._plan = plan
        self._copy_unit = copy_unit
        self._finish = finish
        self._parallelism = parallelism
        self._leaves_room = leaves_room
        self._worker = worker
        self._one_snapshot = one_snapshot
        self._over_budget = over_budget
        self._pause_over_budget = pause_over_budget
        self._say = say
        self._queue = CopyQueue(unit_bytes)
        self._readings: dict[int, Reading] = {}
        self._units: dict[Future[list[ChunkReceipt]], tuple[CopyUnit, Reading]] = {}
        self._finishing: Future[None] | None = None
        self._finishing_tables: frozenset[int] = frozenset()
        self._pause = Backoff()
        self._next_look = 0.0
        self._next_admission: dict[int, float] = {}
        self._restarts: dict[int, int] = {}
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-copies", daemon=True)
        self._pool = ThreadPoolExecutor(parallelism + 1, "penstock-copy")

    # -- its life --------------------------------------------------------------------------------

    def start(self) -> None:
        self._store.begin_claims(self._worker)
        self._thread.start()

    def stop(self) -> None:
        """Let what is under way come to its end; snapshots stay, for whoever comes next."""
        self._stopping.set()
        self._thread.join()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def check_stopping(self) -> None:
        if self._stopping.is_set():
            raise CopiesStopped("the pipeline is stopping")

    def views(self) -> list[CopyView]:
        """How far each table's copy is."""
        now, states = time.time(), self._store.get_table_states()
        return [
            copy_view(self._tables.name(oid).removeprefix("table "), states[oid].phase, copy, now)
            for oid, copy in self._store.get_copies().items()
            if oid in states
        ]

    def _run(self) -> None:
        try:
            self._readings = {n: Reading(n, held) for n, held in self._snapshots.found().items()}
            while not self._stopping.is_set():
                try:
                    if not self._turn():
                        self._stopping.wait(_TURN_SECONDS)
                except PenstockError as error:
                    # A snapshot waits for open transactions; they will end.
                    if decide(error) is not Action.RETRY and not isinstance(error, SlotError):
                        raise
                    self._say(error.message)
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
            self._adopt()
            self._admit()
        busy |= self._hand_out()
        busy |= self._begin_finishing()
        self._release_readings()
        return busy

    # -- tables come in --------------------------------------------------------------------------

    def _phase(self, *kinds: type[TableState]) -> list[int]:
        states = self._store.get_table_states()
        return [oid for oid, state in states.items() if isinstance(state, kinds)]

    def _definitions(self, oids: Collection[int]) -> list[TableDefinition]:
        schemas = self._store.get_table_schemas()
        return [schemas[oid] for oid in oids if oid in schemas]

    @property
    def _in_hand(self) -> set[int]:
        return {oid for reading in self._readings.values() for oid in reading.tables}

    def _admit(self) -> None:
        """Begin the copies of tables that have none."""
        now = time.monotonic()
        new = [
            oid
            for oid in self._phase(Init)
            if self._is_known_to_stream(oid)
            and self._store.get_wish(oid) is None
            and now >= self._next_admission.get(oid, 0.0)
        ]
        mine = self._store.claim_copies(self._worker, new) if new else set()
        if not mine:
            return
        tables = self._definitions(sorted(mine))
        if self._destination.capabilities.mode == "merge":
            # From before the snapshot on: its point is where the stream may be already.
            frontier = self._committer.standing.frontier
            self._committer.place(dict.fromkeys(mine, frontier))
        number, snapshot = self._snapshots.take()
        plans = self._plans(tables)
        if self._destination.capabilities.mode == "merge":
            self._committer.free([oid for oid in mine if oid not in plans])
            at = Frontier(snapshot.lsn - 1, snapshot.lsn)
            self._committer.place(dict.fromkeys(plans, at))
        self._store.start_copies(plans, snapshot.lsn)
        self._store.update_table_states({oid: DataSync() for oid in plans})
        self._readings[number] = Reading(number, snapshot, set(plans))
        for plan in plans.values():
            self._queue.add(plan.chunks)

    def _is_known_to_stream(self, oid: int) -> bool:
        """Only then may its snapshot be taken: a query that does not know a new table drops its
        changes, and one that does not know that it is to be copied again delivers them.
        """
        part = self._tables.part
        if self._destination.capabilities.mode == "append":
            return oid in part.known
        return oid in part.set_aside

    def _plans(self, tables: Sequence[TableDefinition]) -> dict[int, CopyPlan]:
        """What to read, with every target empty; tables that cannot be copied are refused."""
        plans = {}
        found = self._plan(tables)
        for table in tables:
            plan = found[table.oid]
            try:
                if isinstance(plan, TableRefused):
                    raise plan
                self._destination.truncate_table(table)
            except TableRefused as error:
                self._refuse(error)
            else:
                plans[table.oid] = plan
        return plans

    def _adopt(self) -> None:
        """Go on with copies that an earlier run began, or that lost their snapshot."""
        copies, in_hand = self._store.get_copies(), self._in_hand
        # One whose chunks are all there needs no snapshot any more.
        lost = [
            oid
            for oid in self._phase(DataSync)
            if oid not in in_hand
            and self._store.get_wish(oid) != "cancelled"
            and not (oid in copies and copies[oid].is_complete)
        ]
        if not lost:
            return
        lost = sorted(self._store.claim_copies(self._worker, lost))
        for reading in [r for r in self._readings.values() if not r.is_gone]:
            lsn = reading.snapshot.lsn
            here = [oid for oid in lost if oid in copies and copies[oid].last_lsn == lsn]
            self._take_in(here, reading)
            lost = [oid for oid in lost if oid not in here]
        if lost and self._one_snapshot:
            every = [oid for oid in copies if not self._is_busy(oid)]
            self._start_again(every, "the snapshot is gone, and all tables share one")
            return
        schemas = self._store.get_table_schemas()
        keyless = [oid for oid in lost if oid not in copies or not schemas[oid].merge_key]
        if keyless:
            # Without a key nothing tells a row that was copied before from one that was not.
            self._start_again(keyless, "its snapshot is gone, and it has no key")
        keyed = [oid for oid in lost if oid not in keyless]
        if keyed:
            number, snapshot = self._snapshots.take()
            self._store.copy_snapshots(keyed, snapshot.lsn)
            self._readings[number] = Reading(number, snapshot)
            self._take_in(keyed, self._readings[number])

    def _take_in(self, oids: Collection[int], reading: Reading) -> None:
        copies = self._store.get_copies()
        for oid in oids:
            reading.tables.add(oid)
            self._queue.add(_missing(copies[oid]))

    # -- chunks ----------------------------------------------------------------------------------

    def _hand_out(self) -> bool:
        resting = {
            oid for oid in self._queue.tables if self._store.get_wish(oid) in ("paused", "resync")
        }
        handed = False
        allowed = self._allowed()
        while len(self._units) < allowed:
            # Chunks of one task are read under one snapshot.
            for reading in self._readings.values():
                others = self._queue.tables - reading.tables
                unit = self._queue.take(resting | others)
                if unit is not None:
                    break
            else:
                break
            copies = self._store.get_copies()
            plans = {oid: copies[oid].plan for oid in unit.tables}
            again = {oid for oid in unit.tables if copies[oid].snapshots > 1}
            future = self._pool.submit(self._copy_unit, unit, reading.snapshot, plans, again)
            self._units[future] = (unit, reading)
            handed = True
        return handed

    def _allowed(self) -> int:
        """How many tasks may copy now: one is left to the stream, if somebody waits for that."""
        if self._leaves_room and self._phase(Ready, SyncDone):
            return max(1, self._parallelism - 1)
        return self._parallelism

    def _collect_units(self) -> bool:
        done = [future for future in self._units if future.done()]
        for future in done:
            unit, reading = self._units.pop(future)
            self._queue.done(unit)
            try:
                receipts = future.result()
            except PenstockError as error:
                self._unit_failed(unit, reading, error)
                continue
            self._destination.commit_chunks(receipts)
            copies = self._store.get_copies()
            written = {
                (chunk.table, chunk.number): (receipt.rows, receipt.bytes)
                for chunk, receipt in zip(unit.chunks, receipts, strict=True)
                if chunk.table in copies and chunk.table in reading.tables
            }
            self._store.chunks_done(written)
            self._pause = Backoff()
        return bool(done)

    def _unit_failed(self, unit: CopyUnit, reading: Reading, error: PenstockError) -> None:
        copies = self._store.get_copies()
        chunks = [c for c in unit.chunks if c.table in reading.tables and c.table in copies]
        if isinstance(error, TableRefused):
            self._drop(error.table)
            self._refuse(error)
            self._queue.again([chunk for chunk in chunks if chunk.table != error.table])
        elif isinstance(error, TableRewritten):
            self._queue.again([chunk for chunk in chunks if chunk.table != error.table])
            self._start_again([error.table], error.message)
        elif isinstance(error, SnapshotGone):
            self._say(f"{error.message}; a new one is taken")
            self._queue.drop(reading.tables)
            reading.tables.clear()
            reading.is_gone = True
        elif decide(error) in (Action.RETRY, Action.AGAIN):
            self._say(error.message)
            self._queue.again(chunks)
            self._pause.wait(self._stopping.is_set)
        else:
            raise error

    # -- tables go on ----------------------------------------------------------------------------

    def _begin_finishing(self) -> bool:
        if self._finishing is not None:
            return False
        copies = self._store.get_copies()
        waiting = self._queue.tables
        done = [
            oid
            for oid in self._phase(DataSync)
            if oid in copies
            and copies[oid].is_complete
            and oid not in waiting
            and self._store.get_wish(oid) is None
        ]
        done += [
            oid
            for oid in self._phase(FinishedCopy, SyncWait, Catchup)
            if self._store.get_wish(oid) is None
        ]
        if not done:
            return False
        for oid in done:
            for reading in self._readings.values():
                reading.tables.discard(oid)
        self._finishing_tables = frozenset(done)
        self._finishing = self._pool.submit(self._finish.finish, self._definitions(done))
        return True

    def _collect_finished(self) -> bool:
        if self._finishing is None or not self._finishing.done():
            return False
        finished, tables = self._finishing, self._finishing_tables
        self._finishing, self._finishing_tables = None, frozenset()
        try:
            finished.result()
        except CopiesStopped:
            pass
        except TableRefused as error:
            self._refuse(error)
        except PenstockError as error:
            if decide(error) not in (Action.RETRY, Action.AGAIN):
                raise
            # The tables stay where they are on their way, and are taken up again from there.
            self._say(error.message)
            self._pause.wait(self._stopping.is_set)
            return True
        self._store.release_claims(self._worker, tables)
        return True

    def _release_readings(self) -> None:
        used = {reading.number for _unit, reading in self._units.values()}
        for number in [n for n, r in self._readings.items() if not r.tables and n not in used]:
            del self._readings[number]
            self._snapshots.release(number)

    # -- wishes and trouble ----------------------------------------------------------------------

    def _heed_wishes(self) -> None:
        for oid, state in self._store.get_table_states().items():
            wish = self._store.get_wish(oid)
            if wish not in ("cancelled", "resync") or self._is_busy(oid):
                continue
            if not isinstance(state, Init):
                self._give_up([oid])
            if wish == "resync":
                self._store.fulfil_wishes({oid: "resync"})

    def _is_busy(self, oid: int) -> bool:
        """Whether something of the table is under way, which has to end first."""
        self._queue.drop([oid])
        return self._queue.is_under_way(oid) or oid in self._finishing_tables

    def _heed_budget(self) -> None:
        """Give copies up before what they hold back fills the source's disk."""
        holding = [oid for oid in self._phase(DataSync) if not self._is_finishing(oid)]
        why = self._over_budget() if holding else None
        if why is None:
            return
        if self._pause_over_budget:
            self._say(f"{why}; the copies are given up and rest until `penstock tables resume`")
            self._store.set_wishes(dict.fromkeys(holding, "paused"))
        else:
            self._say(f"{why}; the copies start again")
        self._give_up(holding)

    def _is_finishing(self, oid: int) -> bool:
        return oid in self._finishing_tables

    def _start_again(self, oids: Collection[int], why: str) -> None:
        for oid in oids:
            times = self._restarts[oid] = self._restarts.get(oid, 0) + 1
            self._next_admission[oid] = time.monotonic() + min(60.0, 0.5 * 2**times)
            self._say(f"{self._tables.name(oid)} starts again: {why}")
        self._give_up(oids)

    def _give_up(self, oids: Collection[int]) -> None:
        """Nothing is left of their copies but rows, which the next copy removes first."""
        for oid in oids:
            self._drop(oid)
        self._store.update_table_states({oid: Init() for oid in oids})
        self._store.forget_copy(oids)
        self._committer.free(oids)
        self._store.release_claims(self._worker, oids)

    def _drop(self, oid: int) -> None:
        self._queue.drop([oid])
        for reading in self._readings.values():
            reading.tables.discard(oid)

    def _refuse(self, error: TableRefused) -> None:
        self._tables.refuse(error)
        self._store.release_claims(self._worker, [error.table])


class CopiesStopped(PenstockError):
    """Raised inside a copy that the pipeline's end cuts short; nothing is wrong."""


def _missing(copy: CopyProgress) -> list[Chunk]:
    return [chunk for chunk in copy.plan.chunks if chunk.number not in copy.done]
