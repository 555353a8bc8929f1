"""The systems of the copy workloads, on a real server that is source and destination in one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from bench.copy_workloads import CopyWorkload, copy_workload
from bench.jdbc_driver import jdbc_driver
from bench.process_usage import copy_processes
from bench.psql_copies import copy_halves, copy_through_pipe
from bench.server import BenchDatabase, BenchError
from bench.spark_jobs import SnapshotJob
from bench.target import Target, Targets, contents, require_equal
from penstock.embedded.postgres import EmbeddedPostgres

pytestmark = pytest.mark.release

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONE = CopyWorkload("copy", 1, 2000)
MANY = CopyWorkload("copy_small", 3, 20)


@dataclass(frozen=True)
class Pair:
    source: BenchDatabase
    target: Target


@pytest.fixture
def pair(pg_server: EmbeddedPostgres, database: str, tmp_path: Path) -> Iterator[Pair]:
    name = str(conninfo_to_dict(database)["dbname"])
    targets = Targets(pg_server, "test_bench_copies")
    with psycopg.connect(database, autocommit=True) as conn:
        source = BenchDatabase(pg_server, name, tmp_path, conn)
        yield Pair(source, targets.make("postgres", 0))
    targets.measured("postgres", 0)


def fill(pair: Pair, workload: CopyWorkload) -> None:
    workload.create(pair.source.conn)
    workload.fill(pair.source.conn)
    pair.source.settle()


def test_workloads_are_what_they_are_defined_as() -> None:
    assert copy_workload("copy", 1.0) == CopyWorkload("copy", 1, 5_000_000)
    assert copy_workload("copy", 4.0).rows == 20_000_000
    assert copy_workload("copy_small", 1.0) == CopyWorkload("copy_small", 1000, 50)
    assert copy_workload("copy_small", 0.1).tables == 100


def test_tables_hold_as_many_rows_as_they_should(pair: Pair) -> None:
    fill(pair, MANY)
    found = contents(pair.source.conn)
    assert {name: rows for name, (rows, _hash) in found.items()} == {
        "item_0": 20,
        "item_1": 20,
        "item_2": 20,
    }


def test_two_psql_read_every_row_once(pair: Pair) -> None:
    fill(pair, ONE)
    assert copy_halves(pair.source, "item", ONE.rows).seconds > 0
    with pytest.raises(BenchError, match="psql copied 2,000 rows of 2,001"):
        copy_halves(pair.source, "item", ONE.rows + 1)


def test_a_pipe_of_two_psql_fills_the_target(pair: Pair) -> None:
    fill(pair, ONE)
    ONE.create(pair.target.conn)
    copy_through_pipe(pair.source, pair.target.url, "item", ONE.rows)
    require_equal("psql_copy_pipe", contents(pair.source.conn), contents(pair.target.conn))


def test_a_psql_that_fails_ends_the_measurement(pair: Pair) -> None:
    fill(pair, ONE)
    # Without the table in the target.
    with pytest.raises(BenchError, match="psql ended with code"):
        copy_through_pipe(pair.source, pair.target.url, "item", ONE.rows)


def test_a_copy_tells_its_moments_in_their_order(pair: Pair, spark: SparkSession) -> None:
    fill(pair, MANY)
    file, _config = pair.source.pipeline_file(
        "bench_copy", {"type": "postgres", "url": pair.target.url}, copy={"parallelism": 2}
    )
    times = SnapshotJob(file).run(spark, lambda: False)
    assert times.init <= times.began <= times.chunks_done <= times.ready
    assert times.ready - times.init <= times.run_seconds
    assert sum(times.rows.values()) == MANY.rows
    require_equal("postgres", contents(pair.source.conn), contents(pair.target.conn))


def test_who_holds_a_snapshot_in_the_folder_is_one_of_the_processes(tmp_path: Path) -> None:
    program = [sys.executable, "-c", "input()", "penstock.source.postgres.snapshot.holder_process"]
    with subprocess.Popen(
        [*program, str(tmp_path / "log" / "snapshots" / "1")], stdin=subprocess.PIPE
    ) as holder:
        here = copy_processes(2**23, tmp_path / "log")["holder"]
        elsewhere = copy_processes(2**23, tmp_path / "other")["holder"]
        holder.communicate(b"\n")
    assert here == [holder.pid]
    assert elsewhere == []


def test_a_driver_with_another_checksum_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.jar"
    wrong.write_bytes(b"something else")
    with pytest.raises(BenchError, match="its checksum differs"):
        jdbc_driver(tmp_path / "cache", wrong.as_uri())
    with pytest.raises(BenchError, match="could not be fetched"):
        jdbc_driver(tmp_path / "cache", (tmp_path / "missing.jar").as_uri())
    assert not (tmp_path / "cache").exists()
