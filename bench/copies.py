"""copy and copy_small: how fast rows that are there already get from the source elsewhere."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.copy_workers import measure_copy_workers
from bench.copy_workloads import CopyWorkload
from bench.meter import Meter, Spent
from bench.places import Places
from bench.process_usage import copy_processes, forget_peak, pipeline_processes
from bench.psql_copies import PsqlRun, copy_halves, copy_through_pipe
from bench.readers import PATIENCE_SECONDS
from bench.results import Measurement
from bench.server import BenchDatabase, BenchError
from bench.settings import BY_WORKERS, DUMPED, INTO_LAKES, INTO_TABLES, turns
from bench.spark_jobs import CopyTimes, JdbcJob, SnapshotJob
from bench.spark_lakes import SPARK_JDBC
from bench.target import Contents, Target, Targets, contents, require_equal
from bench.warm_spark import WarmSpark
from bench.whole_dump import dump_and_restore
from penstock.config.models import SparkConfig

# As many tasks as psql_copy_binary_2 has connections, however many cores there are.
_PARALLELISM = 2
_JDBC_PARTITIONS = 4

Say = Callable[[str], None]


def jdbc_spark(folder: Path, driver: Path) -> WarmSpark:
    """Spark as it is by default: Penstock's own settings save a JVM that sees no rows."""
    return WarmSpark(
        folder,
        SparkConfig(
            master=f"local[{_PARALLELISM}, 4]",
            conf={
                "spark.driver.extraClassPath": str(driver),
                "spark.driver.extraJavaOptions": (
                    "-XX:TieredStopAtLevel=4 -XX:-UseSerialGC -XX:+UseG1GC"
                ),
            },
        ),
    )


