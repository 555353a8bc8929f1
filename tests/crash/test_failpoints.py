"""Each failpoint kills its process once, under load: nothing is lost, repeated or disordered."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.destination.registry import destination_class, destination_names
from penstock.failpoints import PLACES
from tests.crash.injured_pipeline import InjuredPipeline
from tests.crash.into_files import IntoFiles
from tests.crash.into_kafka import IntoKafka
from tests.crash.into_kinesis import IntoKinesis
from tests.crash.into_postgres import SERVER_SETTINGS, IntoPostgres
from tests.crash.passed_failpoints import is_of_copies, passed_failpoints
from tests.crash.penstock_run import PATIENCE
from tests.fix_pipeline import wait_until
from tests.fix_postgres import FreshServer
from tests.kafka_server import KafkaServer
from tests.kinesis_server import KinesisServer, use_test_credentials

pytestmark = [pytest.mark.slow, pytest.mark.newest_postgres]

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
    "driver.committed": 10,
}
IN_TASKS = ("task.read", "task.written")


def test_every_one_belongs_to_a_run() -> None:
    """Those of copies are in test_copy_crashes.py."""
    text = Path(__file__).read_text()
    own = {name: destination_class(name).failpoints for name in destination_names()}
    for name, points in own.items():
        if not all(map(is_of_copies, points)):
            assert f'passed_failpoints("{name}")' in text
    assert set(PASSES) <= {*PLACES, *(point for points in own.values() for point in points)}


def test_killed_at_each_failpoint_into_files(fresh_server: FreshServer, tmp_path: Path) -> None:
    with IntoFiles(fresh_server(**SERVER_SETTINGS), tmp_path, seed=3) as injured:
        die_at_each(injured, set(passed_failpoints("files")), tmp_path)
        fail_in_tasks(injured, {*IN_TASKS, "files.staged"}, tmp_path)
        injured.check_all()


def test_killed_at_each_failpoint_into_postgres(fresh_server: FreshServer, tmp_path: Path) -> None:
    servers = fresh_server(**SERVER_SETTINGS), fresh_server(**SERVER_SETTINGS)
    with IntoPostgres(*servers, tmp_path, seed=3) as injured:
        die_at_each(injured, set(passed_failpoints("postgres")), tmp_path)
        fail_in_tasks(injured, set(IN_TASKS), tmp_path)
        injured.check_all()


def test_killed_at_each_failpoint_into_kafka(fresh_server: FreshServer, tmp_path: Path) -> None:
    with (
        KafkaServer() as kafka,
        IntoKafka(
            fresh_server(**SERVER_SETTINGS), kafka, tmp_path, seed=3, transactional=True
        ) as injured,
    ):
        # The other way to send hands messages over and hears later.
        names = set(passed_failpoints("kafka")) - {"kafka.handed_over"}
        die_at_each(injured, names, tmp_path)
        fail_in_tasks(injured, set(IN_TASKS), tmp_path)
        injured.check_all()


def test_killed_at_each_failpoint_into_kinesis(fresh_server: FreshServer, tmp_path: Path) -> None:
    use_test_credentials()
    with (
        KinesisServer() as kinesis,
        IntoKinesis(
            fresh_server(**SERVER_SETTINGS), kinesis, tmp_path, seed=3, aggregate=True
        ) as injured,
    ):
        die_at_each(injured, set(passed_failpoints("kinesis")), tmp_path)
        fail_in_tasks(injured, set(IN_TASKS), tmp_path)
        injured.check_all()


def die_at_each(injured: InjuredPipeline, names: set[str], folder: Path) -> None:
    """One pipeline dies at all of them: its driver as often as they end it, and meanwhile capture
    and tasks."""
    fired = folder / "fired"
    fired.mkdir()
    kills = {
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
    injured.start()
    injured.wait_delivering()
    injured.run.stop()


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
