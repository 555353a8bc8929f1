"""Each failpoint kills its process once, under load: nothing is lost, repeated or disordered.

A pipeline into Postgres walks all that it passes. One into another destination passes most of the
same: it walks those that are the destination's own, and before a release all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from penstock.destination.registry import destination_class, destination_names
from penstock.failpoints import PLACES
from tests.clickhouse_server import ClickHouseServer
from tests.crash.injured_pipeline import InjuredPipeline
from tests.crash.into_clickhouse import IntoClickHouse
from tests.crash.into_delta import IntoDelta
from tests.crash.into_ducklake import IntoDucklake
from tests.crash.into_files import IntoFiles
from tests.crash.into_iceberg import IntoIceberg
from tests.crash.into_kafka import IntoKafka
from tests.crash.into_kinesis import IntoKinesis
from tests.crash.into_postgres import SERVER_SETTINGS, IntoPostgres
from tests.crash.into_rabbitmq import IntoRabbitMq
from tests.crash.into_redshift import IntoRedshiftStandIn
from tests.crash.into_search import IntoSearch
from tests.crash.into_webhooks import IntoWebhooks
from tests.crash.passed_failpoints import is_of_copies, passed_failpoints
from tests.crash.penstock_run import PATIENCE, WITHOUT_SPARK
from tests.fix_pipeline import wait_until
from tests.fix_postgres import FreshServer
from tests.kafka_server import KafkaServer
from tests.kinesis_server import KinesisServer, use_test_credentials
from tests.objects_server import ObjectServer
from tests.opensearch_server import OpenSearchServer
from tests.rabbitmq_server import RabbitServer
from tests.webhook_receiver import Receiver

pytestmark = pytest.mark.slow

# At which pass each one fires; the first, where nothing is said. Those in tasks kill the first
# three attempts at the first batch. Those that kill the driver are spread over its lives: in each,
# the one with the lowest number that has not fired yet comes first.
PASSES = {
    "capture.received": 3,
    "capture.before_publish": 2,
    "capture.published": 2,
    "capture.before_confirm": 2,
    "driver.before_commit": 2,
    "files.manifest_written": 3,
    "delta.table_committed": 4,
    "iceberg.table_committed": 4,
    "driver.committed": 10,
}
IN_TASKS = ("task.read", "task.written")
ELSEWHERE = {
    "bigquery": "contract/test_bigquery.py",
    "snowflake": "contract/test_snowflake.py",
}
"""Destinations that no process of a pipeline reaches: the stand-in lives in the test's own."""
WITHOUT_AND_WITH_SPARK = [
    pytest.param(WITHOUT_SPARK, id="without Spark"),
    pytest.param({}, id="on Spark", marks=pytest.mark.release),
]


