"""The part of a store through which chunks reach workers: processes that copy for the driver.

The driver offers jobs. A worker leases one for a while, renews the lease while it copies, and
leaves its result with it; the driver collects that. Only the last lease of a job counts. All times
are by the store's clock.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.cadence import paced
from penstock.model.errors import Fenced

LEASE_SECONDS = paced(30.0)
"""How long a worker that is not heard of keeps its job, and counts as being there."""

JobContent = Mapping[str, Any]
"""JSON: the driver writes it, and workers read it."""


@dataclass(frozen=True)
class Lease:
    """A job that a worker has; ``attempt`` tells this lease from others of the job."""

    job: str
    attempt: int
    content: JobContent


@dataclass(frozen=True)
class LeftJob:
    """A job that the driver before had offered, and that a worker has done."""

    content: JobContent
    result: str


@dataclass(frozen=True)
class WorkerReport:
    """What a worker says of itself. ``worker`` is its name, which nobody else has; ``doing`` is for
    people; the counts are of what it has copied so far.
    """

    worker: str
    host: str
    pid: int
    doing: str = ""
    chunks: int = 0
    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class SeenWorker:
    """A worker that was heard of, since when it is there, and how many seconds ago it spoke."""

    report: WorkerReport
    since: datetime
    silent: float

    @property
    def is_alive(self) -> bool:
        return self.silent < LEASE_SECONDS


class JobStore(ABC):
    """One pipeline's jobs and workers. Nothing here is cached: it is about others."""

    pipeline: str
    _lock: threading.RLock

    # -- the driver ------------------------------------------------------------------------------

    def offer_jobs(
        self, driver: str, jobs: Mapping[str, JobContent], *, needs_driver: bool
    ) -> None:
        """Let workers have these jobs, by id, in this order. Raises Fenced where another driver has
        begun since. With ``needs_driver`` they are given out only while this one is heard of.
        """
        with self._lock:
            self._write_jobs(driver, jobs, needs_driver=needs_driver)

    def job_results(self, driver: str) -> dict[str, str]:
        """The results of this driver's jobs so far, by id. Also says that the driver is there."""
        with self._lock:
            return self._read_results(driver)

    def take_jobs_back(self, driver: str, jobs: Collection[str]) -> set[str]:
        """Withdraw jobs that no worker is at, and that none has done; which are no longer there.
        Asking again gives the same: who lost the connection does not know whether it was heard.
        """
        with self._lock:
            return self._withdraw(driver, jobs) if jobs else set()

    def forget_jobs(self, jobs: Collection[str]) -> None:
        """These are settled."""
        if jobs:
            with self._lock:
                self._remove_jobs(jobs)

    def take_left_jobs(self, driver: str) -> list[LeftJob]:
        """For a driver that begins: what was done for those before it. All of their jobs are gone
        then. Who is still at one finds its lease lost.
        """
        with self._lock:
            return self._take_left(driver)

    def load_workers(self) -> list[SeenWorker]:
        """Those who have not said good-bye, by name: also who was not heard of for long."""
        with self._lock:
            return sorted(self._read_workers(), key=lambda seen: seen.report.worker)

    # -- workers ---------------------------------------------------------------------------------

    def worker_beat(self, report: WorkerReport, lease: Lease | None = None) -> bool:
        """Say that the worker is there, and renew its lease; False where that is lost."""
        with self._lock:
            self._write_report(report)
            return lease is None or self._renew(report.worker, lease)

    def worker_left(self, worker: str) -> None:
        """It is gone, and its leases are free."""
        with self._lock:
            self._remove_worker(worker)

    def lease_job(self, worker: str) -> Lease | None:
        """The first job that nobody has; None where there is none."""
        with self._lock:
            return self._take_lease(worker)

    def finish_job(self, worker: str, lease: Lease, result: str) -> bool:
        """Leave the result of a job; False where the lease is lost, and the result with it."""
        with self._lock:
            return self._write_result(worker, lease, result)

    def give_job_back(self, worker: str, lease: Lease) -> None:
        """Somebody else may have it."""
        with self._lock:
            self._free(worker, lease)

    def driver_silence(self) -> float | None:
        """For how many seconds no driver was heard of; None where none ever offered anything."""
        with self._lock:
            return self._read_silence()

    # -- what a store does -----------------------------------------------------------------------

    @abstractmethod
    def _write_jobs(
        self, driver: str, jobs: Mapping[str, JobContent], *, needs_driver: bool
    ) -> None: ...

    @abstractmethod
    def _read_results(self, driver: str) -> dict[str, str]: ...

    @abstractmethod
    def _withdraw(self, driver: str, jobs: Collection[str]) -> set[str]: ...

    @abstractmethod
    def _remove_jobs(self, jobs: Collection[str]) -> None: ...

    @abstractmethod
    def _take_left(self, driver: str) -> list[LeftJob]: ...

    @abstractmethod
    def _read_workers(self) -> Sequence[SeenWorker]: ...

    @abstractmethod
    def _write_report(self, report: WorkerReport) -> None: ...

    @abstractmethod
    def _renew(self, worker: str, lease: Lease) -> bool: ...

    @abstractmethod
    def _remove_worker(self, worker: str) -> None: ...

    @abstractmethod
    def _take_lease(self, worker: str) -> Lease | None: ...

    @abstractmethod
    def _write_result(self, worker: str, lease: Lease, result: str) -> bool: ...

    @abstractmethod
    def _free(self, worker: str, lease: Lease) -> None: ...

    @abstractmethod
    def _read_silence(self) -> float | None: ...

    @abstractmethod
    def _fenced(self, worker: str, current: str | None) -> Fenced: ...
