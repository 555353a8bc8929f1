"""`penstock demo`: a shop under load, a pipeline behind it, and a comparison at the end."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import yaml

from penstock.config import load_pipeline
from penstock.demo.compare import TableVerdict, compare, read_key, read_source
from penstock.demo.embedded_postgres import EmbeddedPostgres
from penstock.demo.pipeline_thread import PipelineThread
from penstock.demo.progress import Deliveries, Progress, ProgressMeter
from penstock.demo.shop_load import ShopLoad
from penstock.demo.shop_schema import TABLES, create_shop
from penstock.demo.shop_traffic import ShopTraffic
from penstock.demo.view import Phase, View
from penstock.destination.files import fold
from penstock.errors import PenstockError
from penstock.postgres.connect import connect
from penstock.postgres.preflight import require_passed, run_checks
from penstock.postgres.slot import current_wal_lsn
from penstock.postgres.subscription import ensure_subscription

PIPELINE = "shop"
_SEED = 20_26
_TICK_SECONDS = 0.25
_PATIENCE_SECONDS = 180.0
# The server's data live as long as the demo: nothing would read them after a crash.
_SERVER_SETTINGS = {"fsync": "off", "max_wal_size": "2GB"}


class Interrupted(Exception):
    """Somebody asked the demo to stop before it had a verdict."""


def run_demo(
    seconds: float, *, keep: bool, stopping: Callable[[], bool], view: View
) -> list[TableVerdict]:
    """Run the whole demo; one verdict a table. Raises Interrupted once ``stopping()``.

    When it returns or raises, the processes that it started are gone, and so is its folder unless
    ``keep``.
    """
    demo = _Demo(seconds, stopping, view)
    try:
        with view, ExitStack() as stack:
            folder = stack.enter_context(_work_folder(keep=keep, say=view.say))
            return demo.run(folder, stack)
    except PenstockError:
        # Ctrl-C reaches programs such as initdb as well; what they then say is no news.
        if stopping():
            raise Interrupted from None
        raise


@contextmanager
def _work_folder(*, keep: bool, say: Callable[[str], None]) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        yield folder
    finally:
        if keep:
            say(f"Kept: {folder} (pipeline.yaml, the change log in log/, the result in files/)")
        else:
            shutil.rmtree(folder, ignore_errors=True)


class _Demo:
    def __init__(self, seconds: float, stopping: Callable[[], bool], view: View) -> None:
        self._seconds = seconds
        self._stopping = stopping
        self._view = view
        self._meter = ProgressMeter(TABLES)
        self._progress: Progress | None = None
        self._measuring = False
        self._conn: psycopg.Connection[Any]
        self._load: ShopLoad
        self._pipeline: PipelineThread
        self._deliveries: Deliveries

    def run(self, folder: Path, stack: ExitStack) -> list[TableVerdict]:
        """What ``stack`` holds is ended in reverse order: pipeline, load, then the server."""
        self._show(Phase("starting Postgres"))
        server = stack.enter_context(EmbeddedPostgres(settings=_SERVER_SETTINGS))
        self._stop_if_asked()
        file = _write_pipeline_file(folder, server.create_database("shop"))
        config = load_pipeline(file)
        self._conn = stack.enter_context(
            connect(config.source.url, application_name="penstock demo")
        )
        create_shop(self._conn)
        require_passed(run_checks(config))
        # Existing rows are not copied yet: the pipeline's slot has to be there before the first.
        ensure_subscription(self._conn, config)

        self._deliveries = Deliveries(folder / "files", PIPELINE, TABLES)
        self._load = ShopLoad(config.source.url.reveal(), ShopTraffic(_SEED))
        stack.callback(self._load.stop)
        self._load.start()
        self._pipeline = PipelineThread(config, file, self._deliveries)
        stack.callback(self._pipeline.stop)
        self._pipeline.start()
        self._measuring = True

        self._wait_for("starting Spark", self._has_delivered)
        self._run_load()
        self._catch_up()
        self._pipeline.ask_to_stop()
        self._wait_for("stopping Spark", lambda: not self._pipeline.running)
        self._pipeline.check()
        verdicts = [self._compare(table, folder / "files") for table in TABLES]
        self._show(Phase("compared", f"{len(verdicts)} tables"))
        return verdicts

    def _has_delivered(self) -> bool:
        return bool(self._deliveries.so_far().rows)

    def _run_load(self) -> None:
        self._load.open_doors()
        began = time.monotonic()
        while (passed := time.monotonic() - began) < self._seconds:
            detail = f"{self._load.transactions:,} transactions committed"
            self._tick(Phase("live", f"{passed:.0f} of {self._seconds:g} s, {detail}"))

    def _catch_up(self) -> None:
        """Wait until the destination holds all that the load has written."""
        self._load.stop()
        self._load.check()
        written = current_wal_lsn(self._conn)
        # Something must follow for the pipeline to come past that point at once. A message
        # belongs to no table, so it changes nothing that is compared.
        self._conn.execute("SELECT pg_logical_emit_message(true, 'penstock.demo', 'load ended')")
        self._wait_for(
            "catching up",
            lambda: self._deliveries.so_far().frontier.end_lsn > written,
        )
        # What is shown from here on is where the pipeline ended.
        self._show(Phase("caught up"))
        self._measuring = False

    def _compare(self, table: str, files: Path) -> TableVerdict:
        self._stop_if_asked()
        self._show(Phase("comparing", table))
        delivered = fold(files, PIPELINE, "public", table)
        return compare(
            table, read_key(self._conn, table), read_source(self._conn, table), delivered
        )

    def _wait_for(self, phase: str, done: Callable[[], bool]) -> None:
        frontier = self._deliveries.so_far().frontier
        began = moved = time.monotonic()
        while not done():
            self._tick(Phase(phase, f"{time.monotonic() - began:.0f} s"))
            if frontier != (now := self._deliveries.so_far().frontier):
                frontier, moved = now, time.monotonic()
            elif time.monotonic() - moved > _PATIENCE_SECONDS:
                raise PenstockError(
                    f"The demo got no further than {frontier} within {_PATIENCE_SECONDS:.0f} s "
                    f"({phase}).",
                    remedy="Run it again with --keep, and look at log/capture.json in the folder "
                    "that it names: it says how capture ended.",
                )

    def _tick(self, phase: Phase) -> None:
        """One turn: notice what ended, show where things stand, wait a moment."""
        self._stop_if_asked()
        self._pipeline.check()
        self._load.check()
        for note in self._pipeline.notes():
            self._view.say(note)
        self._show(phase)
        time.sleep(_TICK_SECONDS)

    def _stop_if_asked(self) -> None:
        if self._stopping():
            self._view.say("Stopping … (once more to stop at once)")
            raise Interrupted

    def _show(self, phase: Phase) -> None:
        now = time.monotonic()
        if self._measuring and self._has_delivered():
            self._progress = self._meter.measure(
                now, current_wal_lsn(self._conn), self._deliveries.so_far()
            )
        self._view.show(now, phase, self._progress)


def _write_pipeline_file(folder: Path, url: str) -> Path:
    """A pipeline file as a person would write it."""
    file = folder / "pipeline.yaml"
    pipeline = {
        "name": PIPELINE,
        "source": {"url": url, "tables": {"include": ["public.*"]}, "copy": False},
        "change_log": {"path": "log"},
        "batch": {"max_age": "1s"},
        # As NDJSON every value is Postgres's own text, and so is what it is compared with.
        "destination": {"type": "files", "path": str(folder / "files"), "format": "ndjson"},
        "spark": {"master": "local[2, 4]"},
    }
    file.write_text(yaml.safe_dump(pipeline, sort_keys=False))
    return file
