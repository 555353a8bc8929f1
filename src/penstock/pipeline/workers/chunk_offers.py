"""The driver's side of workers: units that are offered to them, and what becomes of those."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from penstock.cadence import paced
from penstock.config.models import PipelineConfig
from penstock.destination.protocols import CopiedByWorkers, TakesCopies
from penstock.metrics.written import CopyResult
from penstock.model.errors import ConfigError, PenstockError
from penstock.model.table_definition import TableDefinition
from penstock.pipeline.copy.copy_queue import CopyUnit
from penstock.pipeline.copy.copy_state import Reading
from penstock.pipeline.workers.terms import Terms, definition_mark, terms_of
from penstock.pipeline.workers.unit_job import JobTable, UnitJob, result_of
from penstock.source.contract import CopySource
from penstock.store import Store

MOST_OFFERED = 2000
"""Units that stand in the store at a time: for many workers, and while no driver is there."""
_COLLECT_SECONDS = paced(0.25)
_WARN_SECONDS = 60.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TakenUnit:
    """A unit that left the queue, and what it is read under."""

    unit: CopyUnit
    reading: Reading


class ChunkOffers:
    """For the thread that copies. An offered unit is a future, as one that a task has."""

    def __init__(
        self,
        config: PipelineConfig,
        store: Store,
        source: CopySource,
        copies: TakesCopies,
        driver: str,
    ) -> None:
        copy = config.source.copy_rows
        self._required = copy is not None and copy.workers == "required"
        self._tickets = source.for_workers()
        self._destination = copies if isinstance(copies, CopiedByWorkers) else None
        if self._required and self._tickets is None:
            raise ConfigError(
                "source.copy.workers: this source cannot be read by workers",
                remedy="leave source.copy.workers out: then the pipeline copies by itself",
            )
        if self._tickets is None:
            self._destination = None
        if self._required and self._destination is None:
            raise ConfigError(
                f"source.copy.workers: destination {config.destination_type} takes no chunks from "
                "workers",
                remedy="leave source.copy.workers out: then the pipeline copies by itself",
            )
        self._config = config
        self._store = store
        self._driver = driver
        self._terms: Terms | None = None
        self._jobs: dict[Future[CopyResult], str] = {}
        self._unsure: list[str] = []
        self._has_workers = False
        self._next_collect = self._next_warning = 0.0

    @property
    def count(self) -> int:
        return len(self._jobs)

    @property
    def room(self) -> int:
        """How many more units may be offered: none where the pipeline is to copy by itself."""
        return max(0, MOST_OFFERED - self.count) if self.are_wanted else 0

    @property
    def are_wanted(self) -> bool:
        """Whether chunks go to workers: there is one, or nobody else may copy."""
        return self._destination is not None and (self._has_workers or self._required)

    def look(self, *, is_waiting: bool) -> None:
        """See whether there are workers, now and then, while something waits to be copied."""
        if self._destination is None or not (is_waiting or self.count):
            return
        self._store.forget_jobs(self._unsure)
        self._unsure.clear()
        self._has_workers = any(seen.is_alive for seen in self._store.load_workers())
        if self._required and not self._has_workers and time.monotonic() >= self._next_warning:
            self._next_warning = time.monotonic() + _WARN_SECONDS
            _log.warning(
                "tables wait to be copied, and there is no worker: start `penstock copy FILE`, "
                "here or on another machine",
                extra={"event": "no_workers"},
            )

    def left(self) -> Iterator[tuple[UnitJob, CopyResult]]:
        """What workers did for the driver before this one, as far as it counts without that. Called
        once, at the start.
        """
        found = self._store.take_left_jobs(self._driver)
        if self._destination is None or not self._destination.chunks_stand:
            return
        for each in found:
            job = UnitJob.from_json(dict(each.content))
            try:
                result = result_of(each.result)
            except PenstockError:
                continue  # whoever tries it again meets it again
            if job.terms == self._own_terms():
                yield job, result

    def offer(self, units: Sequence[TakenUnit]) -> list[Future[CopyResult]]:
        """Let workers have these. Raises Fenced where another driver has taken over."""
        assert self._tickets is not None  # noqa: S101 (there is no room)
        assert self._destination is not None  # noqa: S101 (nor here)
        tables: dict[tuple[int, int], JobTable] = {}
        jobs, futures = {}, []
        for each in units:
            of_unit = {}
            for oid in each.unit.tables:
                # One ticket for all chunks of a table: the destination may be asked for it.
                if (oid, each.reading.number) not in tables:
                    tables[oid, each.reading.number] = self._table(oid)
                of_unit[oid] = tables[oid, each.reading.number]
            snapshot = self._tickets.snapshot_ticket(each.reading.snapshot)
            job = UnitJob(self._own_terms(), snapshot, each.unit.chunks, of_unit)
            name = str(uuid.uuid4())
            jobs[name] = job.to_json()
            future: Future[CopyResult] = Future()
            futures.append(future)
            self._jobs[future] = name
        try:
            needs_driver = not self._destination.chunks_stand
            self._store.offer_jobs(self._driver, jobs, needs_driver=needs_driver)
        except BaseException:
            # Whether it was heard is not known. Nobody waits for these.
            self._unsure += [self._jobs.pop(future) for future in futures]
            raise
        return futures

    def collect(self) -> None:
        """See what workers have done: the futures of it are done then."""
        if not self._jobs or time.monotonic() < self._next_collect:
            return
        self._next_collect = time.monotonic() + _COLLECT_SECONDS
        results = self._store.job_results(self._driver)
        for future, job in self._jobs.items():
            if job in results and not future.done():
                try:
                    future.set_result(result_of(results[job]))
                except PenstockError as error:
                    future.set_exception(error)

    def take_back(self, futures: Collection[Future[CopyResult]]) -> list[Future[CopyResult]]:
        """Withdraw units that no worker is at; which of them are."""
        offered = {self._jobs[f]: f for f in futures if f in self._jobs and not f.done()}
        back = [offered[job] for job in self._store.take_jobs_back(self._driver, list(offered))]
        for future in back:
            del self._jobs[future]
        return back

    def settle(self, futures: Collection[Future[CopyResult]]) -> None:
        """What became of these is known: their jobs are needed no longer."""
        self._store.forget_jobs([self._jobs[f] for f in futures if f in self._jobs])
        for future in futures:
            self._jobs.pop(future, None)

    def _table(self, oid: int) -> JobTable:
        assert self._destination is not None  # noqa: S101 (as in ``offer``)
        table: TableDefinition = self._store.get_table_schemas()[oid]
        copy = self._store.get_copies()[oid]
        ticket = self._destination.chunk_ticket(table, again=copy.snapshots > 1)
        return JobTable(copy.copy_id, definition_mark(table), copy.plan.where, ticket)

    def _own_terms(self) -> Terms:
        assert self._tickets is not None  # noqa: S101 (as in ``offer``)
        if self._terms is None:
            self._terms = terms_of(self._config, self._tickets.place())
        return self._terms
