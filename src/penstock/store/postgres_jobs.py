"""Jobs and workers in the Postgres store: one statement a question."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from penstock.store.copy_jobs import (
    LEASE_SECONDS,
    JobContent,
    JobStore,
    Lease,
    LeftJob,
    SeenWorker,
    WorkerReport,
)

_OFFER = """
INSERT INTO penstock.copy_job (pipeline, id, driver, needs_driver, content)
SELECT %s, offered.id, %s, %s, offered.content
  FROM unnest(%s::uuid[], %s::jsonb[]) WITH ORDINALITY AS offered (id, content, place)
 ORDER BY offered.place
"""
_DRIVER_IS_THERE = """
UPDATE penstock.copy_worker SET seen_at = now() WHERE pipeline = %s AND worker = %s
"""
_RESULTS = """
SELECT id::text, result FROM penstock.copy_job
 WHERE pipeline = %s AND driver = %s AND result IS NOT NULL
"""
_WITHDRAW = """
DELETE FROM penstock.copy_job
 WHERE pipeline = %s AND driver = %s AND id = ANY (%s::uuid[]) AND result IS NULL
   AND (leased_until IS NULL OR leased_until < now())
"""
_LEFT_OF = """
SELECT id::text FROM penstock.copy_job WHERE pipeline = %s AND id = ANY (%s::uuid[])
"""
_TAKE_LEFT = """
DELETE FROM penstock.copy_job WHERE pipeline = %s AND driver <> %s RETURNING content, result
"""
_WORKERS = """
SELECT worker, host, pid, doing, chunks, rows, bytes, since,
       extract(epoch FROM now() - seen_at)::float8
  FROM penstock.copy_process WHERE pipeline = %s
"""
_REPORT = """
INSERT INTO penstock.copy_process (pipeline, worker, host, pid, doing, chunks, rows, bytes)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (pipeline, worker) DO UPDATE
   SET doing = excluded.doing, chunks = excluded.chunks, rows = excluded.rows,
       bytes = excluded.bytes, seen_at = now()
"""
# Nobody misses who was silent for so long.
_FORGET_SILENT = """
DELETE FROM penstock.copy_process WHERE pipeline = %s AND seen_at < now() - interval '1 day'
"""
_MINE = "pipeline = %s AND id = %s::uuid AND worker = %s AND attempt = %s AND result IS NULL"
_RENEW = f"UPDATE penstock.copy_job SET leased_until = now() + %s WHERE {_MINE}"  # noqa: S608
_FINISH = f"UPDATE penstock.copy_job SET result = %s WHERE {_MINE}"  # noqa: S608
_FREE = f"UPDATE penstock.copy_job SET leased_until = NULL, worker = NULL WHERE {_MINE}"  # noqa: S608
_FREE_ALL = """
UPDATE penstock.copy_job SET leased_until = NULL, worker = NULL
 WHERE pipeline = %s AND worker = %s AND result IS NULL
