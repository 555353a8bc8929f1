"""start: from the command `penstock run` to its first row at the destination."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from bench.process_usage import pipeline_processes, pss_by_part
from bench.server import BenchDatabase, BenchError, BenchPipeline
from bench.target import Target, Targets
from bench.workloads import COLUMNS, ROW

_PATIENCE_SECONDS = 120.0
_LOOK_SECONDS = 0.01
_SETTLE_SECONDS = 5.0
_STOP_SECONDS = 60.0
_INSERT = sql.SQL("INSERT INTO item SELECT {} FROM (SELECT 1::bigint AS i)").format(ROW)


def measure_start(
    database: BenchDatabase, targets: Targets, rounds: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """One row waits in the slot; a command of its own each time. The first one is not counted:
    after it, files are in memory and code is compiled.
    """
    database.conn.execute(sql.SQL("CREATE TABLE item ({})").format(COLUMNS))
    seconds, pss = [], []
    for number in range(rounds + 1):
        database.conn.execute("TRUNCATE item")
        target = targets.make("start", number)
        pipeline = database.pipeline(f"start_{number}", {"type": "postgres", "url": target.url})
        database.conn.execute(_INSERT)
        took, parts = _start(database, pipeline, target)
        database.drop_slot(pipeline.slot)
        targets.measured("start", number)
        if number:
            seconds.append(took)
            pss.append(parts)
    say(f"start: first row after {', '.join(f'{each:.1f}' for each in seconds)} s; then {pss[-1]}")
    least = min(pss, key=lambda parts: sum(parts.values()))
    return {
        "workload": "start",
        "phase": None,
        "system": "postgres",
        "rows_per_s": None,
        "cpu_s_per_million": None,
        "peak_pss_mb": round(sum(least.values()), 1),
        "pss_mb": least,
        "p50_ms": round(statistics.median(seconds) * 1000, 1),
        "p99_ms": round(max(seconds) * 1000, 1),
        "seconds": round(statistics.median(seconds), 3),
        "scale": 1,
    }


def _start(
    database: BenchDatabase, pipeline: BenchPipeline, target: Target
) -> tuple[float, dict[str, float]]:
    """Seconds until the row was there, and what the idle run has of memory a little later."""
    said = Path(database.folder) / "start.out"
    began = time.monotonic()
    with said.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "run", str(pipeline.file)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        while not _has_row(target):
            if process.poll() is not None or time.monotonic() - began > _PATIENCE_SECONDS:
                raise BenchError(
                    f"`penstock run` delivered nothing: {said.read_text()[-500:]}",
                    remedy="The reason is in its words above.",
                )
            time.sleep(_LOOK_SECONDS)
        took = time.monotonic() - began
        time.sleep(_SETTLE_SECONDS)
        parts = pss_by_part(pipeline_processes(process.pid))
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return took, {part: round(share, 1) for part, share in parts.items()}


def _has_row(target: Target) -> bool:
    try:
        return target.conn.execute("SELECT FROM item").fetchone() is not None
    except psycopg.errors.UndefinedTable:
        return False
