"""A pipeline on a Spark cluster whose executors share nothing with the driver but the network."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock.changelog.changelog import ChangeLog
from penstock.spark.environment import pack
from penstock.verify.verification import verify
from tests.crash.penstock_run import PenstockCopy, PenstockRun
from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.integration.copied_tables import CopiedTables
from tests.lacking import lacks
from tests.objects_server import SECRET, ObjectServer
from tests.pipelines import engine_on
from tests.spark_cluster import SparkCluster, why_not
from tests.threads_engine import Threads
from tests.webhook_receiver import Receiver
from tests.webhook_shop import KEY, Shop

# Some tens of megabytes: work for several tasks.
MORE_ROWS = """
INSERT INTO items
SELECT n, (SELECT string_agg(md5(n::text || i), '') FROM generate_series(1, 40) i)
  FROM generate_series(5001, 40000) n
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    archive = tmp_path_factory.mktemp("packed") / "penstock_env.tar.gz"
    assert pack(archive) > 10
    return archive


@pytest.fixture
def cluster(pipeline: PipelineUnderTest) -> Iterator[SparkCluster]:
    if (reason := why_not()) is not None:
        lacks(reason)
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
    pipeline.also(spark=cluster.settings(environment))
    return pipeline


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
        # What an executor says that looks for the driver's Python; it would be tried for ever.
        assert "Cannot run program" not in run.output + cluster.said()
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


def lake_in(store: ObjectServer, lake: str, catalog: str) -> dict[str, Any]:
    """A destination that has nothing of the driver's disk."""
    place, options = f"{store.place()}/lake", store.direct_options
    if lake == "delta":
        return {"path": place, "path_options": options}
    if lake == "ducklake":
        return {"catalog": catalog, "data_path": place, "data_options": options}
    properties = {
        "s3.endpoint": options["endpoint"],
        "s3.access-key-id": options["access_key_id"],
        "s3.secret-access-key": options["secret_access_key"],
        "s3.region": options["region"],
    }
    stage = {"stage": f"{store.place()}/stage", "stage_options": options}
    return {"catalog": catalog, "warehouse": place, "properties": properties, **stage}


@pytest.mark.release
@pytest.mark.parametrize("lake", ["delta", "iceberg", "ducklake"])
def test_a_lake_on_isolated_workers(
    shop: PipelineUnderTest,
    target_url: str,
    cluster: SparkCluster,
    object_server: ObjectServer,
    lake: str,
) -> None:
    """Executors put copies and batches into the bucket, where the driver finds them: they see no
    folder of his.
    """
    shop.also(
        destination={"type": lake, **lake_in(object_server, lake, target_url)},
        batch={"max_age": "1s"},
    )

    def run() -> None:
        until = PenstockRun(shop.file, "--until-caught-up")
        try:
            until.wait_done()
        except BaseException:
            print(until.output[-5000:], cluster.said())
            raise
        finally:
            until.end()

    run()
    shop.execute(
        "UPDATE items SET name = 'new' WHERE id < 1000",
        "DELETE FROM items WHERE id > 4000",
        "ALTER TABLE items ADD price numeric(8,2) NOT NULL DEFAULT 0.5",
        "INSERT INTO items VALUES (9000, 'last', 1.25)",
    )
    run()
    report = verify(shop.config, shop.file, make_engine=engine_on(Threads(1)))
    assert report.equal, report.tables
    assert [table.target_rows for table in report.tables] == [4001]
    assert not [path for path in shop.folder.iterdir() if "stage" in path.name]


@pytest.mark.release
def test_webhooks_on_isolated_workers(
    shop: PipelineUnderTest, target_url: str, cluster: SparkCluster, object_server: ObjectServer
) -> None:
    """Executors put events into the bucket, where whoever delivers finds them."""
    with Receiver() as receiver:
        place, options = object_server.place(), object_server.direct_options
        subscribed = Shop(target_url, place, receiver, name=shop.config.name, path_options=options)
        subscribed.add("/hook", tables=["public.items"])
        shop.also(
            destination={
                "type": "webhooks",
                "url": target_url,
                "path": place,
                "path_options": options,
                "secret_key": KEY,
                "allow": ["127.0.0.0/8"],
                "http": True,
            }
        )
        run = PenstockRun(shop.file)

        def arrived(*ids: int) -> bool:
            run.expect_running()
            return set(ids) <= set(subscribed.ids("/hook"))

        try:
            wait_until(lambda: arrived(*range(1, 5001)), "copied rows have arrived", 300)
            shop.execute("INSERT INTO items VALUES (9000, 'last')")
            wait_until(lambda: arrived(9000), "the change has arrived", 300)
            run.stop()
        except BaseException:
            print(run.output[-5000:], cluster.said())
            raise
        finally:
            run.end()
            subscribed.close()
        assert SECRET not in run.output + cluster.said()