class CopyBench:
    """Measures one workload: every system copies the same tables."""

    def __init__(
        self,
        database: BenchDatabase,
        workload: CopyWorkload,
        jdbc: WarmSpark | None,
        targets: Targets | None,
        places: Places,
    ) -> None:
        self._database = database
        self._workload = workload
        self._jdbc = jdbc
        self._targets = targets
        self._places = places

    def run(self, systems: tuple[str, ...], rounds: int, say: Say) -> Iterator[Measurement]:
        """Fill the tables, then yield a measurement for each round and system."""
        workload, database = self._workload, self._database
        began = time.monotonic()
        workload.create(database.conn)
        workload.fill(database.conn)
        say(
            f"{workload.name}: {workload.rows:,} rows in {workload.tables:,} tables, written in "
            f"{time.monotonic() - began:.0f} s"
        )
        database.settle()
        # This also brings the tables into the page cache, where everybody finds them.
        expected = contents(database.conn)
        for number, system in turns(systems, rounds):
            measured = self._measure(system, number, expected)
            say(f"{workload.name} round {number + 1} of {rounds}: {_in_words(measured)}")
            yield measured

    def _measure(self, system: str, number: int, expected: Contents) -> Measurement:
        target = self._target(system, number)
        if system == "psql_copy_binary_2":
            measured = self._psql(system, None)
        elif system == "psql_copy_pipe":
            measured = self._psql(system, target)
        elif system == DUMPED and target is not None:
            measured = self._dump(target)
        elif system == "spark_jdbc":
            measured = self._read_jdbc(system, _require(self._jdbc), None)
        elif system == SPARK_JDBC:
            into = f"bench.db.{self._workload.name}_{number}"
            measured = self._read_jdbc(system, _require(self._places.iceberg), into)
        elif system in BY_WORKERS and target is not None:
            spark, workload = _require(self._places.spark), self._workload
            measured = measure_copy_workers(
                system, self._database, spark, target, workload.name, workload.rows
            )
        else:
            measured = self._copy(system, number, target)
        if target is not None and self._targets is not None:
            require_equal(system, expected, contents(target.conn))
            self._targets.measured(system, number)
        return measured

    def _target(self, system: str, number: int) -> Target | None:
        if system not in INTO_TABLES:
            return None
        if self._targets is None:
            raise BenchError("There is no destination server.", remedy="Report it.")
        target = self._targets.make(system, number)
        if system == "psql_copy_pipe":
            self._workload.create(target.conn)
        target.settle()
        return target

    def _psql(self, system: str, target: Target | None) -> Measurement:
        workload, database = self._workload, self._database
        (table,) = workload.table_names
        server, destination = database.cpu_seconds(), target.cpu_seconds() if target else 0.0
        run: PsqlRun
        if target is None:
            run = copy_halves(database, table, workload.rows)
        else:
            run = copy_through_pipe(database, target.url, table, workload.rows)
        return Measurement(
            workload.name,
            system,
            workload.rows,
            run.seconds,
            run.cpu_s,
            database.cpu_seconds() - server,
            run.peak_rss_mb,
            destination_cpu_s=target.cpu_seconds() - destination if target else None,
        )

    def _dump(self, target: Target) -> Measurement:
        workload, database = self._workload, self._database
        server, destination = database.cpu_seconds(), target.cpu_seconds()
        run = dump_and_restore(database, target.url, _PARALLELISM)
        return Measurement(
            workload.name,
            DUMPED,
            workload.rows,
            run.seconds,
            run.cpu_s,
            database.cpu_seconds() - server,
            run.peak_rss_mb,
            destination_cpu_s=target.cpu_seconds() - destination,
            run_seconds=run.seconds,
        )

    def _read_jdbc(self, system: str, jdbc: WarmSpark, into: str | None) -> Measurement:
        workload, database = self._workload, self._database
        (table,) = workload.table_names
        _forget_peaks(jdbc)
        with Meter(lambda: pipeline_processes(jdbc.pid), database.cpu_seconds, None) as meter:
            seconds = jdbc.read_jdbc(
                JdbcJob(
                    f"jdbc:postgresql://127.0.0.1:{database.server.port}/{database.name}",
                    "postgres",
                    table,
                    workload.rows,
                    _JDBC_PARTITIONS,
                    into,
                ),
                PATIENCE_SECONDS,
            )
            spent = meter.read()
        return self._measurement(system, seconds, spent)

    def _copy(self, system: str, number: int, target: Target | None) -> Measurement:
        """Our own copy, by `penstock snapshot`."""
        workload, database, spark = self._workload, self._database, _require(self._places.spark)
        name = f"{workload.name}_{system}_{number}"
        destination: dict[str, Any] = {"type": system}
        if system in INTO_LAKES and self._places.lakes is not None:
            destination |= self._places.lakes.destination(system, name)
        else:
            destination |= {"url": target.url} if target else {"typed": True}
        if workload.is_whole:
            destination |= {"type": "postgres", "schema": "full"}
        file, config = database.pipeline_file(name, destination, copy={"parallelism": _PARALLELISM})
        folder = Path(config.change_log.path)
        _forget_peaks(spark)
        with Meter(
            lambda: copy_processes(spark.pid, folder), database.cpu_seconds, target
        ) as meter:
            times = spark.copy(SnapshotJob(file), PATIENCE_SECONDS)
            spent = meter.read()
        shutil.rmtree(folder, ignore_errors=True)
        _require_rows(system, sum(times.rows.values()), workload.rows)
        if system in INTO_LAKES and self._places.lakes is not None:
            self._places.lakes.require_all(system, config, database.conn)
        return self._measurement(system, self._seconds(times, target), spent, times)

    def _seconds(self, times: CopyTimes, target: Target | None) -> float:
        """Of many tables all that each costs counts; of one only its rows, and its key; of a whole
        database the command.
        """
        if self._workload.is_whole:
            return times.run_seconds
        if self._workload.tables > 1:
            return times.ready - times.init
        return (times.ready if target else times.chunks_done) - times.began

    def _measurement(
        self, system: str, seconds: float, spent: Spent, times: CopyTimes | None = None
    ) -> Measurement:
        return Measurement(
            self._workload.name,
            system,
            self._workload.rows,
            seconds,
            spent.cpu_s,
            spent.server_cpu_s,
            spent.peak_rss_mb,
            rss_mb=spent.rss_mb,
            peak_pss_mb=spent.peak_pss_mb,
            pss_mb=spent.pss_mb,
            destination_cpu_s=spent.destination_cpu_s,
            tables=self._tables,
            chunk_seconds=times.chunks_done - times.began if times else None,
            run_seconds=times.run_seconds if times else None,
        )

    @property
    def _tables(self) -> int | None:
        """How many, where their number is what counts."""
        many = self._workload.tables > 1 and not self._workload.is_whole
        return self._workload.tables if many else None


def _forget_peaks(spark: WarmSpark) -> None:
    """The session has seen other workloads before: peak memory counts from now on."""
    for pids in pipeline_processes(spark.pid).values():
        for pid in pids:
            forget_peak(pid)


def _require(spark: WarmSpark | None) -> WarmSpark:
    if spark is None:
        raise BenchError("There is no Spark session.", remedy="Report it.")
    return spark


def _require_rows(system: str, copied: int, rows: int) -> None:
    """A rate counts only if everything arrived."""
    if copied != rows:
        raise BenchError(
            f"{system} copied {copied:,} rows of {rows:,}.",
            remedy="It is a bug of Penstock or of the benchmark: the figures mean nothing.",
        )


def _in_words(measured: Measurement) -> str:
    if measured.tables_per_s is not None:
        return f"{measured.system} {measured.tables_per_s:,.0f} tables/s"
    return f"{measured.system} {measured.rows_per_s:,.0f} rows/s"
