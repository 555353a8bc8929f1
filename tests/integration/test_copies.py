"""Rows that are there before the stream are copied, and changes meanwhile are not lost."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.lsn import Frontier
from penstock.pipeline.run import Pipeline
from penstock.store import CopyProgress, Store, pipeline_store
from tests.fix_pipeline import PipelineUnderTest, wait_until

pytestmark = pytest.mark.newest_postgres


class Copied:
    """A source with rows, an empty target, and a pipeline between them."""

    def __init__(self, pipeline: PipelineUnderTest, target_url: str, spark: SparkSession) -> None:
        self.pipeline = pipeline
        self.target_url = target_url
        self.said: list[str] = []
        self._spark = spark

    def configure(
        self,
        *,
        tables: dict[str, Any] | None = None,
        exclude: tuple[str, ...] = (),
        **copy: Any,
    ) -> None:
        self.pipeline.configure(
            copy=copy or True,
            tables=tables,
            exclude=exclude,
            destination={"type": "postgres", "url": self.target_url},
        )

    def rows(self, url: str, table: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(url) as conn:
            query = f"SELECT t::text FROM {table} t ORDER BY 1"  # noqa: S608
            return conn.execute(query.encode()).fetchall()

    def is_equal(self, *tables: str) -> bool:
        return all(
            self.rows(self.pipeline.url, table) == self.rows(self.target_url, table)
            for table in tables
        )

    def run_until_caught_up(self) -> None:
        runner = Pipeline(self.pipeline.config, self.pipeline.file, say=self.said.append)
        runner.run(lambda: False, until_caught_up=True, spark=self._spark)

    @contextmanager
    def running(self) -> Iterator[Future[Frontier]]:
        stop = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            runner = Pipeline(self.pipeline.config, self.pipeline.file, say=self.said.append)
            future = pool.submit(runner.run, stop.is_set, spark=self._spark)
            try:
                yield future
            finally:
                stop.set()

    def wait(self, future: Future[Frontier], condition: Callable[[], bool], what: str) -> None:
        def met() -> bool:
            if future.done():
                future.result()
            return condition()

        try:
            wait_until(met, what)
        except pytest.fail.Exception:
            print(*self.said, self.phases(), sep="\n")
            raise

    def phases(self) -> dict[str, str]:
        with self._store() as store:
            return {
                schema.qualified_name: state.phase
                for oid, state in store.get_table_states().items()
                if (schema := store.get_table_schema(oid)) is not None
            }

    def copy_of(self, table: str) -> CopyProgress | None:
        with self._store() as store:
            oid = store.find_table("public", table)
            return None if oid is None else store.get_copy(oid)

    @contextmanager
    def _store(self) -> Iterator[Store]:
        with pipeline_store(self.pipeline.config) as store:
            if store.exists():
                store.load_table_states()
                store.load_table_schemas()
                store.load_copies()
            yield store

    def command(self, *arguments: str) -> str:
        result = CliRunner().invoke(app, [*arguments])
        assert result.exit_code == 0, result.output
        return result.output


@pytest.fixture
def copied(pipeline: PipelineUnderTest, target_url: str, spark: SparkSession) -> Copied:
    return Copied(pipeline, target_url, spark)


def test_tables_with_rows_come_whole(copied: Copied) -> None:
    copied.pipeline.execute(
        "CREATE TABLE a (id int PRIMARY KEY, note text)",
        "INSERT INTO a SELECT n, repeat('x', n % 50) FROM generate_series(1, 3000) n",
        "CREATE TABLE loose (a int, b text)",
        "ALTER TABLE loose REPLICA IDENTITY FULL",
        "INSERT INTO loose SELECT n % 7, 'twice' FROM generate_series(1, 50) n",
        "CREATE TABLE empty (id int PRIMARY KEY)",
        "CREATE TABLE parted (id int, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
        "CREATE TABLE p1 PARTITION OF parted FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')",
        "CREATE TABLE p2 PARTITION OF parted FOR VALUES FROM ('2026-02-01') TO ('2026-03-01')",
        "INSERT INTO parted SELECT n, date '2026-01-01' + n FROM generate_series(0, 50) n",
    )
    # Some chunks a table.
    copied.configure(chunk_bytes="32KiB")
    copied.run_until_caught_up()
    assert copied.is_equal("a", "loose", "empty", "parted")
    assert set(copied.phases().values()) == {"ready"}
    copied.pipeline.execute(
        "UPDATE a SET note = 'new' WHERE id < 10",
        "DELETE FROM loose WHERE ctid IN (SELECT ctid FROM loose WHERE a = 3 LIMIT 1)",
        "INSERT INTO empty VALUES (1)",
    )
    assert any("init -> data_sync" in text for text in copied.said)
    copied.said.clear()
    copied.run_until_caught_up()
    assert copied.is_equal("a", "loose", "empty", "parted")
    assert not any("data_sync" in text for text in copied.said)


class Writers:
    """Sessions that write to one table all the time: new rows, moved rows, other keys, deletes."""

    def __init__(self, url: str, table: str = "items") -> None:
        self._url = url
        self._table = table
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(n,)) for n in range(2)]
        self.written = 0

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _write(self, number: int) -> None:
        chance = random.Random(number)
        with psycopg.connect(self._url, autocommit=True) as conn:
            while not self._stop.wait(0.01):
                low = chance.randrange(4000)
                parameters = {"low": low, "other": 100_000 + chance.randrange(10**8)}
                statement = sql.SQL(chance.choice(WRITES)).format(sql.Identifier(self._table))
                conn.execute(statement, parameters)
                self.written += 1


WRITES = (
    # Longer than before: the row moves to another block.
    "UPDATE {} SET note = note || 'yz' WHERE id BETWEEN %(low)s AND %(low)s + 9",
    "UPDATE {} SET id = id + %(other)s WHERE id = %(low)s",
    "DELETE FROM {} WHERE id BETWEEN %(low)s AND %(low)s + 2",
    "INSERT INTO {} VALUES (%(low)s, 'again', repeat(%(low)s::text, 900)) ON CONFLICT DO NOTHING",
)
FILL = (
    "CREATE TABLE {0} (id bigint PRIMARY KEY, note text, body text)",
    "ALTER TABLE {0} ALTER body SET STORAGE EXTERNAL",
    "INSERT INTO {0} SELECT n, 'note', repeat(n::text, 900) FROM generate_series(1, 4000) n",
)


def fill(copied: Copied, table: str) -> None:
    copied.pipeline.execute(*(statement.format(table) for statement in FILL))


def test_nothing_is_lost_or_doubled_under_writes(copied: Copied) -> None:
    fill(copied, "items")
    copied.configure(chunk_bytes="512KiB")
    with Writers(copied.pipeline.url) as writers, copied.running() as future:
        copied.wait(future, lambda: "ready" in copied.phases().values(), "the table is ready")
        seen = writers.written
        copied.wait(future, lambda: writers.written > seen + 20, "some more is written")
    copied.run_until_caught_up()
    assert copied.is_equal("items")


def test_tables_come_and_go_while_it_runs(copied: Copied) -> None:
    fill(copied, "items")
    copied.configure(tables={"reconcile": "1s", "on_remove": "drop"}, exclude=("public.not_*",))
    file = str(copied.pipeline.file)
    with Writers(copied.pipeline.url), copied.running() as future:
        copied.wait(future, lambda: copied.phases() == {"public.items": "ready"}, "it is ready")
        fill(copied, "later")
        copied.pipeline.execute("CREATE TABLE not_this (id int PRIMARY KEY)")
        with Writers(copied.pipeline.url, "later"):
            both = {"public.items": "ready", "public.later": "ready"}
            copied.wait(future, lambda: copied.phases() == both, "the new table is ready")
        copied.command("tables", "add", file, "not_this")
        copied.wait(
            future, lambda: copied.phases().get("public.not_this") == "ready", "it was asked for"
        )
        copied.command("tables", "resync", file, "later")
        copied.wait(
            future, lambda: copied.phases()["public.later"] != "ready", "it is copied again"
        )
        copied.wait(future, lambda: copied.phases()["public.later"] == "ready", "it was copied")
        copied.command("tables", "remove", file, "not_this")
        copied.wait(future, lambda: copied.phases() == both, "it is followed no longer")
    copied.run_until_caught_up()
    assert copied.is_equal("items", "later")
    with psycopg.connect(copied.target_url) as conn:
        assert conn.execute("SELECT to_regclass('not_this')").fetchone() == (None,)


def test_a_copy_rests_and_goes_on(copied: Copied) -> None:
    fill(copied, "items")
    copied.configure(chunk_bytes="256KiB", parallelism=1)
    file = str(copied.pipeline.file)

    def chunks() -> int:
        copy = copied.copy_of("items")
        return 0 if copy is None else len(copy.done)

    with copied.running() as future:
        copied.wait(future, lambda: chunks() > 0, "some chunks are copied")
        copied.command("tables", "pause", file, "items")
        assert "paused" in copied.command("tables", "list", file)
        assert copied.phases() == {"public.items": "data_sync"}
        copied.command("tables", "resume", file, "items")
        copied.wait(future, lambda: copied.phases() == {"public.items": "ready"}, "it is ready")
        copied.command("tables", "resync", file, "items")
        copied.wait(future, lambda: copied.phases() != {"public.items": "ready"}, "again")
        copied.command("tables", "cancel", file, "items")
        copied.wait(future, lambda: copied.phases() == {"public.items": "init"}, "it is given up")