def test_every_one_belongs_to_a_run() -> None:
    """Those of copies are in test_copy_crashes.py and test_lake_copy_crashes.py."""
    here = Path(__file__)
    own = {name: destination_class(name).failpoints for name in destination_names()}
    for name, points in own.items():
        if not all(map(is_of_copies, points)):
            file, run = here, f'passed_failpoints("{name}")'
            if name in ELSEWHERE:
                file, run = (
                    here.parents[1] / ELSEWHERE[name],
                    f'expect_none_lost_at_failpoints(adapter, "{name}", ',
                )
            assert run in file.read_text()
    assert set(PASSES) <= {*PLACES, *(point for points in own.values() for point in points)}


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.release)], ids=["own", "all"])
def walks_all(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_killed_at_each_failpoint_into_files(
    fresh_server: FreshServer, tmp_path: Path, walks_all: bool
) -> None:
    with IntoFiles(fresh_server(**SERVER_SETTINGS), tmp_path, seed=3) as injured:
        if walks_all:
            die_at_each(injured, set(passed_failpoints("files")), tmp_path)
            fail_in_tasks(injured, {*IN_TASKS, "files.staged"}, tmp_path)
        else:
            die_at_own(injured, "files", tmp_path)
        injured.check_all()


@pytest.mark.parametrize("environment", WITHOUT_AND_WITH_SPARK)
def test_killed_at_each_failpoint_into_postgres(
    fresh_server: FreshServer, tmp_path: Path, environment: Mapping[str, str]
) -> None:
    """Where tasks die with their driver, tasks of Spark fail at the end at least."""
    servers = fresh_server(**SERVER_SETTINGS), fresh_server(**SERVER_SETTINGS)
    with IntoPostgres(*servers, tmp_path, seed=3) as injured:
        die_at_each(injured, set(passed_failpoints("postgres")), tmp_path, environment)
        fail_in_tasks(injured, set(IN_TASKS), tmp_path)
        injured.check_all()


# The one way to send hands messages over and hears later, the other commits lane by lane.
KAFKA_WAYS = {"kafka.handed_over": False, "kafka.lane_committed": True}


@pytest.mark.parametrize(
    "own", [pytest.param("kafka.handed_over", marks=pytest.mark.release), "kafka.lane_committed"]
)
def test_killed_at_each_failpoint_into_kafka(
    fresh_server: FreshServer, tmp_path: Path, own: str, walks_all: bool
) -> None:
    with (
        KafkaServer() as kafka,
        IntoKafka(
            fresh_server(**SERVER_SETTINGS), kafka, tmp_path, seed=3, transactional=KAFKA_WAYS[own]
        ) as injured,
    ):
        others = {*KAFKA_WAYS} - {own}
        if walks_all:
            die_at_each(injured, set(passed_failpoints("kafka")) - others, tmp_path)
            fail_in_tasks(injured, set(IN_TASKS), tmp_path)
        else:
            die_at_own(injured, "kafka", tmp_path, others)
        injured.check_all()


def test_killed_at_each_failpoint_into_kinesis(
    fresh_server: FreshServer, tmp_path: Path, walks_all: bool
) -> None:
    use_test_credentials()
    with (
        KinesisServer() as kinesis,
        IntoKinesis(
            fresh_server(**SERVER_SETTINGS), kinesis, tmp_path, seed=3, aggregate=True
        ) as injured,
    ):
        if walks_all:
            die_at_each(injured, set(passed_failpoints("kinesis")), tmp_path)
            fail_in_tasks(injured, set(IN_TASKS), tmp_path)
        else:
            die_at_own(injured, "kinesis", tmp_path)
        injured.check_all()


@pytest.mark.release
def test_killed_at_each_failpoint_into_search(
    fresh_server: FreshServer, tmp_path: Path, walks_all: bool
) -> None:
    with (
        OpenSearchServer() as search,
        IntoSearch(fresh_server(**SERVER_SETTINGS), search, tmp_path, seed=3) as injured,
    ):
        if walks_all:
            die_at_each(injured, set(passed_failpoints("search")), tmp_path)
            fail_in_tasks(injured, set(IN_TASKS), tmp_path)
        else:
            die_at_own(injured, "search", tmp_path)
        injured.check_all()


@pytest.mark.release
def test_killed_at_each_failpoint_into_clickhouse(
    fresh_server: FreshServer, tmp_path: Path, walks_all: bool
) -> None:
    with (
        ClickHouseServer() as clickhouse,
        IntoClickHouse(fresh_server(**SERVER_SETTINGS), clickhouse, tmp_path, seed=3) as injured,
    ):
        if walks_all:
            die_at_each(injured, set(passed_failpoints("clickhouse")), tmp_path)
            fail_in_tasks(injured, set(IN_TASKS), tmp_path)
        else:
            die_at_own(injured, "clickhouse", tmp_path)
        injured.check_all()


@pytest.mark.release
def test_killed_at_each_failpoint_into_rabbitmq(
    fresh_server: FreshServer, tmp_path: Path, walks_all: bool
) -> None:
    with (
        RabbitServer() as rabbit,
        IntoRabbitMq(fresh_server(**SERVER_SETTINGS), rabbit, tmp_path, seed=3) as injured,
    ):
        if walks_all:
            die_at_each(injured, set(passed_failpoints("rabbitmq")), tmp_path)
            fail_in_tasks(injured, set(IN_TASKS), tmp_path)
        else:
            die_at_own(injured, "rabbitmq", tmp_path)
        injured.check_all()


@pytest.mark.release
@pytest.mark.parametrize("places", ["own", "all"])
def test_killed_at_each_failpoint_into_ducklake(
    fresh_server: FreshServer, tmp_path: Path, places: str
) -> None:
    """The driver dies between merging and commit, and between commit and cleaning the stage."""
    servers = fresh_server(**SERVER_SETTINGS), fresh_server(**SERVER_SETTINGS)
    with IntoDucklake(*servers, tmp_path, seed=3) as injured:
        if places == "all":
            die_at_each(injured, set(passed_failpoints("ducklake")), tmp_path)
            fail_in_tasks(injured, set(IN_TASKS), tmp_path)
        else:
            die_at_own(injured, "ducklake", tmp_path)
        injured.check_all()


@pytest.mark.release
@pytest.mark.parametrize("places", ["own", "all"])
def test_killed_at_each_failpoint_into_a_stand_in_for_redshift(
    fresh_server: FreshServer, tmp_path: Path, object_server: ObjectServer, places: str
) -> None:
    """The driver dies between merging and commit, and between commit and cleaning the stage."""
    servers = fresh_server(**SERVER_SETTINGS), fresh_server(**SERVER_SETTINGS)
    with IntoRedshiftStandIn(*servers, object_server, tmp_path, seed=3) as injured:
        if places == "all":
            die_at_each(injured, set(passed_failpoints("redshift")), tmp_path)
            fail_in_tasks(injured, set(IN_TASKS), tmp_path)
        else:
            die_at_own(injured, "redshift", tmp_path)
        injured.check_all()


@pytest.mark.release
@pytest.mark.parametrize("places", ["own", "all"])
def test_killed_at_each_failpoint_into_delta(
    fresh_server: FreshServer, tmp_path: Path, places: str
) -> None:
    """The driver dies between the commits of two tables."""
    with IntoDelta(fresh_server(**SERVER_SETTINGS), tmp_path, seed=3) as injured:
        if places == "all":
            die_at_each(injured, set(passed_failpoints("delta")), tmp_path)
            fail_in_tasks(injured, set(IN_TASKS), tmp_path)
        else:
            die_at_own(injured, "delta", tmp_path)
        injured.check_all()


@pytest.mark.release
@pytest.mark.parametrize("places", ["own", "all"])
def test_killed_at_each_failpoint_into_iceberg(
    fresh_server: FreshServer, tmp_path: Path, places: str
) -> None:
    """The driver dies between the commits of two tables."""
    with IntoIceberg(fresh_server(**SERVER_SETTINGS), tmp_path, seed=3) as injured:
        if places == "all":
            die_at_each(injured, set(passed_failpoints("iceberg")), tmp_path)
            fail_in_tasks(injured, set(IN_TASKS), tmp_path)
        else:
            die_at_own(injured, "iceberg", tmp_path)
        injured.check_all()


@pytest.mark.release
def test_killed_at_each_failpoint_into_webhooks(
    fresh_server: FreshServer, tmp_path: Path, walks_all: bool
) -> None:
    with (
        Receiver() as receiver,
        IntoWebhooks(fresh_server(**SERVER_SETTINGS), receiver, tmp_path, seed=3) as injured,
    ):
        if walks_all:
            die_at_each(injured, set(passed_failpoints("webhooks")), tmp_path)
            fail_in_tasks(injured, set(IN_TASKS), tmp_path)
        else:
            die_at_own(injured, "webhooks", tmp_path)
        injured.check_all()


def die_at_own(
    injured: InjuredPipeline, destination: str, folder: Path, but: Collection[str] = ()
) -> None:
    """Its processes die where the destination's own failpoints are, its driver once more, and the
    next run delivers the rest. Without Spark: tasks die with their driver."""
    own = {name for name in passed_failpoints(destination) if name.startswith(f"{destination}.")}
    die_at(injured, own - {*but}, folder, WITHOUT_SPARK)
    injured.wait_load(20)
    injured.load.stop()
    injured.catch_up(WITHOUT_SPARK)


def die_at_each(
    injured: InjuredPipeline,
    names: set[str],
    folder: Path,
    environment: Mapping[str, str] | None = None,
) -> None:
    """One pipeline dies at all of them, and delivers afterwards."""
    die_at(injured, names, folder, environment)
    injured.start(**(environment or {}))
    injured.wait_delivering()
    injured.run.stop()


def die_at(
    injured: InjuredPipeline,
    names: set[str],
    folder: Path,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Its driver dies as often as they end it, meanwhile capture and tasks, and in the end the
    driver again."""
    fired = folder / "fired"
    fired.mkdir()
    kills = {
        **(environment or {}),
        "PENSTOCK_FAILPOINTS": ",".join(f"{name}=kill:{PASSES.get(name, 1)}" for name in names),
        "PENSTOCK_FAILPOINT_DIR": str(fired),
    }
    injured.load.start()
    injured.start(**kills)

    def all_fired() -> bool:
        injured.load.check()
        if injured.run.exit_code is not None:
            assert injured.run.exit_code == -9, injured.run.output[-3000:]
            injured.run.wait_gone()
            injured.check_confirmed()
            injured.start(**kills)
        return _files(fired) == names

    wait_until(all_fired, f"all of {', '.join(sorted(names))} have fired", 2 * PATIENCE)
    # The last one has left its trace, and is perhaps about to kill the driver.
    injured.run.kill_driver()
    injured.run.wait_gone()


def fail_in_tasks(injured: InjuredPipeline, names: set[str], folder: Path) -> None:
    """The last of the load is delivered by tasks that fail with an error instead of a kill."""
    failed = folder / "failed"
    failed.mkdir()
    injured.wait_load(20)
    injured.load.stop()
    injured.catch_up(
        {
            "PENSTOCK_FAILPOINTS": ",".join(f"{name}=error" for name in names),
            "PENSTOCK_FAILPOINT_DIR": str(failed),
        }
    )
    assert _files(failed) == names


def _files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}
