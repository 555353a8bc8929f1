"""A source with rows, an empty target, and a pipeline between them that copies."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.model.lsn import Frontier
from penstock.store import CopyProgress, Store, pipeline_store
from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.pipelines import logged, pipeline_on
from tests.threads_engine import Threads

FILL = (
    "CREATE TABLE {0} (id bigint PRIMARY KEY, note text, body text)",
    "ALTER TABLE {0} ALTER body SET STORAGE EXTERNAL",
    "INSERT INTO {0} SELECT n, 'note', repeat(n::text, 900) FROM generate_series(1, 4000) n",
)
"""Some megabytes; the body is TOASTed, so that updates of the note do not send it."""

WRITES = (
    # Longer than before: the row moves to another block.
    "UPDATE {} SET note = note || 'yz' WHERE id BETWEEN %(low)s AND %(low)s + 9",
    "UPDATE {} SET id = id + %(other)s WHERE id = %(low)s",
    "DELETE FROM {} WHERE id BETWEEN %(low)s AND %(low)s + 2",
    "INSERT INTO {} VALUES (%(low)s, 'again', repeat(%(low)s::text, 900)) ON CONFLICT DO NOTHING",
)


class CopiedTables:
    """``said`` is what the pipeline told."""

    def __init__(
        self, pipeline: PipelineUnderTest, target_url: str, tasks: SparkSession | Threads
    ) -> None:
        self.pipeline = pipeline
        self.target_url = target_url
        self.said: list[str] = []
        self._tasks = tasks

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

    def fill(self, table: str) -> None:
        self.pipeline.execute(*(statement.format(table) for statement in FILL))

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
        runner = pipeline_on(self._tasks, self.pipeline.config, self.pipeline.file)
        with logged(self.said.append):
            runner.run(lambda: False, until_caught_up=True)

    @contextmanager
    def running(self) -> Iterator[Future[Frontier]]:
        stop = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            runner = pipeline_on(self._tasks, self.pipeline.config, self.pipeline.file)
            with logged(self.said.append):
                future = pool.submit(runner.run, stop.is_set)
                try:
                    yield future
                finally:
                    stop.set()
                    wait_for([future])

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
        with self.store() as store:
            return {
                schema.qualified_name: state.phase
                for oid, state in store.get_table_states().items()
                if (schema := store.get_table_schema(oid)) is not None
            }

    def copy_of(self, table: str) -> CopyProgress | None:
        with self.store() as store:
            oid = store.find_table("public", table)
            return None if oid is None else store.get_copy(oid)

    def chunks_done(self, table: str) -> int:
        copy = self.copy_of(table)
        return 0 if copy is None else len(copy.done)

    @contextmanager
    def store(self) -> Iterator[Store]:
        """Where the pipeline keeps what it knows of its tables, as it is now."""
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


class Writers:
    """Sessions that write to one table all the time: new rows, moved rows, other keys, deletes."""

    def __init__(self, url: str, table: str = "items", *, seed: int = 0) -> None:
        """Who writes to the same rows a second time takes another ``seed``."""
        self._seed = seed
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
        chance = random.Random(number + self._seed)
        # Keys that no other writer takes, nor this one twice.
        others = itertools.count(100_000 + (2 * self._seed + number) * 10**7, 1000)
        with psycopg.connect(self._url, autocommit=True) as conn:
            while not self._stop.wait(0.01):
                low = chance.randrange(4000)
                parameters = {"low": low, "other": next(others)}
                statement = sql.SQL(chance.choice(WRITES)).format(sql.Identifier(self._table))
                conn.execute(statement, parameters)
                self.written += 1