@pytest.mark.release
def test_executors_come_and_go_by_dynamic_allocation(
    shop: PipelineUnderTest, target_url: str, cluster: SparkCluster, environment: Path
) -> None:
    """With the work: Spark adds one, one is lost, and an idle one is let go."""
    shop.execute(MORE_ROWS)
    shop.configure(
        # Spark asks for another executor where tasks wait for more than a second, and less cannot
        # be set: chunks that are copied sooner bring none.
        copy={"chunk_bytes": "4MiB", "parallelism": 4},
        destination={"type": "postgres", "url": target_url},
        options=shop.config.change_log.revealed_options,
    )
    settings = cluster.settings(environment)
    settings["conf"] |= {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.timeout": "2s",
        "spark.dynamicAllocation.minExecutors": "1",
        "spark.dynamicAllocation.maxExecutors": "2",
        "spark.dynamicAllocation.executorIdleTimeout": "3s",
        "spark.executor.cores": "1",
    }
    shop.also(spark=settings)
    run = PenstockRun(shop.file)

    def delivered() -> bool:
        run.expect_running()
        return rows(target_url) == rows(shop.url)

    def wait_executors(count: int) -> None:
        def there() -> bool:
            run.expect_running()
            return len(cluster.live_executors()) == count

        wait_until(there, f"there are {count} executors", 300)

    try:
        wait_executors(2)
        cluster.live_executors()[0].kill()
        wait_until(delivered, "all rows are copied", 300)
        wait_executors(1)
        shop.execute("UPDATE items SET name = 'new' WHERE id % 3 = 0")
        wait_until(delivered, "the changes are there", 300)
        shop.execute("DELETE FROM items WHERE id % 2 = 0")
        wait_until(delivered, "the last changes are there", 300)
        run.stop()
    except BaseException:
        print(run.output[-5000:], cluster.said())
        raise
    finally:
        run.end()


@pytest.mark.release
def test_workers_on_a_second_machine_beside_spark(
    shop: PipelineUnderTest,
    target_url: str,
    cluster: SparkCluster,
    environment: Path,
    tmp_path: Path,
) -> None:
    """`penstock copy` elsewhere copies, executors stream; then the driver moves to a third one, and
    goes on under the snapshot that was held on the first: a table without a key is not begun anew.
    """
    shop.execute(
        MORE_ROWS,
        "CREATE TABLE loose (a int, b text)",
        "ALTER TABLE loose REPLICA IDENTITY FULL",
        "INSERT INTO loose SELECT n % 7, repeat('x', 500) FROM generate_series(1, 20000) n",
    )
    shop.configure(
        copy={"chunk_bytes": "256KiB", "workers": "required"},
        destination={"type": "postgres", "url": target_url},
        options=shop.config.change_log.revealed_options,
    )
    shop.also(spark=cluster.settings(environment))
    elsewhere = tmp_path / "second"
    elsewhere.mkdir()
    file = elsewhere / "pipeline.yaml"
    file.write_text(shop.file.read_text())
    copied = CopiedTables(shop, target_url, Threads(1))
    begun: list[PenstockRun] = []

    def start_run(machine: str) -> PenstockRun:
        state = {"XDG_STATE_HOME": str(tmp_path / machine)}
        begun.append(PenstockRun(shop.file, environment=state))
        return begun[-1]

    def start_workers() -> PenstockCopy:
        workers = PenstockCopy(file, "--workers", "1", apart_from=shop.folder)
        begun.append(workers)
        return workers

    def wait(condition: Callable[[], bool], what: str) -> None:
        def met() -> bool:
            begun[-1].expect_running()
            return condition()

        wait_until(met, what, 300)

    try:
        run = start_run("first")
        workers = start_workers()
        wait(lambda: copied.chunks_done("loose") > 3, "some chunks are copied")
        assert "worker        second, process" in copied.command("status", str(shop.file))
        # Both machines are lost but for the holder of the snapshot.
        run.kill_driver()
        workers.end()
        run.wait_gone()
        before = copied.copy_of("loose")
        assert before is not None
        assert not before.is_complete
        shop.execute("UPDATE loose SET b = 'later' WHERE a = 3", "DELETE FROM items WHERE id < 99")
        start_workers()
        moved = start_run("third")
        wait(lambda: set(copied.phases().values()) == {"ready"}, "both tables are copied")
        wait(lambda: copied.is_equal("items", "loose"), "all is equal")
        moved.stop()
        assert "starts again" not in moved.output
    except BaseException:
        print(*(f"---- {each.command}\n{each.output[-4000:]}" for each in begun), cluster.said())
        raise
    finally:
        for each in begun:
            each.end()


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
    shop.also(spark=cluster.settings(None))
    said = check()
    assert "failed   executors: no task could run" in said, said
    assert "penstock pack" in said
