"""A worker: a process that copies chunks which the driver of a pipeline offers.

It has a pipeline file of its own, and nothing of the driver but what stands in the store. It never
opens the destination and commits nothing: what it wrote counts once the driver has committed it.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from penstock.backoff import Backoff
from penstock.cadence import paced
from penstock.config.models import PipelineConfig
from penstock.destination.contract import Destination
from penstock.destination.protocols import CopiedByWorkers
from penstock.destination.registry import make_destination
from penstock.failpoints import failpoint
from penstock.metrics.written import CopyResult, Written
from penstock.model.error_policy import Action, decide
from penstock.model.error_transport import error_to_text
from penstock.model.errors import (
    ConfigError,
    Fenced,
    PenstockError,
    RowsRefused,
    StoreUnavailable,
)
from penstock.model.quantity_text import bytes_text
from penstock.model.table_definition import TableDefinition
from penstock.pipeline.copy.chunk_task import LASTING, ChunkTask
from penstock.pipeline.run.engine import TableToCopy
from penstock.pipeline.run.filtering import pipeline_filter, pipeline_transform
from penstock.pipeline.workers.terms import Terms, definition_mark, expect_terms, terms_of
from penstock.pipeline.workers.unit_job import JobTable, UnitJob, result_of, result_text
from penstock.source.registry import make_source
from penstock.store import Store, WorkerReport
from penstock.store.copy_jobs import LEASE_SECONDS, Lease
from penstock.transform.step import Step, marked_by

_LOOK_SECONDS = paced(0.5)
_BEAT_SECONDS = LEASE_SECONDS / 6

_log = logging.getLogger(__name__)

Stopping = Callable[[], bool]


class _NotYet(PenstockError):
    """The job is about a table as this store does not know it yet, or no longer."""


class CopyWorker:
    """Copies one unit after another, from ``run`` on. ``store`` is open, and this worker's own."""

    def __init__(self, config: PipelineConfig, file: Path, store: Store) -> None:
        self._config = config
        self._store = store
        self._made = make_destination(
            config.destination_type, config.destination_options, config.delivery
        )
        self._destination = _taking_chunks(self._made)
        self._source = make_source(config).copies(file, lambda: None)
        tickets = self._source.for_workers()
        if tickets is None:
            raise ConfigError("this source cannot be read by workers")
        self._tickets = tickets
        wanted = pipeline_filter(config, holds_rows=self._made.capabilities.merges)
        steps = (wanted, pipeline_transform(config))
        self._steps: list[Step] = [step for step in steps if step is not None]
        self._terms: Terms | None = None
        self._planned: dict[int, str] = {}
        host, pid = socket.gethostname(), os.getpid()
        self._lock = threading.Lock()
        self._report = WorkerReport(f"{host}:{pid}:{uuid.uuid4().hex[:8]}", host, pid)
        self._lease: Lease | None = None
        self._ended = threading.Event()

    def run(self, stopping: Stopping) -> None:
        """Until it is to stop: a unit that is under way is finished. Raises what no time heals, as
        a pipeline file that is another than the driver's.
        """
        self._store.worker_beat(self._report)
        beats = threading.Thread(target=self._beat, name="penstock-lease", daemon=True)
        beats.start()
        pause = Backoff()
        try:
            while not stopping():
                try:
                    lease = self._store.lease_job(self._report.worker)
                    if lease is None:
                        self._ended.wait(_LOOK_SECONDS)
                        continue
                    try:
                        self._work(lease, stopping)
                    finally:
                        # One that goes on being renewed would be free for nobody.
                        self._say(None)
                    pause.start_over()
                except PenstockError as error:
                    if decide(error) not in (Action.RETRY, Action.AGAIN):
                        raise
                    _log.warning(error.message, extra={"event": "copy_failed"})
                    pause.wait(stopping)
        finally:
            self._ended.set()
            beats.join()
            with suppress(StoreUnavailable):
                self._store.worker_left(self._report.worker)
            self._made.close()

    def _work(self, lease: Lease, stopping: Stopping) -> None:
        """Copy a unit, and hand in what became of it."""
        job = UnitJob.from_json(dict(lease.content))
        self._say(lease, self._words(job))
        failpoint("worker.leased")
        try:
            result, written = self._copy(job)
        except PenstockError as error:
            self._give_back(lease, error)
            return
        text = result_text(result, written)
        failpoint("worker.copied")
        counts = self._hand_in(lease, text, stopping)
        failpoint("worker.handed_in")
        if counts:
            self._count(text)
        else:
            _log.warning(
                "a unit took so long that another worker has it, or the driver has taken it back; "
                "what was copied here does not count",
                extra={"event": "lease_lost"},
            )

    def _hand_in(self, lease: Lease, text: str, stopping: Stopping) -> bool:
        """Whether it counts. A store that is away is waited for: the unit would be copied again."""
        pause = Backoff()
        while True:
            try:
                return self._store.finish_job(self._report.worker, lease, text)
            except StoreUnavailable as error:
                if stopping():
                    raise
                _log.warning(error.message, extra={"event": "copy_failed"})
                pause.wait(stopping)

    def _give_back(self, lease: Lease, error: PenstockError) -> None:
        """Raises the error, unless it says no more than that the driver has given the copy up, or
        that another driver has come.
        """
        is_wanted = self._store.worker_beat(self._report, lease)
        self._store.give_job_back(self._report.worker, lease)
        if is_wanted and not isinstance(error, Fenced | _NotYet):
            raise error
        _log.info(error.message, extra={"event": "unit_given_back"})
        self._ended.wait(_LOOK_SECONDS)

    def _copy(self, job: UnitJob) -> tuple[bytes, Written]:
        """What ``ChunkTask.run`` gives: errors about a table or its snapshot are a result."""
        written = Written()
        try:
            self._expect(job)
            tables = {oid: self._table(oid, table) for oid, table in job.tables.items()}
            task = ChunkTask(self._tickets.ticket_opener(job.snapshot), tables, self._steps)
            return task.run(job.chunks, written), written
        except LASTING as error:
            return error_to_text(error).encode(), written
        except RowsRefused as error:
            if error.is_of_rights:
                raise  # the driver's role may have them
            return error_to_text(error).encode(), written

    def _expect(self, job: UnitJob) -> None:
        if self._terms != job.terms:
            # Also after a while: another server may have taken the place of the first.
            self._terms = terms_of(self._config, self._tickets.place())
        expect_terms(self._terms, job.terms)

    def _table(self, oid: int, job: JobTable) -> TableToCopy:
        table = self._definition(oid, job)
        if table != marked_by(table, self._steps):
            raise ConfigError(
                f"transform: rules, key or condition for table {table.qualified_name} are others "
                "here than those of the pipeline's driver",
                remedy="give `penstock copy` the pipeline file and the environment that `penstock "
                "run` has",
            )
        if self._planned.get(oid) != job.copy:
            # What the source said of the table may be older than this copy.
            self._source.plan([table])
            self._planned[oid] = job.copy
        writer = self._destination.ticket_writer(table, job.ticket)
        return TableToCopy(self._source.layout(table), job.where, writer)

    def _definition(self, oid: int, job: JobTable) -> TableDefinition:
        table = self._store.get_table_schema(oid)
        if table is None or definition_mark(table) != job.definition:
            self._store.load_table_schemas()
            table = self._store.get_table_schema(oid)
        if table is None or definition_mark(table) != job.definition:
            raise _NotYet(f"the table with oid {oid} has changed since its chunks were offered")
        return table

    # -- what others see of it -------------------------------------------------------------------

    def _words(self, job: UnitJob) -> str:
        names = sorted({f"{chunk.schema}.{chunk.name}" for chunk in job.chunks})
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        size = bytes_text(sum(chunk.bytes for chunk in job.chunks))
        return f"{names[0]}{more}, about {size}"

    def _say(self, lease: Lease | None, doing: str = "") -> None:
        with self._lock:
            self._lease, self._report = lease, replace(self._report, doing=doing)
        with suppress(StoreUnavailable):
            self._store.worker_beat(self._report, lease)

    def _count(self, text: str) -> None:
        with suppress(PenstockError):
            done: CopyResult = result_of(text)
            with self._lock:
                self._report = replace(
                    self._report,
                    chunks=self._report.chunks + len(done.receipts),
                    rows=self._report.rows + sum(receipt.rows for receipt in done.receipts),
                    bytes=self._report.bytes + sum(receipt.bytes for receipt in done.receipts),
                )

    def _beat(self) -> None:
        """Say that it lives, and that it is still at its unit. While the store does not answer the
        lease runs out; whoever then has the unit has it rightly.
        """
        while not self._ended.wait(_BEAT_SECONDS):
            with self._lock:
                report, lease = self._report, self._lease
            with suppress(PenstockError):
                self._store.worker_beat(report, lease)


def _taking_chunks(destination: Destination) -> CopiedByWorkers:
    if not isinstance(destination, CopiedByWorkers):
        raise ConfigError(
            f"destination {destination.name} takes no chunks from workers",
            remedy="`penstock run` copies by itself",
        )
    return destination