"""
# SKIP LOCKED: two who ask at the same moment get two jobs.
_LEASE = """
UPDATE penstock.copy_job j
   SET worker = %(worker)s, attempt = j.attempt + 1, leased_until = now() + %(seconds)s
 WHERE j.pipeline = %(pipeline)s AND j.id = (
       SELECT free.id FROM penstock.copy_job free
        WHERE free.pipeline = %(pipeline)s AND free.result IS NULL
          AND (free.leased_until IS NULL OR free.leased_until < now())
          AND (NOT free.needs_driver OR EXISTS (
              SELECT FROM penstock.copy_worker d
               WHERE d.pipeline = free.pipeline AND d.worker = free.driver
                 AND d.seen_at > now() - %(seconds)s))
        ORDER BY free.place LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING j.id::text, j.attempt, j.content
"""
_SILENCE = """
SELECT extract(epoch FROM now() - seen_at)::float8 FROM penstock.copy_worker
 WHERE pipeline = %s AND seen_at IS NOT NULL
"""

_LEASED_FOR = timedelta(seconds=LEASE_SECONDS)

Connection = psycopg.Connection[tuple[Any, ...]]


class PostgresJobs(JobStore):
    """The part of PostgresStore that copy_jobs.py describes."""

    @abstractmethod
    def _transaction(self, action: str) -> AbstractContextManager[Connection]:
        """A connection inside a transaction. ``action`` completes "While …" in errors."""

    def _write_jobs(
        self, driver: str, jobs: Mapping[str, JobContent], *, needs_driver: bool
    ) -> None:
        with self._transaction(f"offering {len(jobs)} units to workers") as conn:
            row = conn.execute(
                "SELECT worker FROM penstock.copy_worker WHERE pipeline = %s FOR SHARE",
                [self.pipeline],
            ).fetchone()
            current = None if row is None else row[0]
            if current != driver:
                raise self._fenced(driver, current)
            contents = [Jsonb(content) for content in jobs.values()]
            conn.execute(_OFFER, [self.pipeline, driver, needs_driver, list(jobs), contents])

    def _read_results(self, driver: str) -> dict[str, str]:
        with self._transaction("asking what workers have done") as conn:
            conn.execute(_DRIVER_IS_THERE, [self.pipeline, driver])
            return dict(conn.execute(_RESULTS, [self.pipeline, driver]).fetchall())

    def _withdraw(self, driver: str, jobs: Collection[str]) -> set[str]:
        with self._transaction("taking units back from workers") as conn:
            conn.execute(_WITHDRAW, [self.pipeline, driver, list(jobs)])
            left = conn.execute(_LEFT_OF, [self.pipeline, list(jobs)]).fetchall()
        return set(jobs) - {job for (job,) in left}

    def _remove_jobs(self, jobs: Collection[str]) -> None:
        with self._transaction("forgetting what workers have done") as conn:
            conn.execute(
                "DELETE FROM penstock.copy_job WHERE pipeline = %s AND id = ANY (%s::uuid[])",
                [self.pipeline, list(jobs)],
            )

    def _take_left(self, driver: str) -> list[LeftJob]:
        with self._transaction("asking what workers did meanwhile") as conn:
            conn.execute(_FORGET_SILENT, [self.pipeline])
            rows = conn.execute(_TAKE_LEFT, [self.pipeline, driver]).fetchall()
        return [LeftJob(content, result) for content, result in rows if result is not None]

    def _read_workers(self) -> Sequence[SeenWorker]:
        with self._transaction("asking which workers there are") as conn:
            # `penstock status` may come before a newer Penstock has brought the store up to date.
            there = conn.execute("SELECT to_regclass('penstock.copy_process')").fetchone()
            if there == (None,):
                return []
            rows = conn.execute(_WORKERS, [self.pipeline]).fetchall()
        return [SeenWorker(WorkerReport(*row[:-2]), row[-2], row[-1]) for row in rows]

    def _write_report(self, report: WorkerReport) -> None:
        said = [report.worker, report.host, report.pid, report.doing]
        counts = [report.chunks, report.rows, report.bytes]
        with self._transaction("saying that a worker is there") as conn:
            conn.execute(_REPORT, [self.pipeline, *said, *counts])

    def _renew(self, worker: str, lease: Lease) -> bool:
        with self._transaction("renewing a lease") as conn:
            return bool(conn.execute(_RENEW, [_LEASED_FOR, *self._mine(worker, lease)]).rowcount)

    def _remove_worker(self, worker: str) -> None:
        with self._transaction("saying that a worker leaves") as conn:
            conn.execute(_FREE_ALL, [self.pipeline, worker])
            conn.execute(
                "DELETE FROM penstock.copy_process WHERE pipeline = %s AND worker = %s",
                [self.pipeline, worker],
            )

    def _take_lease(self, worker: str) -> Lease | None:
        values = {"pipeline": self.pipeline, "worker": worker, "seconds": _LEASED_FOR}
        with self._transaction("looking for something to copy") as conn:
            row = conn.execute(_LEASE, values).fetchone()
        return None if row is None else Lease(*row)

    def _write_result(self, worker: str, lease: Lease, result: str) -> bool:
        with self._transaction("handing in what was copied") as conn:
            return bool(conn.execute(_FINISH, [result, *self._mine(worker, lease)]).rowcount)

    def _free(self, worker: str, lease: Lease) -> None:
        with self._transaction("giving a unit back") as conn:
            conn.execute(_FREE, self._mine(worker, lease))

    def _read_silence(self) -> float | None:
        with self._transaction("asking whether a driver is there") as conn:
            row = conn.execute(_SILENCE, [self.pipeline]).fetchone()
        return None if row is None else float(row[0])

    def _mine(self, worker: str, lease: Lease) -> list[Any]:
        return [self.pipeline, lease.job, worker, lease.attempt]
