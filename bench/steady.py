"""w3: how long a small transaction takes to its destination, and what a quiet pipeline costs."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from psycopg import sql

from bench.backlog import PATIENCE_SECONDS, forget_peaks, pipeline_usage
from bench.latency import Commits, delivery_times
from bench.process_usage import Usage, usage
from bench.results import Measurement, percentile
from bench.server import BenchDatabase, BenchError, BenchPipeline
from bench.warm_spark import WarmSpark
from bench.workloads import COLUMNS, ROW
from penstock.changelog.changelog import ChangeLog
from penstock.lsn import parse_lsn

RATE = 1000
IDLE_SECONDS = 15
_IDLE_RATE = 100
_LEAD_IN_SECONDS = 5.0
# Enough that the fsync of one commit does not hold the others back.
_CLIENTS = 8


def steady_seconds(scale: float) -> int:
    """60 s at full scale, and never less than 10: the first 5 do not count."""
    return max(10, round(60 * scale))


_INSERT = sql.SQL("INSERT INTO item SELECT {} FROM nextval('item_ids') i").format(ROW)


class SteadyBench:
    """Runs a pipeline into ``discard`` under a steady load, then without one."""

    def __init__(self, database: BenchDatabase, spark: WarmSpark) -> None:
        self._database = database
        self._spark = spark

    def run(
        self, seconds: int, scale: float, say: Callable[[str], None]
    ) -> tuple[list[Measurement], dict[str, Any]]:
        """The measurements of ``discard`` and of capture within it, and the entry of idleness."""
        database, spark = self._database, self._spark
        conn = database.conn
        conn.execute(sql.SQL("CREATE TABLE item ({})").format(COLUMNS))
        conn.execute("CREATE SEQUENCE item_ids CACHE 1000")
        conn.execute("CREATE SCHEMA elsewhere")
        conn.execute("CREATE TABLE elsewhere.noise (at timestamptz)")
        # Segments are read again for their commit times.
        pipeline = database.pipeline("w3_discard", grace="1d")
        database.settle()
        forget_peaks(spark.pid)
        spark.start(pipeline.file)
        walsender = database.walsender(pipeline.slot, spark.pump)
        _, first = self._mark()
        before, server_before = pipeline_usage(spark.pid), usage(walsender.pid)
        self._write(_INSERT, RATE, _CLIENTS, seconds)
        after, server_after = pipeline_usage(spark.pid), usage(walsender.pid)
        last, _ = self._mark()
        server_cpu_s = server_after.cpu_seconds - server_before.cpu_seconds
        measured = self._measurements(pipeline, first, last, before, after, server_cpu_s)
        for one in measured:
            say(f"w3: {one.system} p50 {one.p50_ms:.0f} ms, p99 {one.p99_ms:.0f} ms")
        idle = self._idle(pipeline, scale)
        say(
            f"idle: capture takes {idle['capture_share_of_a_core']:.1%} of a core; the slot moved "
            f"by {idle['slot_advanced_bytes']:,} bytes"
        )
        spark.stop()
        return measured, idle

    def _mark(self) -> tuple[int, int]:
        """Write one row and wait for its delivery.

        Returns a position that all earlier commits lie before, and that of its own commit.
        """
        conn = self._database.conn
        with conn.transaction():
            conn.execute(_INSERT)
            row = conn.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        assert row is not None  # noqa: S101 (a SELECT without FROM has one row)
        begin = parse_lsn(row[0])
        return begin, self._spark.delivery_of(begin, PATIENCE_SECONDS).frontier.commit_lsn

    def _measurements(
        self,
        pipeline: BenchPipeline,
        first: int,
        last: int,
        before: dict[str, Usage],
        after: dict[str, Usage],
        server_cpu_s: float,
    ) -> list[Measurement]:
        commits = Commits.of_log(ChangeLog(pipeline.config.change_log.path)).between(first, last)
        changes, seconds = len(commits.lsn), float(commits.at[-1] - commits.at[0])
        settled = commits.without_lead_in(_LEAD_IN_SECONDS)
        delivered_at = delivery_times(settled.lsn, self._spark.delivered)

        def spent(parts: list[str]) -> float:
            return sum(after[part].cpu_seconds - before[part].cpu_seconds for part in parts)

        return [
            Measurement(
                "w3",
                "capture",
                changes,
                seconds,
                spent(["capture"]),
                None,
                after["capture"].peak_rss_mb,
                p50_ms=percentile(settled.logged_at - settled.at, 50) * 1000,
                p99_ms=percentile(settled.logged_at - settled.at, 99) * 1000,
            ),
            Measurement(
                "w3",
                "discard",
                changes,
                seconds,
                spent(list(after)),
                server_cpu_s,
                round(sum(part.peak_rss_mb for part in after.values()), 1),
                rss_mb={name: part.peak_rss_mb for name, part in after.items()},
                p50_ms=percentile(delivered_at - settled.at, 50) * 1000,
                p99_ms=percentile(delivered_at - settled.at, 99) * 1000,
            ),
        ]

    def _idle(self, pipeline: BenchPipeline, scale: float) -> dict[str, Any]:
        """What capture costs, and how far the slot moves, while only another table is written."""
        slot, driver = pipeline.slot, self._spark.pid
        flushed = parse_lsn(self._database.confirmed_flush(slot))
        before, began = pipeline_usage(driver), time.monotonic()
        noise = sql.SQL("INSERT INTO elsewhere.noise VALUES (now())")
        self._write(noise, _IDLE_RATE, 1, IDLE_SECONDS)
        after, seconds = pipeline_usage(driver), time.monotonic() - began
        shares = {
            part: (after[part].cpu_seconds - before[part].cpu_seconds) / seconds for part in after
        }
        return {
            "workload": "w3",
            "system": "idle",
            "rows_per_s": None,
            "ratio_to_pg_recvlogical": None,
            "cpu_s_per_million": None,
            "peak_rss_mb": after["capture"].peak_rss_mb,
            "p50_ms": None,
            "p99_ms": None,
            "capture_share_of_a_core": round(shares["capture"], 4),
            "pipeline_share_of_a_core": round(sum(shares.values()), 4),
            "slot_advanced_bytes": parse_lsn(self._database.confirmed_flush(slot)) - flushed,
            "seconds": round(seconds, 1),
            "scale": scale,
        }

    def _write(self, statement: sql.Composable, rate: int, clients: int, seconds: int) -> None:
        """One transaction a statement at a steady rate, by pgbench; commits wait for the disk."""
        database = self._database
        script = Path(database.folder) / "steady.sql"
        script.write_text(statement.as_string(database.conn) + ";\n")
        report = script.with_suffix(".out")
        with report.open("wb") as output, _stopped(
            subprocess.Popen(
                [
                    str(database.server.bin_dir / "pgbench"), "--no-vacuum", "--protocol=prepared",
                    f"--client={clients}", "--jobs=1", f"--rate={rate}", f"--time={seconds}",
                    f"--file={script}", database.url,
                ],
                env=database.client_environment(), stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )
        ) as loader:  # fmt: skip
            while loader.poll() is None:
                # Deliveries come in all the time, and their pipe holds only so many.
                self._spark.pump(0.1)
        if loader.returncode:
            raise BenchError(
                f"pgbench ended with code {loader.returncode}: {report.read_text()[-500:]}",
                remedy="The reason is in its words above.",
            )


@contextmanager
def _stopped(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
