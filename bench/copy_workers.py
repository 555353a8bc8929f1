"""Copies by processes of `penstock copy`, for a pipeline whose own tasks copy nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.meter import Meter
from bench.process_usage import copy_processes, process_tree
from bench.results import Measurement
from bench.server import BenchDatabase, BenchError
from bench.settings import BY_WORKERS
from bench.target import Target
from bench.warm_spark import WarmSpark
from penstock.config.models import PipelineConfig
from penstock.source.postgres.subscription.subscription import ensure_subscription
from penstock.store import pipeline_store

_PATIENCE_SECONDS = 1800.0
_LOOK_SECONDS = 0.1
_WORKERS = "SELECT count(*) FROM penstock.copy_process WHERE pipeline = %s"
_STARTED = (
    "SELECT extract(epoch FROM started_at)::float8 FROM penstock.table_copy WHERE pipeline = %s"
)
_READY = (
    "SELECT extract(epoch FROM since)::float8 FROM penstock.table_state"
    " WHERE pipeline = %s AND state ->> 'phase' = 'ready'"
)


def measure_copy_workers(
    system: str,
    database: BenchDatabase,
    spark: WarmSpark,
    target: Target,
    workload: str,
    rows: int,
) -> Measurement:
    """Until the table is ready. Workers are there before the copy is planned."""
    name = f"{workload}_{target.name}"
    file, config = database.pipeline_file(
        name, {"type": "postgres", "url": target.url}, copy={"workers": "required"}
    )
    folder = Path(config.change_log.path)
    with pipeline_store(config) as store:
        # Workers wait for a run to make it.
        store.open()
    with _workers(file, BY_WORKERS[system]) as workers:
        _wait_workers(database, config, BY_WORKERS[system])

        def processes() -> dict[str, list[int]]:
            parts = copy_processes(spark.pid, folder)
            parts["workers"] += process_tree(workers.pid)
            return parts

        with Meter(processes, database.cpu_seconds, target) as meter:
            spark.start(file)
            seconds = _copied(database, spark, workers, config)
            spent = meter.read()
    spark.stop()
    database.drop_slot(ensure_subscription(database.conn, config).slot)
    shutil.rmtree(folder, ignore_errors=True)
    return Measurement(
        workload,
        system,
        rows,
        seconds,
        spent.cpu_s,
        spent.server_cpu_s,
        spent.peak_rss_mb,
        rss_mb=spent.rss_mb,
        peak_pss_mb=spent.peak_pss_mb,
        pss_mb=spent.pss_mb,
        destination_cpu_s=spent.destination_cpu_s,
    )


@contextmanager
def _workers(file: Path, count: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "copy", str(file), "--workers", str(count)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(_PATIENCE_SECONDS)


def _wait_workers(database: BenchDatabase, config: PipelineConfig, count: int) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while database.conn.execute(_WORKERS, [config.name]).fetchone() != (count,):
        if time.monotonic() > deadline:
            raise BenchError("The workers of `penstock copy` did not come.", remedy="Report it.")
        time.sleep(_LOOK_SECONDS)


def _copied(
    database: BenchDatabase,
    spark: WarmSpark,
    workers: subprocess.Popen[bytes],
    config: PipelineConfig,
) -> float:
    """Wait until the table is ready; the seconds since its copy was planned, by the source's clock.

    The store forgets a copy that is done.
    """
    began: float | None = None
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline and workers.poll() is None:
        spark.pump(_LOOK_SECONDS)
        started = database.conn.execute(_STARTED, [config.name]).fetchone()
        ready = database.conn.execute(_READY, [config.name]).fetchone()
        if started is not None:
            began = float(started[0])
        if ready is not None and began is not None:
            return float(ready[0]) - began
    raise BenchError(
        "The workers of `penstock copy` did not copy the table, or ended before.",
        remedy="Look at what was printed above.",
    )
