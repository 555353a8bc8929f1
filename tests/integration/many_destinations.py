"""A source, one change log, and several destinations, whose rows are compared one by one."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import yaml
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.config import load_deliveries, load_pipeline
from penstock.config.models import PipelineConfig
from penstock.destination import memory_tables
from penstock.destination.files.folding import fold
from penstock.metrics.pipeline_metrics import Metrics
from penstock.model.lsn import Frontier
from penstock.pipeline.run.pipeline import Observers, Pipeline
from penstock.store import pipeline_store
from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.folded_compare import read_source
from tests.pipelines import logged
from tests.threads_engine import ThreadsEngine

Rows = Counter[tuple[Any, ...]]


class ManyDestinations:
    """``said`` is what the drivers told."""

    def __init__(self, pipeline: PipelineUnderTest, target_url: str) -> None:
        self.pipeline = pipeline
        self.target_url = target_url
        self.said: list[str] = []
        self.more: dict[str, dict[str, Any]] = {}
        """Destinations of a test's own."""
        self.configure("warehouse", "lake", "tables")

    @property
    def kinds(self) -> dict[str, dict[str, Any]]:
        """What destinations of these names are."""
        folder = self.pipeline.folder
        return {
            "warehouse": {"type": "postgres", "url": self.target_url},
            "lake": {"type": "files", "path": str(folder / "lake"), "format": "ndjson"},
            "tables": {"type": "memory-tables", "path": str(folder / "tables")},
            "nothing": {"type": "discard"},
            **self.more,
        }

    def configure(
        self, *names: str, own: dict[str, dict[str, Any]] | None = None, **change_log: Any
    ) -> None:
        """Write the pipeline file. ``own`` are more keys of single destinations."""
        self.pipeline.configure(copy=True, **change_log)
        content = yaml.safe_load(self.pipeline.file.read_text())
        del content["destination"]
        wanted = {name: {**self.kinds[name], **(own or {}).get(name, {})} for name in names}
        content["destinations"] = wanted
        self.pipeline.file.write_text(yaml.safe_dump(content, sort_keys=False))

    def view(self, name: str) -> PipelineConfig:
        return load_pipeline(self.pipeline.file, only=name)

    def views(self) -> tuple[PipelineConfig, ...]:
        return load_deliveries(self.pipeline.file)

    # -- what runs -------------------------------------------------------------------------------

    @contextmanager
    def running(self, *names: str) -> Iterator[dict[str, Future[Frontier]]]:
        """Drivers of these destinations, in threads, begun one after another. Capture is the
        test's.
        """
        stop = threading.Event()
        futures: dict[str, Future[Frontier]] = {}
        with ThreadPoolExecutor(len(names)) as pool, logged(self.said.append):
            try:
                for name in names:
                    self._start(pool, futures, name, stop)
                yield futures
            finally:
                stop.set()
                wait_for(futures.values())
        for future in futures.values():
            future.result()

    def _start(
        self,
        pool: ThreadPoolExecutor,
        futures: dict[str, Future[Frontier]],
        name: str,
        stop: threading.Event,
    ) -> None:
        view = self.view(name)
        metrics = Metrics(view.name, name)
        driver = Pipeline(
            view,
            self.pipeline.file,
            ThreadsEngine,
            captures=False,
            observers=Observers(metrics=metrics),
        )
        future = futures[name] = pool.submit(driver.run, stop.is_set)
        not_begun = "the stream has not begun yet"
        wait_until(
            lambda: future.done() or not_begun not in metrics.is_ready().body["reasons"],
            f"the stream of {name} has begun",
        )

    def capture(self) -> None:
        """Start it, once publication and slot are there; it ends with the test."""
        self.pipeline.subscribe()
        self.pipeline.start_capture(supervised=False)

    # -- what is where ---------------------------------------------------------------------------

    def source(self, table: str) -> Rows:
        with psycopg.connect(self.pipeline.url) as conn:
            return read_source(conn, table).rows

    def rows(self, name: str, table: str) -> Rows:
        view = self.view(name)
        if name == "lake":
            return fold(view.destination_options["path"], view.delivery, "public", table).rows
        if name == "tables":
            folder = Path(view.destination_options["path"])
            with suppress(ValueError, sqlite3.Error):  # the table is not there yet
                found = memory_tables.read_rows(folder, view.delivery, "public", table)
                return Counter(tuple(row.values()) for row in found)
            return Counter()
        try:
            with psycopg.connect(self.target_url) as conn:
                return read_source(conn, table).rows
        except psycopg.errors.UndefinedTable:
            return Counter()

    def is_equal(self, name: str, *tables: str) -> bool:
        return all(self.rows(name, table) == self.source(table) for table in tables)

    def wait_equal(
        self, futures: dict[str, Future[Frontier]], names: tuple[str, ...], *tables: str
    ) -> None:
        for name in names:
            self.wait(futures, partial(self.is_equal, name, *tables), f"{name} is equal")

    def wait(
        self, futures: dict[str, Future[Frontier]], condition: Callable[[], bool], what: str
    ) -> None:
        def met() -> bool:
            for future in futures.values():
                if future.done():
                    future.result()
            return condition()

        try:
            wait_until(met, what)
        except BaseException:
            print(*self.said, sep="\n")
            raise

    def frontier(self, name: str) -> Frontier:
        found = self.pipeline.log.reader(self.view(name).delivery)
        assert found is not None
        return found.frontier

    def is_beyond(self, name: str, lsn: int) -> bool:
        return self.frontier(name).end_lsn > lsn

    def states(self, name: str) -> dict[str, tuple[str, Any]]:
        """Each table's phase and since when it has it."""
        with pipeline_store(self.view(name)) as store:
            if not store.exists():
                return {}
            store.open()
            return {
                schema.name: (state.phase, store.get_state_since(oid))
                for oid, state in store.get_table_states().items()
                if (schema := store.get_table_schema(oid)) is not None
            }

    def are_ready(self, *names: str) -> bool:
        found = [self.states(name) for name in names]
        return all(
            states and all(phase == "ready" for phase, _ in states.values()) for states in found
        )

    def command(self, *arguments: str, code: int = 0) -> str:
        """A command on the file, which follows the command's name."""
        words = [word if word != "FILE" else str(self.pipeline.file) for word in arguments]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == code, (result.output, result.exception)
        return result.output
