"""Systems that read a backlog and deliver it nowhere: pg_recvlogical, and capture alone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.meter import PeakPss
from bench.process_usage import Usage, usage
from bench.results import Measurement
from bench.server import BenchDatabase, BenchError, BenchPipeline
from bench.workloads import Load
from penstock.changelog.changelog import ChangeLog
from penstock.model.lsn import format_lsn

PATIENCE_SECONDS = 3600.0
_POLL_SECONDS = 0.01
# How often a process that may end at any moment is looked at: bounds what its last look misses.
_WATCH_SECONDS = 0.005
_STOP_SECONDS = 30.0


def measure_pg_recvlogical(
    database: BenchDatabase, workload: str, reference: BenchPipeline, load: Load
) -> Measurement:
    slot = "bench_pg_recvlogical"
    database.copy_slot(reference.slot, slot)
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
        pid = _walsender_or_none(database, slot, process)
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
        workload,
        "pg_recvlogical",
        load.changes,
        ended - began,
        spent.ru_utime + spent.ru_stime,
        server.cpu_seconds,
        client.peak_rss_mb,
    )


def measure_capture(
    database: BenchDatabase, workload: str, pipeline: BenchPipeline, load: Load
) -> Measurement:
    """Let capture alone write a pipeline's log, which stays. What that took."""
    log = ChangeLog.of(pipeline.config.change_log)
    # Supervised: it ends when its standard input does, also if the bench is killed.
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "capture", str(pipeline.file), "--supervised"],
        stdin=subprocess.PIPE,
        # It tells a driver there of its segments.
        stdout=subprocess.DEVNULL,
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
        memory = PeakPss(lambda: {"capture": [process.pid]})
        memory.start()
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
        memory.sample()
        memory.stop()
        _stop(process)
    _require_changes(log, load)
    return Measurement(
        workload,
        "capture",
        load.changes,
        ended - walsender.since,
        after.cpu_seconds - before.cpu_seconds,
        server_after.cpu_seconds - server_before.cpu_seconds,
        after.peak_rss_mb,
        peak_pss_mb=memory.peak_mb,
    )


def _walsender_or_none(
    database: BenchDatabase, slot: str, process: subprocess.Popen[bytes]
) -> int | None:
    def alive() -> None:
        # WNOWAIT: its resource usage is still to be collected.
        if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            raise _EndedEarly

    try:
        return database.walsender(slot, alive).pid
    except _EndedEarly:
        return None


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


@contextmanager
def _killed(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leave no process behind when something goes wrong."""
    try:
        yield
    finally:
        if process.returncode is None:
            process.kill()
            process.wait()
