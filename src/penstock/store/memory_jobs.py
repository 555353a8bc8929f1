"""Jobs and workers of a store in memory: workers are threads of the same process."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from penstock.store.copy_jobs import (
    LEASE_SECONDS,
    JobContent,
    JobStore,
    Lease,
    LeftJob,
    SeenWorker,
    WorkerReport,
)


@dataclass
class JobRecord:
    """One job; ``until`` is when its lease ends."""

    driver: str
    needs_driver: bool
    content: JobContent
    attempt: int = 0
    worker: str | None = None
    until: float = 0.0
    result: str | None = None

    @property
    def is_free(self) -> bool:
        return self.result is None and self.until < time.monotonic()


@dataclass
class JobRecords:
    """What is kept of one pipeline. ``driver`` is the one that was heard of last, and when."""

    jobs: dict[str, JobRecord] = field(default_factory=dict)
    workers: dict[str, tuple[WorkerReport, datetime, float]] = field(default_factory=dict)
    driver: tuple[str, float] | None = None


_TURN = threading.Lock()


class MemoryJobs(JobStore):
    """The part of MemoryStore that copy_jobs.py describes."""

    @property
    @abstractmethod
    def _kept_jobs(self) -> JobRecords: ...

    @property
    @abstractmethod
    def _current_driver(self) -> str | None: ...

    def _write_jobs(
        self, driver: str, jobs: Mapping[str, JobContent], *, needs_driver: bool
    ) -> None:
        with _TURN:
            if self._current_driver != driver:
                raise self._fenced(driver, self._current_driver)
            for job, content in jobs.items():
                self._kept_jobs.jobs[job] = JobRecord(driver, needs_driver, content)

    def _read_results(self, driver: str) -> dict[str, str]:
        with _TURN:
            self._kept_jobs.driver = driver, time.monotonic()
            mine = ((n, j.result) for n, j in self._kept_jobs.jobs.items() if j.driver == driver)
            return {name: result for name, result in mine if result is not None}

    def _withdraw(self, driver: str, jobs: Collection[str]) -> set[str]:
        with _TURN:
            kept = self._kept_jobs.jobs
            free = {n for n in jobs if n in kept and kept[n].driver == driver and kept[n].is_free}
            for name in free:
                del kept[name]
            return set(jobs) - kept.keys()

    def _remove_jobs(self, jobs: Collection[str]) -> None:
        with _TURN:
            for name in jobs:
                self._kept_jobs.jobs.pop(name, None)

    def _take_left(self, driver: str) -> list[LeftJob]:
        with _TURN:
            kept = self._kept_jobs.jobs
            left = [kept.pop(name) for name, job in list(kept.items()) if job.driver != driver]
            return [LeftJob(job.content, job.result) for job in left if job.result is not None]

    def _read_workers(self) -> Sequence[SeenWorker]:
        with _TURN:
            now, found = time.monotonic(), self._kept_jobs.workers.values()
            return [SeenWorker(report, since, now - heard) for report, since, heard in found]

    def _write_report(self, report: WorkerReport) -> None:
        with _TURN:
            workers = self._kept_jobs.workers
            known = workers.get(report.worker)
            since = datetime.now(UTC) if known is None else known[1]
            workers[report.worker] = report, since, time.monotonic()

    def _renew(self, worker: str, lease: Lease) -> bool:
        with _TURN:
            job = self._leased(worker, lease)
            if job is not None:
                job.until = time.monotonic() + LEASE_SECONDS
            return job is not None

    def _remove_worker(self, worker: str) -> None:
        with _TURN:
            self._kept_jobs.workers.pop(worker, None)
            for job in self._kept_jobs.jobs.values():
                if job.worker == worker:
                    job.until = 0.0

    def _take_lease(self, worker: str) -> Lease | None:
        with _TURN:
            now = time.monotonic()
            driver, heard = self._kept_jobs.driver or ("", 0.0)
            here = driver if now - heard < LEASE_SECONDS else None
            for name, job in self._kept_jobs.jobs.items():
                if job.is_free and (not job.needs_driver or job.driver == here):
                    job.worker, job.until = worker, now + LEASE_SECONDS
                    job.attempt += 1
                    return Lease(name, job.attempt, job.content)
            return None

    def _write_result(self, worker: str, lease: Lease, result: str) -> bool:
        with _TURN:
            job = self._leased(worker, lease)
            if job is not None:
                job.result = result
            return job is not None

    def _free(self, worker: str, lease: Lease) -> None:
        with _TURN:
            if (job := self._leased(worker, lease)) is not None:
                job.until = 0.0

    def _read_silence(self) -> float | None:
        heard = self._kept_jobs.driver
        return None if heard is None else time.monotonic() - heard[1]

    def _leased(self, worker: str, lease: Lease) -> JobRecord | None:
        """The job, where the lease is its last one and it is not done."""
        job = self._kept_jobs.jobs.get(lease.job)
        mine = job is not None and (job.worker, job.attempt) == (worker, lease.attempt)
        return job if mine and job is not None and job.result is None else None
