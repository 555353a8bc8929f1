"""A pipeline on a Spark cluster whose executors share nothing with the driver but the network."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    assert pack(archive) > 10
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


@pytest.fixture
def shop(
    pipeline: PipelineUnderTest,
    target_url: str,
    object_server: ObjectServer,
    environment: Path,
    cluster: SparkCluster,
) -> PipelineUnderTest:
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
    pipeline.also(spark=spark_on(cluster, environment))
    return pipeline


def spark_on(cluster: SparkCluster, environment: Path | None) -> dict[str, Any]:
    conf = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"}
    archive = {} if environment is None else {"environment": str(environment)}
    return {"master": cluster.master, "conf": conf, **archive}


@pytest.mark.release
def test_the_archive_holds_what_tasks_import_and_little_else(
    environment: Path, tmp_path: Path
) -> None:
    with tarfile.open(environment) as tar:
        tar.extractall(tmp_path / "env", filter="fully_trusted")  # noqa: S202
    packages = {path.name for path in (tmp_path / "env").glob("lib/*/site-packages/*")}
    assert {"penstock", "pyarrow", "psycopg", "psycopg_binary", "obstore"} <= packages
    assert not {"pyspark", "pytest", "mypy", "hypothesis", "pip"} & packages
    python = tmp_path / "env" / "bin" / "python"
    code = "import penstock.decode.changes as it; print(it.__file__)"
    done = subprocess.run(
        [str(python), "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(str(tmp_path / "env"))


def test_a_pipeline_on_isolated_workers(
    shop: PipelineUnderTest, target_url: str, cluster: SparkCluster
) -> None:
    run = PenstockRun(shop.file)

    def delivered() -> bool:
        run.expect_running()
        return rows(target_url) == rows(shop.url)

    try:
        wait_until(delivered, "all rows are copied", 300)
        shop.execute(
            "UPDATE items SET name = 'new' WHERE id < 1000", "DELETE FROM items WHERE id > 4000"
        )
        wait_until(delivered, "the changes are there", 300)
        # A machine is lost, with its executor, and another one comes.
        executors = cluster.executors()
        cluster.workers[0].kill()
        cluster.start_worker()
        shop.execute("UPDATE items SET name = 'newer' WHERE id % 3 = 0")
        wait_until(delivered, "the changes are there", 300)
        wait_until(lambda: cluster.executors() > executors, "a new executor has come", 300)
        run.stop()
    except BaseException:
        print(run.output[-5000:], cluster.said())
        raise
    finally:
        run.end()
    assert SECRET not in run.output + cluster.said()


@pytest.mark.release
def test_the_check_says_of_each_executor_what_it_lacks(
    shop: PipelineUnderTest, target_url: str, cluster: SparkCluster, environment: Path
) -> None:
    def check() -> str:
        command = [sys.executable, "-m", "penstock", "check", str(shop.file)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        return done.stdout + done.stderr

    assert check().count("passed   executor on") == 2
    # A folder of the driver's, which they do not see.
    shop.also(change_log={"path": str(shop.folder / "log")})
    said = check()
    assert said.count("failed   executor on") == 2, said
    assert f"does not see the change log {shop.folder / 'log'}" in said
    shop.also(spark=spark_on(cluster, None))
    said = check()
    assert "failed   executors: no task could run" in said, said
    assert "penstock pack" in said
