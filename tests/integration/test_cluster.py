"""A pipeline on a Spark cluster whose executors share nothing with the driver but the network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from penstock.changelog.changelog import ChangeLog
from penstock.spark.environment import pack
from tests.crash.penstock_run import PenstockRun
from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.objects_server import SECRET, ObjectServer
from tests.spark_cluster import SparkCluster, why_not

REASON = why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    archive = tmp_path_factory.mktemp("packed") / "penstock_env.tar.gz"
    pack(archive)
    return archive


@pytest.fixture
def cluster(pipeline: PipelineUnderTest) -> Iterator[SparkCluster]:
    with SparkCluster(pipeline.folder) as cluster:
        yield cluster


def rows(url: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as conn:
        try:
            return conn.execute("SELECT t::text FROM items t ORDER BY 1").fetchall()
        except psycopg.errors.UndefinedTable:
            return []


def test_a_pipeline_on_isolated_workers(
    pipeline: PipelineUnderTest,
    target_url: str,
    object_server: ObjectServer,
    environment: Path,
    cluster: SparkCluster,
) -> None:
    pipeline.execute(
        "CREATE TABLE items (id int PRIMARY KEY, name text)",
        "INSERT INTO items SELECT n, 'old' FROM generate_series(1, 5000) n",
    )
    pipeline.log = ChangeLog(f"{object_server.place()}/log", object_server.options)
    pipeline.configure(
        copy=True,
        destination={"type": "postgres", "url": target_url},
        options=object_server.options,
    )
    conf = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"}
    pipeline.also(
        spark={"master": cluster.master, "environment": str(environment), "conf": conf}
    )
    run = PenstockRun(pipeline.file)

    def delivered() -> bool:
        run.expect_running()
        return rows(target_url) == rows(pipeline.url)

    try:
        wait_until(delivered, "all rows are copied", 300)
        pipeline.execute(
            "UPDATE items SET name = 'new' WHERE id < 1000", "DELETE FROM items WHERE id > 4000"
        )
        wait_until(delivered, "the changes are there", 300)
        # A machine is lost, with its executor, and another one comes.
        executors = cluster.executors()
        cluster.workers[0].kill()
        cluster.start_worker()
        pipeline.execute("UPDATE items SET name = 'newer' WHERE id % 3 = 0")
        wait_until(delivered, "the changes are there", 300)
        wait_until(lambda: cluster.executors() > executors, "a new executor has come", 300)
        run.stop()
    except BaseException:
        print(run.output[-5000:], cluster.said())
        raise
    finally:
        run.end()
    assert SECRET not in run.output + cluster.said()
