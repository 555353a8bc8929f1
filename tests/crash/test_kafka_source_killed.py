"""Topics in between, under load: whatever dies, the second database becomes what the first is."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
import pytest

from tests.crash.penstock_run import WITHOUT_SPARK, Part, PenstockRun
from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.kafka_server import KafkaServer
from tests.kafka_source_pipelines import TABLES, TopicsInBetween
from tests.threads_engine import Threads

_PLACES = (
    *("capture.received", "capture.before_publish", "capture.published"),
    *("capture.before_confirm", "driver.before_commit", "driver.committed"),
)


class Load:
    """Writes to the first database until it is stopped."""

    def __init__(self, url: str, seed: int) -> None:
        self._url = url
        self._chance = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.written = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()

    def _run(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as conn:
            while not self._stop.wait(0.01):
                for statement in self._statements():
                    with suppress(psycopg.errors.UniqueViolation):
                        conn.execute(statement.encode())
                self.written += 1

    def _statements(self) -> list[str]:
        low = self._chance.randint(1, 230)
        match self._chance.randrange(6):
            case 0:
                return [f"DELETE FROM items WHERE id BETWEEN {low} AND {low + 5}"]  # noqa: S608
            case 1:
                new = f"generate_series({low}, {low + 8}) n ON CONFLICT DO NOTHING"
                return [f"INSERT INTO items (id, name, big) SELECT n, 'new', 'b' FROM {new}"]  # noqa: S608
            case 2:
                return [f"UPDATE places SET b = 'm{low}' WHERE a = {low % 5} AND b LIKE '%{low}'"]  # noqa: S608
            case 3:
                return [f"INSERT INTO places VALUES ({low % 7}, 'q{low}', 'n')"]  # noqa: S608
            case _:
                return [f"UPDATE items SET name = '{low}' WHERE id BETWEEN {low} AND {low + 9}"]  # noqa: S608


def kill_and_compare(topics: TopicsInBetween, threads: Threads, seed: int, kills: int) -> None:
    chance = random.Random(seed)
    first = PenstockRun(topics.first.file, environment=WITHOUT_SPARK)
    second = PenstockRun(topics.file, environment=WITHOUT_SPARK)
    load = Load(topics.first.url, seed)
    try:
        with load.running():
            for number in range(kills):
                before = load.written
                wait_until(lambda at=before: load.written > at + 40, "something was written")  # type: ignore[misc]
                part: Part | str = chance.choice(("capture", "driver", "broker", "first"))
                if second.exit_code is not None:
                    second = PenstockRun(topics.file, environment=WITHOUT_SPARK)
                if part == "capture":
                    second.kill("capture")
                elif part == "broker":
                    topics.kafka.kill()
                    topics.kafka.start()
                elif part == "driver":
                    second.kill_driver()
                    second.wait_gone()
                    place = _PLACES[(seed + number) % len(_PLACES)]
                    environment = {**WITHOUT_SPARK, "PENSTOCK_FAILPOINTS": f"{place}=kill:3"}
                    second = PenstockRun(topics.file, environment=environment)
                else:
                    first.lose()
                    first = PenstockRun(topics.first.file, environment=WITHOUT_SPARK)
    finally:
        for run in (first, second):
            run.end()
    first.expect_no_bug()
    second.expect_no_bug()
    topics.write(threads)
    topics.read(threads)
    assert topics.expect_same() > 100


@pytest.mark.slow
def test_capture_and_driver_die_at_every_place(
    pipeline: PipelineUnderTest, kafka_server: KafkaServer, target_url: str, threads: Threads
) -> None:
    pipeline.execute(*TABLES)
    topics = TopicsInBetween(pipeline, kafka_server, target_url)
    topics.write(threads)
    fired = pipeline.folder / "fired"
    fired.mkdir()
    environment = {
        **WITHOUT_SPARK,
        "PENSTOCK_FAILPOINTS": ",".join(f"{place}=kill" for place in _PLACES),
        "PENSTOCK_FAILPOINT_DIR": str(fired),
    }
    codes: list[int | None] = []
    while 0 not in codes and len(codes) < len(_PLACES):
        run = PenstockRun(topics.file, "--until-caught-up", environment=environment)
        try:
            wait_until(lambda run=run: run.exit_code is not None, "it has ended")  # type: ignore[misc]
            run.expect_no_bug()
            codes.append(run.exit_code)
        finally:
            run.end()
    assert codes == [-9, -9, 0]
    assert {file.name for file in fired.iterdir()} == set(_PLACES)
    assert topics.expect_same() == 250


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.parametrize("seed", range(10))
def test_everything_is_killed_under_load(
    pipeline: PipelineUnderTest, target_url: str, threads: Threads, seed: int
) -> None:
    pipeline.execute(*TABLES)
    with KafkaServer() as kafka:
        topics = TopicsInBetween(
            pipeline, kafka, target_url, partitions=1 + seed % 3, transactional=seed % 2 == 1
        )
        topics.write(threads)
        kill_and_compare(topics, threads, seed, kills=6)
