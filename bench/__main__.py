"""Entry point of `make bench`; docs/benchmarks.md says what is measured and how."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import psycopg

from bench.backlog import BacklogBench
from bench.broker import KafkaTopics
from bench.clickhouse_tables import ClickHouseTables
from bench.clusters import cluster_spark
from bench.copies import CopyBench, jdbc_spark
from bench.copy_workloads import CopyWorkload, copy_workload
from bench.encoders import measure_encoders
from bench.jdbc_driver import jdbc_driver
from bench.lakes import Lakes
from bench.object_logs import IN_OBJECTS, ObjectLogs
from bench.places import Places
from bench.rabbit import BARE, RabbitQueues
from bench.results import Measurement, summarise, write_results
from bench.results_table import print_table
from bench.search_server import INTO_SEARCH, SearchIndexes
from bench.server import SETTINGS, BenchError, bench_database, make_wal_files
from bench.settings import (
    COPIES,
    IN_SESSION,
    INTO_LAKES,
    INTO_RABBIT,
    INTO_TABLES,
    ON_CLUSTERS,
    PIPELINES,
    RESULTS,
    STREAMS,
    WORKLOADS,
    Settings,
)
from bench.spark_lakes import SPARK_MERGE, WITH_ICEBERG, iceberg_spark
from bench.start import measure_start
from bench.steady import SteadyBench, steady_seconds
from bench.target import targets_of
from bench.transformers import measure_transformers
from bench.warm_spark import WarmSpark
from bench.workloads import Workload, backlog, w1, w1_phases
from penstock.cli.terminal import say, show_error
from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.errors import PenstockError

T = TypeVar("T")

_WARM_UP_SCALE = 0.1
# Those that do not start a Spark themselves.
_ON_WARM_SPARK = tuple(name for name in WORKLOADS if name != "start")
# All of it is held in memory.
_ENCODE_SCALE = 0.2
# At full scale: the table, its WAL, what the server spills while it decodes, and one change log.
_GIGABYTES = {"w1": 4, "w2": 12, "w3": 1, "w4": 4, "copy": 5, "copy_small": 1, "encode": 1}
_GIGABYTES |= {"start": 1, "transformers": 0, "whole": 14}
# And on the destination server: a table (for the phases of w1 six), its staging, its WAL.
_DESTINATION_GIGABYTES = {"w1": 8, "w2": 9, "w3": 5, "w4": 6, "copy": 6, "copy_small": 5}
_DESTINATION_GIGABYTES |= {"start": 5, "whole": 10}


def main() -> int:
    try:
        settings = Settings.of(os.environ)
        _require_disk(settings, Path(tempfile.gettempdir()))
        _measure(settings)
    except PenstockError as error:
        show_error(error.message, error.remedy)
        return 1
    except psycopg.Error as error:
        show_error(
            f"The embedded Postgres failed: {str(error).strip()}.",
            "Run it again; a full disk or lack of memory are the usual causes.",
        )
        return 1
    except KeyboardInterrupt:
        say("stopped; nothing that the benchmark started is left")
        return 130
    return 0


def _require_disk(settings: Settings, folder: Path) -> None:
    """Workloads come one after another and leave nothing, so the largest counts."""
    largest = max(
        _GIGABYTES[name]
        + (_DESTINATION_GIGABYTES[name] if settings.systems_of(name, INTO_TABLES) else 0)
        for name in settings.workloads
    )
    needed = 1 + settings.scale * largest
    free = shutil.disk_usage(folder).free / 1e9
    if free < needed:
        raise BenchError(
            f"The benchmark needs about {needed:.0f} GB in {folder}; {free:.1f} GB are free.",
            remedy="Set TMPDIR to a folder on a larger disk, or take a smaller SCALE.",
        )


def _measure(settings: Settings) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
        server = stack.enter_context(EmbeddedPostgres(settings=SETTINGS))
        destination = None
        if settings.needs(*INTO_TABLES):
            destination = stack.enter_context(EmbeddedPostgres(settings=SETTINGS))
            make_wal_files(destination, settings.scale)
        say(
            f"Postgres {server.version} on this machine's {os.cpu_count()} cores, "
            + ", ".join(f"{name} {value}" for name, value in SETTINGS.items())
        )
        places = _places(settings, folder, server, stack)
        # Fetched before anything is measured.
        driver = jdbc_driver() if settings.needs("spark_jdbc") else None
        bench = _Bench(settings, folder, server, destination, driver, places)
        bench.warm_up()
        measurements: list[Measurement] = []
        others: list[dict[str, Any]] = []
        for name in settings.workloads:
            if not settings.systems_of(name):
                say(f"{name} is left out: none of its systems is in SYSTEMS")
                continue
            measured, more = bench.measure(name)
            measurements += measured
            others += more
            # After each, so that a run that is stopped later has not measured in vain.
            write_results(RESULTS, summarise(measurements, settings.scale) + others)
    print_table(summarise(measurements, settings.scale) + others)
    say(f"written to {os.path.relpath(RESULTS)}")


def _places(settings: Settings, folder: Path, server: EmbeddedPostgres, stack: ExitStack) -> Places:
    """Start what the systems of this run need."""

    def started(kind: Callable[[], AbstractContextManager[T]], *systems: str) -> T | None:
        return stack.enter_context(kind()) if settings.needs(*systems) else None

    return Places(
        spark=stack.enter_context(WarmSpark(folder))
        if settings.needs(*IN_SESSION, of=_ON_WARM_SPARK)
        else None,
        kafka=started(KafkaTopics, "kafka"),
        rabbit=started(RabbitQueues, *INTO_RABBIT, BARE),
        objects=started(ObjectLogs, *IN_OBJECTS),
        search=started(SearchIndexes, *INTO_SEARCH),
        lakes=Lakes(folder, server) if settings.needs(*INTO_LAKES) else None,
        iceberg=started(partial(iceberg_spark, folder), *WITH_ICEBERG),
        clickhouse=started(ClickHouseTables, "clickhouse"),
        clusters={
            system: stack.enter_context(cluster_spark(system, folder))
            for system in ON_CLUSTERS
            if settings.needs(system)
        },
    )


@dataclass(frozen=True)
class _Bench:
    """What all workloads share. Each gets a database of its own, and leaves nothing."""

    settings: Settings
    folder: Path
    server: EmbeddedPostgres
    destination: EmbeddedPostgres | None
    jdbc_driver: Path | None
    places: Places

    def warm_up(self) -> None:
        """Let the JVM compile and the workers start; nothing of it is reported."""
        delivering = (*PIPELINES, *INTO_TABLES, SPARK_MERGE)
        if self.settings.needs(*delivering, of=STREAMS):
            systems = self.settings.systems_of("w1", delivering)
            self._backlogs("bench_warm_up", [w1(_WARM_UP_SCALE)], systems, 1, _in_silence)
            say("warmed up")

    def measure(self, name: str) -> tuple[list[Measurement], list[dict[str, Any]]]:
        """One workload's measurements, and entries of another kind."""
        if name == "w3":
            return self._steady()
        if name == "start":
            return self._start()
        if name == "encode":
            return self._encode(), []
        if name == "transformers":
            systems, rounds = self.settings.systems_of(name), self.settings.rounds_of(name)
            return list(measure_transformers(self.settings.scale, systems, rounds, say)), []
        return (self._copies(name) if name in COPIES else self._backlog(name)), []

    def _backlog(self, name: str) -> list[Measurement]:
        settings = self.settings
        rounds, systems = settings.rounds_of(name), settings.systems_of(name)
        measured = self._backlogs(
            f"bench_{name}", [backlog(name, settings.scale)], systems, rounds, say
        )
        phased = tuple(s for s in settings.systems_of(name, INTO_TABLES) if s not in ON_CLUSTERS)
        if name == "w1" and phased:
            phases = w1_phases(settings.scale)
            measured += self._backlogs("bench_w1_phases", phases, phased, rounds, say)
        return measured

    def _start(self) -> tuple[list[Measurement], list[dict[str, Any]]]:
        with (
            bench_database(self.server, "bench_start", self.folder) as database,
            targets_of(self.destination, "bench_start") as targets,
        ):
            if targets is None:
                return [], []
            return [], [measure_start(database, targets, self.settings.rounds_of("start"), say)]

    def _encode(self) -> list[Measurement]:
        systems, rounds = self.settings.systems_of("encode"), self.settings.rounds_of("encode")
        with bench_database(self.server, "bench_encode", self.folder) as database:
            workload = w1(self.settings.scale * _ENCODE_SCALE)
            return list(measure_encoders(database, workload, systems, rounds, say))

    def _copies(self, name: str) -> list[Measurement]:
        settings = self.settings
        workload = copy_workload(name, settings.scale)
        with ExitStack() as stack:
            jdbc = None
            if self.jdbc_driver is not None and settings.systems_of(name, ("spark_jdbc",)):
                jdbc = stack.enter_context(jdbc_spark(self.folder, self.jdbc_driver))
            less = copy_workload(name, settings.scale * _WARM_UP_SCALE)
            # Elsewhere: workers keep connections, and those to a dropped database are dead.
            self._copied(f"bench_{name}_warm_up", less, jdbc, 1, _in_silence)
            say(f"warmed up for {name}")
            return self._copied(f"bench_{name}", workload, jdbc, settings.rounds_of(name), say)

    def _copied(
        self,
        name: str,
        workload: CopyWorkload,
        jdbc: WarmSpark | None,
        rounds: int,
        tell: Callable[[str], None],
    ) -> list[Measurement]:
        systems = self.settings.systems_of(workload.name)
        with (
            bench_database(self.server, name, self.folder) as database,
            targets_of(self.destination, name) as targets,
        ):
            bench = CopyBench(database, workload, jdbc, targets, self.places)
            return list(bench.run(systems, rounds, tell))

    def _steady(self) -> tuple[list[Measurement], list[dict[str, Any]]]:
        systems = self.settings.systems_of("w3", (*PIPELINES, *INTO_TABLES))
        if not systems:
            say("w3 is left out: it needs a system that delivers in SYSTEMS")
            return [], []
        with (
            bench_database(self.server, "bench_w3", self.folder) as database,
            targets_of(self.destination, "bench_w3") as targets,
        ):
            scale = self.settings.scale
            bench = SteadyBench(database, targets, self.places)
            return bench.run(systems, steady_seconds(scale), scale, say)

    def _backlogs(
        self,
        name: str,
        workloads: list[Workload],
        systems: tuple[str, ...],
        rounds: int,
        tell: Callable[[str], None],
    ) -> list[Measurement]:
        """Backlogs on the same tables, one after the other."""
        measured: list[Measurement] = []
        with (
            bench_database(self.server, name, self.folder) as database,
            targets_of(self.destination, name, keep=len(workloads) > 1) as targets,
        ):
            for workload in workloads:
                bench = BacklogBench(database, workload, targets, self.places)
                measured += bench.run(systems, rounds, tell)
        return measured


def _in_silence(_text: str) -> None:
    pass


if __name__ == "__main__":
    sys.exit(main())
