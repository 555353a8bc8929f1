"""Topics in between, under load: whatever dies, the second database becomes what the first is."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psycopg
import pytest

from penstock.embedded.postgres import EmbeddedPostgres
from tests.crash.penstock_run import WITHOUT_SPARK, Part, PenstockRun
from tests.fix_pipeline import MakePipeline, PipelineUnderTest, wait_until
from tests.fix_postgres import FreshServer
from tests.kafka_server import KafkaServer
from tests.kafka_source_pipelines import TABLES, TopicsInBetween
from tests.threads_engine import Threads

_PLACES = (
    *("capture.received", "capture.before_publish", "capture.published"),
    *("capture.before_confirm", "driver.before_commit", "driver.committed"),
)


_LOST = (psycopg.OperationalError, psycopg.InterfaceError)
_MOST_COLUMNS = 4


class Load:
    """Writes to the first database until it is stopped, and goes on when that is back. Its columns
    come and go; ``truncates``: its rows do, too.
    """

    def __init__(self, url: str, seed: int, *, truncates: bool) -> None:
        self._url = url
        self._truncates = truncates
        self._columns = 0
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
        while not self._stop.wait(0.01):
            with suppress(*_LOST), psycopg.connect(self._url, autocommit=True) as conn:
                self._write(conn)

    def _write(self, conn: psycopg.Connection) -> None:
        while not self._stop.wait(0.01):
            for statement in self._statements():
                with suppress(psycopg.errors.UniqueViolation):
                    conn.execute(statement.encode())
            self.written += 1

    def _statements(self) -> list[str]:
        low = self._chance.randint(1, 230)
        if self.written % 60 == 59 and self._columns < _MOST_COLUMNS:
            return self._next_column()
        if self._truncates and self.written % 70 == 69:
            return ["TRUNCATE places"]
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

    def _next_column(self) -> list[str]:
        """Statement by statement: rows under either set of columns stand side by side."""
        self._columns += 1
        name = f"extra_{self._columns}"
        last = f"ALTER TABLE items DROP COLUMN IF EXISTS extra_{self._columns - 1}"
        return [
            f"ALTER TABLE items ADD COLUMN IF NOT EXISTS {name} text",
            f"UPDATE items SET {name} = 'of ' || id WHERE id % 2 = 0",  # noqa: S608
            last,
        ]


@dataclass(frozen=True)
class Databases:
    """The servers that the first pipeline reads, and the second writes to."""

    source: EmbeddedPostgres
    target: EmbeddedPostgres


def kill_and_compare(
    topics: TopicsInBetween, threads: Threads, databases: Databases, load: Load, seed: int
) -> None:
    chance = random.Random(seed)
    parts: list[Part | str] = [*("capture", "driver", "broker", "first", "source", "target")]
    chance.shuffle(parts)
    first = PenstockRun(topics.first.file, environment=WITHOUT_SPARK)
    second = PenstockRun(topics.file, environment=WITHOUT_SPARK)
    try:
        with load.running():
            for number, part in enumerate(parts):
                before = load.written
                wait_until(lambda at=before: load.written > at + 40, "something was written")  # type: ignore[misc]
                if first.exit_code is not None:
                    first = PenstockRun(topics.first.file, environment=WITHOUT_SPARK)
                if second.exit_code is not None:
                    second = PenstockRun(topics.file, environment=WITHOUT_SPARK)
                if part == "capture":
                    second.kill("capture")
                elif part == "broker":
                    topics.kafka.kill()
                    topics.kafka.start()
                elif part in ("source", "target"):
                    server: EmbeddedPostgres = getattr(databases, part)
                    server.kill()
                    server.start()
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
    fresh_server: FreshServer, make_pipeline: MakePipeline, threads: Threads, seed: int
) -> None:
    databases = Databases(fresh_server(), fresh_server())
    pipeline = make_pipeline(databases.source.create_database("shop"))
    pipeline.execute(*TABLES)
    # A TRUNCATE is in order with rows where a table is one lane.
    truncates = seed % 4 < 2
    lanes = {"by": "table" if truncates else "key", "count": 2}
    with KafkaServer() as kafka:
        topics = TopicsInBetween(
            pipeline,
            kafka,
            databases.target.create_database("back"),
            partitions=1 + seed % 3,
            transactional=seed % 2 == 1,
            lanes=lanes,
        )
        topics.write(threads)
        load = Load(pipeline.url, seed, truncates=truncates)
        kill_and_compare(topics, threads, databases, load, seed)
