"""w3: how long a small transaction takes to its destination, and what a quiet pipeline costs."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from bench.follower import Follower, NativeSubscription, PipelineFollower
from bench.latency import Commits, delivery_times, stages
from bench.meter import Meter, Spent
from bench.object_logs import change_log_of
from bench.places import Places
from bench.process_usage import Usage, pss_by_part, total
from bench.readers import PATIENCE_SECONDS
from bench.results import Measurement, percentile
from bench.server import BenchDatabase, BenchError, BenchPipeline
from bench.settings import INTO_LAKES, INTO_TABLES, PIPELINES
from bench.target import Target, Targets, contents, require_equal
from bench.workloads import COLUMNS, ROW
from penstock.changelog.changelog import ChangeLog
from penstock.model.lsn import parse_lsn

RATE = 1000
IDLE_SECONDS = 15
_IDLE_RATE = 100
_LEAD_IN_SECONDS = 5.0
# Enough that the fsync of one commit does not hold the others back.
_CLIENTS = 8
_NATIVE_SLOT = "bench_native_subscription"


def steady_seconds(scale: float) -> int:
    """60 s at full scale, and never less than 10: the first 5 do not count."""
    return max(10, round(60 * scale))


_INSERT = sql.SQL("INSERT INTO item SELECT {} FROM nextval('item_ids') i").format(ROW)


@dataclass(frozen=True)
class _Prepared:
    """A system that is ready to start, and where it delivers to."""

    system: str
    pipeline: BenchPipeline
    follower: Follower
    target: Target | None


class SteadyBench:
    """Runs one system after the other under the same steady load; ``discard`` then without one."""

    def __init__(
        self,
        database: BenchDatabase,
        targets: Targets | None,
        places: Places,
    ) -> None:
        self._database = database
        self._targets = targets
        self._places = places
        self._say: Callable[[str], None] = print

    def run(
        self, systems: tuple[str, ...], seconds: int, scale: float, say: Callable[[str], None]
    ) -> tuple[list[Measurement], list[dict[str, Any]]]:
        """The measurements of ``systems`` and of capture within ``discard``; entries of idleness.

        ``systems`` are some of those that deliver: pg_recvlogical does not.
        """
        self._say, conn = say, self._database.conn
        _create(conn)
        conn.execute("CREATE SEQUENCE item_ids CACHE 1000")
        conn.execute("CREATE SCHEMA elsewhere")
        conn.execute("CREATE TABLE elsewhere.noise (at timestamptz)")
        measurements: list[Measurement] = []
        idle: list[dict[str, Any]] = []
        for system in systems:
            # What one system was given must not be missing from the next one's destination.
            conn.execute("TRUNCATE item")
            with self._prepared(system) as prepared:
                measured = self._under_load(prepared, seconds)
                for one in measured:
                    say(f"w3: {one.system} p50 {one.p50_ms:.0f} ms, p99 {one.p99_ms:.0f} ms")
                if system == "discard":
                    idle.append(self._idle(prepared, scale))
                    say(
                        f"idle: capture takes {idle[-1]['capture_share_of_a_core']:.1%} of a core;"
                        f" the slot moved by {idle[-1]['slot_advanced_bytes']:,} bytes; the whole"
                        f" run has {idle[-1]['peak_pss_mb']:,.0f} MB: {idle[-1]['pss_mb']}"
                    )
                measurements += measured
        return measurements, idle

    @contextmanager
    def _prepared(self, system: str) -> Iterator[_Prepared]:
        """A system ready to start; afterwards it is stopped, and what it delivered compared."""
        database, targets = self._database, self._targets
        target = targets.make(system, 0) if targets and system in INTO_TABLES else None
        # Segments are read again for their commit times.
        pipeline = database.pipeline(
            f"w3_{system}",
            self._destination(system, target),
            grace="1d",
            **change_log_of(system, self._places.objects),
        )
        follower: Follower
        if system in PIPELINES and self._places.spark is not None:
            follower = PipelineFollower(self._places.spark, pipeline)
        elif target is not None:
            _create(target.conn)
            # A copy, so that the pipeline's own slot still has the commits to look at.
            database.copy_slot(pipeline.slot, _NATIVE_SLOT)
            publication = pipeline.subscription.publication
            follower = NativeSubscription(target, database.url, publication, _NATIVE_SLOT)
        else:
            raise BenchError(f"Nothing was started that {system} needs.", remedy="Report it.")
        database.settle()
        if target is not None:
            target.settle()
        yield _Prepared(system, pipeline, follower, target)
        follower.stop()
        for slot in {pipeline.slot, follower.slot}:
            database.drop_slot(slot)
        if target is not None and targets is not None:
            require_equal(system, contents(database.conn), contents(target.conn))
            targets.measured(system, 0)
        if system in INTO_LAKES and self._places.lakes is not None:
            self._places.lakes.require_all(system, pipeline.config, database.conn)
        if system == "clickhouse" and self._places.clickhouse is not None:
            self._places.clickhouse.require_all(system, pipeline.config, database.conn)

    def _destination(self, system: str, target: Target | None) -> Mapping[str, Any] | None:
        if system in INTO_LAKES and self._places.lakes is not None:
            return self._places.lakes.destination(system, f"w3_{system}")
        if system == "clickhouse" and self._places.clickhouse is not None:
            return self._places.clickhouse.destination(f"w3_{system}")
        return {"type": system, "url": target.url} if target and system in PIPELINES else None

    def _under_load(self, prepared: _Prepared, seconds: int) -> list[Measurement]:
        database, follower, target = self._database, prepared.follower, prepared.target
        follower.start()
        walsender = database.walsender(follower.slot, follower.pump)
        _, first = self._mark(follower)
        with Meter(follower.processes, walsender.cpu_seconds, target) as meter:
            self._write(_INSERT, RATE, _CLIENTS, seconds, follower)
            spent = meter.read()
        last, _ = self._mark(follower)
        return self._measurements(prepared, first, last, spent)

    def _mark(self, follower: Follower) -> tuple[int, int]:
        """Write one row and wait for its delivery.

        Returns a position that all earlier commits lie before, and one that its own does not
        exceed.
        """
        conn = self._database.conn
        with conn.transaction():
            conn.execute(_INSERT)
            row = conn.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        assert row is not None  # noqa: S101 (a SELECT without FROM has one row)
        begin = parse_lsn(row[0])
        return begin, follower.delivery_of(begin, PATIENCE_SECONDS).frontier.commit_lsn

    def _measurements(
        self, prepared: _Prepared, first: int, last: int, spent: Spent
    ) -> list[Measurement]:
        commits = self._commits(prepared).between(first, last)
        changes, seconds = len(commits.lsn), float(commits.at[-1] - commits.at[0])
        settled = commits.without_lead_in(_LEAD_IN_SECONDS)
        latency = delivery_times(settled.lsn, prepared.follower.delivered) - settled.at
        self._show_stages(prepared, settled)
        measured = [
            Measurement(
                "w3",
                prepared.system,
                changes,
                seconds,
                spent.cpu_s,
                spent.server_cpu_s,
                spent.peak_rss_mb,
                rss_mb=spent.rss_mb,
                p50_ms=percentile(latency, 50) * 1000,
                p99_ms=percentile(latency, 99) * 1000,
                peak_pss_mb=spent.peak_pss_mb,
                pss_mb=spent.pss_mb,
                destination_cpu_s=spent.destination_cpu_s,
            )
        ]
        if prepared.system == "discard":
            capture, logged = spent.parts["capture"], settled.logged_at - settled.at
            measured.insert(
                0,
                Measurement(
                    "w3",
                    "capture",
                    changes,
                    seconds,
                    capture.cpu_seconds,
                    None,
                    capture.peak_rss_mb,
                    p50_ms=percentile(logged, 50) * 1000,
                    p99_ms=percentile(logged, 99) * 1000,
                ),
            )
        return measured

    def _show_stages(self, prepared: _Prepared, commits: Commits) -> None:
        if prepared.system in PIPELINES:
            parts = stages(commits, prepared.follower.delivered)
            shown = ", ".join(f"{name} {each * 1000:.0f}" for name, each in parts.items())
            self._say(f"w3: {prepared.system}, ms of a change on average: {shown}")

    def _commits(self, prepared: _Prepared) -> Commits:
        pipeline = prepared.pipeline
        if prepared.system in PIPELINES:
            return Commits.of_log(ChangeLog.of(pipeline.config.change_log))
        return Commits.of_slot(
            self._database.conn, pipeline.slot, pipeline.subscription.publication
        )

    def _idle(self, prepared: _Prepared, scale: float) -> dict[str, Any]:
        """What capture costs, and how far the slot moves, while only another table is written."""
        slot, follower = prepared.follower.slot, prepared.follower
        flushed = parse_lsn(self._database.confirmed_flush(slot))
        before, began = _usage_by_part(follower), time.monotonic()
        noise = sql.SQL("INSERT INTO elsewhere.noise VALUES (now())")
        self._write(noise, _IDLE_RATE, 1, IDLE_SECONDS, follower)
        after, seconds = _usage_by_part(follower), time.monotonic() - began
        idle = pss_by_part(follower.processes())
        shares = {
            part: (after[part].cpu_seconds - before[part].cpu_seconds) / seconds for part in after
        }
        return {
            "workload": "w3",
            "phase": None,
            "system": "idle",
            "rows_per_s": None,
            "ratio_to_pg_recvlogical": None,
            "ratio_to_native": None,
            "cpu_s_per_million": None,
            "peak_rss_mb": after["capture"].peak_rss_mb,
            "peak_pss_mb": round(sum(idle.values()), 1),
            "pss_mb": {part: round(share, 1) for part, share in idle.items()},
            "p50_ms": None,
            "p99_ms": None,
            "capture_share_of_a_core": round(shares["capture"], 4),
            "pipeline_share_of_a_core": round(sum(shares.values()), 4),
            "slot_advanced_bytes": parse_lsn(self._database.confirmed_flush(slot)) - flushed,
            "seconds": round(seconds, 1),
            "scale": scale,
        }

    def _write(
        self,
        statement: sql.Composable,
        rate: int,
        clients: int,
        seconds: int,
        follower: Follower,
    ) -> None:
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
                follower.pump(0.1)
        if loader.returncode:
            raise BenchError(
                f"pgbench ended with code {loader.returncode}: {report.read_text()[-500:]}",
                remedy="The reason is in its words above.",
            )


def _create(conn: psycopg.Connection[Any]) -> None:
    conn.execute(sql.SQL("CREATE TABLE item ({})").format(COLUMNS))


def _usage_by_part(follower: Follower) -> dict[str, Usage]:
    return {part: total(pids) for part, pids in follower.processes().items()}


@contextmanager
def _stopped(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
