"""A worker at the end of a unit: what it hands in, also where the store does not answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from penstock.metrics.written import Written
from penstock.model.errors import PenstockError, RowsRefused, SourceUnavailable, StoreUnavailable
from penstock.pipeline.workers import copy_worker
from penstock.pipeline.workers.copy_worker import CopyWorker
from penstock.pipeline.workers.unit_job import UnitJob, result_of
from penstock.source.copy_plan import Chunk
from penstock.store import MemoryStore, WorkerReport, memory_jobs
from penstock.store.copy_jobs import Lease
from tests.fix_pipeline import wait_until
from tests.run_context import run_context

UNIT = UnitJob({}, {}, (Chunk(7, 0, 7, "public", "items", 1, 0, None, 10),), {})
COPIED = b'[[1, 10, ""]]'


class Away(MemoryStore):
    """A store that does not answer once to what ends a unit."""

    away = True

    def _asked(self) -> None:
        if self.away:
            self.away = False
            raise StoreUnavailable("as the test wants it", remedy="none")

    def finish_job(self, worker: str, lease: Lease, result: str) -> bool:
        self._asked()
        return super().finish_job(worker, lease, result)

    def give_job_back(self, worker: str, lease: Lease) -> None:
        self._asked()
        super().give_job_back(worker, lease)


class Worker(CopyWorker):
    """Its first unit fails with ``error``, if there is one."""

    error: PenstockError | None = None
    units = 0

    def _copy(self, job: UnitJob) -> tuple[bytes, Written]:
        self.units += 1
        if self.units == 1 and self.error is not None:
            raise self.error
        return COPIED, Written()


class Unread(CopyWorker):
    """The source does not give it the rows of any unit."""

    def _expect(self, job: UnitJob) -> None:
        raise RowsRefused("division by zero", sqlstate="22012", table=7)


W = TypeVar("W", bound=CopyWorker)


@contextmanager
def working(store: MemoryStore, kind: type[W]) -> Iterator[W]:
    """A worker in a thread, and one unit for it."""
    context = run_context("items")
    store.open()
    store.begin_claims("driver")
    store.offer_jobs("driver", {"unit": UNIT.to_json()}, needs_driver=False)
    worker = kind(context.config, context.file, store)
    stop = threading.Event()
    thread = threading.Thread(target=worker.run, args=[stop.is_set])
    thread.start()
    try:
        yield worker
    finally:
        stop.set()
        thread.join()


def test_what_is_not_given_back_is_free_once_its_lease_has_run_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Source and store are often one server: both are away at once, and the last unit of a copy
    must not stay with a worker that is not at it any more, and goes on to live.
    """
    monkeypatch.setattr(memory_jobs, "LEASE_SECONDS", 0.5)
    monkeypatch.setattr(copy_worker, "_BEAT_SECONDS", 0.05)
    store = Away("items")
    monkeypatch.setattr(Worker, "error", SourceUnavailable("as the test wants it", remedy="none"))
    with working(store, Worker) as worker:
        wait_until(lambda: store.job_results("driver"), "the unit is copied")
        assert worker.units == 2


def test_what_is_copied_is_handed_in_when_the_store_is_back() -> None:
    store = Away("items")
    with working(store, Worker) as worker:
        wait_until(lambda: store.job_results("driver"), "the unit is handed in")
        assert worker.units == 1


def test_who_is_to_stop_does_not_wait_for_the_store() -> None:
    class Gone(Away):
        def worker_beat(self, report: WorkerReport, lease: Lease | None = None) -> bool:
            if self.away:
                return super().worker_beat(report, lease)
            raise StoreUnavailable("as the test wants it", remedy="none")

        def _asked(self) -> None:
            self.away = False
            raise StoreUnavailable("as the test wants it", remedy="none")

    store = Gone("items")
    with working(store, Worker):
        wait_until(lambda: not store.away, "the unit is copied")
    assert store.job_results("driver") == {}


def test_rows_that_the_source_does_not_give_are_the_drivers_news() -> None:
    """It sets the table aside, and the worker goes on with others."""
    store = MemoryStore("items")
    with working(store, Unread):
        found = wait_until(lambda: store.job_results("driver"), "it is handed in")
    with pytest.raises(RowsRefused, match="division by zero") as refused:
        result_of(found["unit"])
    assert refused.value.table == 7
