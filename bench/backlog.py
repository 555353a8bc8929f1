"""w1, w2 and w4: how fast each system takes the same backlog from the server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.process_usage import Usage, forget_peak, pipeline_processes, total, usage
from bench.results import Measurement
from bench.server import BenchDatabase, BenchError, BenchPipeline
from bench.settings import Settings
from bench.warm_spark import WarmSpark
from bench.workloads import Load, Workload
from penstock.changelog.changelog import ChangeLog
from penstock.lsn import format_lsn

_POLL_SECONDS = 0.01
# How often a process that may end at any moment is looked at: bounds what its last look misses.
_WATCH_SECONDS = 0.005
PATIENCE_SECONDS = 3600.0
_STOP_SECONDS = 30.0

Say = Callable[[str], None]


class BacklogBench:
    """Measures one workload. All systems read the same WAL, each through a slot of its own."""

    def __init__(self, database: BenchDatabase, workload: Workload, spark: WarmSpark | None):
        self._database = database
        self._workload = workload
        self._spark = spark

    def run(self, settings: Settings, rounds: int, say: Say) -> Iterator[Measurement]:
        """Write the backlog, then yield a measurement for each round and system.

        Every round begins with another system, so that none always meets the same conditions.
        """
        name, database = self._workload.name, self._database
        self._workload.create(database.conn)
        # All slots are made before the load, so that all of them see it whole. The reference's
        # is never read: pg_recvlogical gets a copy of it each time.
        reference = database.pipeline(f"{name}_reference")
        pipelines = {
            (system, number): database.pipeline(f"{name}_{system}_{number}")
            for system in settings.systems
            if system != "pg_recvlogical"
            for number in range(rounds)
        }
        began = time.monotonic()
        load = self._workload.load(database.conn)
        say(f"{name}: {load.changes:,} changes written in {time.monotonic() - began:.0f} s")
        database.settle()
        for number in range(rounds):
            shift = number % len(settings.systems)
            for system in settings.systems[shift:] + settings.systems[:shift]:
                pipeline = pipelines.get((system, number))
                if pipeline is None:
                    measured = self._pg_recvlogical(reference, load)
                elif system == "capture":
                    measured = self._capture(pipeline, load)
                else:
                    measured = self._discard(pipeline, load)
                say(
                    f"{name} round {number + 1} of {rounds}: {system}"
                    f" {measured.rows_per_s:,.0f} rows/s"
                )
                yield measured

    def _pg_recvlogical(self, reference: BenchPipeline, load: Load) -> Measurement:
        database = self._database
        slot = "bench_pg_recvlogical"
        database.conn.execute(
            "SELECT pg_copy_logical_replication_slot(%s, %s)", [reference.slot, slot]
        )
        began = time.time()
        process = subprocess.Popen(
            [
                str(database.server.bin_dir / "pg_recvlogical"), "--dbname", database.url,
                "--slot", slot, "--start", "--no-loop", "--file", os.devnull,
                "--endpos", format_lsn(load.end), "-o", "proto_version=1",
                "-o", f'publication_names="{reference.subscription.publication}"',
                "-o", "messages=true",
            ],
            env=database.client_environment(), start_new_session=True,
        )  # fmt: skip
        with _killed(process):
            # It may be done before its walsender was ever seen: then there is nothing to wait for.
            pid = self._walsender_or_none(slot, process)
            client = server = Usage()
            while True:
                done, status, spent = os.wait4(process.pid, os.WNOHANG)
                if done:
                    break
                # Both are gone once it has ended, so what was seen last counts.
                client = client.at_least(usage(process.pid))
                if pid is not None:
                    server = server.at_least(usage(pid))
                time.sleep(_WATCH_SECONDS)
            ended = time.time()
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise BenchError(
                f"pg_recvlogical ended with code {process.returncode}.",
                remedy="What it printed above says why.",
            )
        database.drop_slot(slot)
        return Measurement(
            self._workload.name,
            "pg_recvlogical",
            load.changes,
            ended - began,
            spent.ru_utime + spent.ru_stime,
            server.cpu_seconds,
            client.peak_rss_mb,
        )

    def _capture(self, pipeline: BenchPipeline, load: Load) -> Measurement:
        database = self._database
        log = ChangeLog(pipeline.config.change_log.path)
        # Supervised: it ends when its standard input does, also if the bench is killed.
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "capture", str(pipeline.file), "--supervised"],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

        def alive() -> None:
            if process.poll() is not None:
                reason = (log.capture_report() or {}).get("error", "no reason given")
                raise BenchError(
                    f"Capture ended with code {process.returncode}: {reason}.",
                    remedy="If the reason is not the machine's, it is a bug of Penstock.",
                )

        with _killed(process):
            walsender = database.walsender(pipeline.slot, alive)
            before, server_before = usage(process.pid), usage(walsender.pid)
            deadline = time.monotonic() + PATIENCE_SECONDS
            while True:
                frontier = log.list().frontier
                if frontier is not None and frontier.commit_lsn >= load.last_commit:
                    break
                alive()
                if time.monotonic() > deadline:
                    raise BenchError(
                        f"Capture did not write everything within {PATIENCE_SECONDS:g} s.",
                        remedy="Try a smaller SCALE; if it recurs, it is a bug of Penstock.",
                    )
                time.sleep(_POLL_SECONDS)
            ended = time.time()
            after, server_after = usage(process.pid), usage(walsender.pid)
            _stop(process)
        _require_changes(log, load)
        self._remove(pipeline)
        return Measurement(
            self._workload.name,
            "capture",
            load.changes,
            ended - walsender.since,
            after.cpu_seconds - before.cpu_seconds,
            server_after.cpu_seconds - server_before.cpu_seconds,
            after.peak_rss_mb,
        )

    def _discard(self, pipeline: BenchPipeline, load: Load) -> Measurement:
        database, spark = self._database, self._spark
        if spark is None:
            raise BenchError("There is no Spark session.", remedy="Name discard in SYSTEMS.")
        forget_peaks(spark.pid)
        spark.start(pipeline.file)
        walsender = database.walsender(pipeline.slot, spark.pump)
        before = pipeline_usage(spark.pid)
        server_before = usage(walsender.pid)
        delivered = spark.delivery_of(load.last_commit, PATIENCE_SECONDS)
        after = pipeline_usage(spark.pid)
        server_after = usage(walsender.pid)
        spark.stop()
        self._remove(pipeline)
        spent = sum(part.cpu_seconds for part in after.values()) - sum(
            part.cpu_seconds for part in before.values()
        )
        return Measurement(
            self._workload.name,
            "discard",
            load.changes,
            delivered.at - walsender.since,
            spent,
            server_after.cpu_seconds - server_before.cpu_seconds,
            round(sum(part.peak_rss_mb for part in after.values()), 1),
            rss_mb={name: part.peak_rss_mb for name, part in after.items()},
        )

    def _walsender_or_none(self, slot: str, process: subprocess.Popen[bytes]) -> int | None:
        def alive() -> None:
            # WNOWAIT: its resource usage is still to be collected.
            if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                raise _EndedEarly

        try:
            return self._database.walsender(slot, alive).pid
        except _EndedEarly:
            return None

    def _remove(self, pipeline: BenchPipeline) -> None:
        """Free the disk: the next system writes as much again."""
        self._database.drop_slot(pipeline.slot)
        shutil.rmtree(pipeline.config.change_log.path)


def _require_changes(log: ChangeLog, load: Load) -> None:
    """A rate counts only if everything arrived: the load, and the message that ends it."""
    found = sum(name.rows for name in log.list().segments)
    if found - load.changes not in (0, 1):
        raise BenchError(
            f"Capture wrote {found:,} changes, but the workload has {load.changes:,}.",
            remedy="It is a bug of Penstock or of the benchmark: the figures mean nothing.",
        )


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        raise BenchError(
            f"Capture did not stop within {_STOP_SECONDS:g} s of being asked to.",
            remedy="Unless the machine is overloaded, it is a bug of Penstock.",
        ) from None


class _EndedEarly(Exception):
    """A reader was done before it was ever seen."""


def pipeline_usage(driver: int) -> dict[str, Usage]:
    """What each part of a running pipeline has used so far."""
    return {part: total(pids) for part, pids in pipeline_processes(driver).items()}


def forget_peaks(driver: int) -> None:
    """Let peak memory count from now on: the session has seen other workloads before."""
    for pids in pipeline_processes(driver).values():
        for pid in pids:
            forget_peak(pid)


@contextmanager
def _killed(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leave no process behind when something goes wrong."""
    try:
        yield
    finally:
        if process.returncode is None:
            process.kill()
            process.wait()
