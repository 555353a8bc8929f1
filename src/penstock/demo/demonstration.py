"""`penstock demo`: a shop under load, its copy in a second database, and a verdict."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import yaml

from penstock.config import load_pipeline
from penstock.demo.pipeline_thread import PipelineThread
from penstock.demo.progress import DemoProgress, ProgressMeter
from penstock.demo.shop_load import ShopLoad
from penstock.demo.shop_reviews import FILLED, REVIEWS, ReviewTraffic, add_reviews
from penstock.demo.shop_schema import TABLES, create_shop
from penstock.demo.shop_stock import SHOP, fill_shop
from penstock.demo.shop_traffic import ShopTraffic
from penstock.demo.target_reader import Invariant, TargetReader
from penstock.demo.verification import Verification
from penstock.demo.view import Phase, View
from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.errors import PenstockError
from penstock.model.lsn import NOTHING, Frontier
from penstock.source.postgres.preflight.all_checks import require_passed
from penstock.source.postgres.subscription.slot import current_wal_lsn
from penstock.spark.preflight import run_all_checks

PIPELINE = "shop"
_SEED = 20_26
_TICK_SECONDS = 0.25
_PATIENCE_SECONDS = 180.0
# The servers' data live as long as the demo: nothing would read them after a crash.
_SERVER_SETTINGS = {"fsync": "off", "max_wal_size": "2GB"}


class Interrupted(Exception):
    """Somebody asked the demo to stop before it had a verdict."""


@dataclass(frozen=True)
class Verdict:
    """What `penstock verify` says, and what a reader of the destination saw all the time."""

    equal: bool
    report: tuple[str, ...]
    invariant: Invariant


def run_demo(
    seconds: float, *, keep: bool, stopping: Callable[[], bool], view: View, page: bool = False
) -> Verdict:
    """Run the whole demo, with ``page`` beside a web page. Raises Interrupted once ``stopping()``.

    When it returns or raises, the processes that it started are gone, and so is its folder unless
    ``keep``.
    """
    demo = _Demo(seconds, stopping, view, page=page)
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
            say(f"Kept: {folder} (pipeline.yaml, the change log in log/, the report in verify.txt)")
        else:
            shutil.rmtree(folder, ignore_errors=True)


class _Demo:
    def __init__(
        self, seconds: float, stopping: Callable[[], bool], view: View, *, page: bool
    ) -> None:
        self._seconds = seconds
        self._page = page
        self._stopping = stopping
        self._view = view
        self._meter = ProgressMeter()
        self._progress: DemoProgress | None = None
        self._measuring = False
        self._conn: psycopg.Connection[Any]
        self._traffic: ShopTraffic
        self._load: ShopLoad
        self._pipeline: PipelineThread
        self._reader: TargetReader

    def run(self, folder: Path, stack: ExitStack) -> Verdict:
        """What ``stack`` holds is ended in reverse order: the servers last."""
        self._show(Phase("starting Postgres", "the source"))
        source = stack.enter_context(EmbeddedPostgres(settings=_SERVER_SETTINGS))
        self._stop_if_asked()
        self._show(Phase("starting Postgres", "the destination"))
        target = stack.enter_context(EmbeddedPostgres(settings=_SERVER_SETTINGS))
        self._stop_if_asked()
        target_url = target.create_database("warehouse")
        file = _write_pipeline_file(folder, source.create_database("shop"), target_url)
        config = load_pipeline(file)
        # The shop's own session, with the search path of its role.
        self._conn = stack.enter_context(
            psycopg.connect(
                config.source.url.reveal(), autocommit=True, application_name="penstock demo"
            )
        )
        self._show(Phase("filling the shop", f"{SHOP.rows:,} rows in {len(TABLES)} tables"))
        create_shop(self._conn)
        fill_shop(self._conn, SHOP)
        self._stop_if_asked()
        require_passed(run_all_checks(config))

        self._reader = TargetReader(target_url, PIPELINE)
        stack.callback(self._reader.stop)
        self._reader.start()
        self._traffic = ShopTraffic(_SEED, SHOP)
        self._load = ShopLoad(config.source.url.reveal(), self._traffic)
        stack.callback(self._load.stop)
        self._pipeline = PipelineThread(config, file)
        if self._page:
            self._show_page(file, folder, stack)
        stack.callback(self._pipeline.stop)
        self._pipeline.start()
        self._measuring = True

        self._wait_for("starting Spark", lambda: bool(self._pipeline.copies))
        # From now on, so that what is being copied changes meanwhile.
        self._load.start()
        self._wait_for("copying", lambda: self._follows(*TABLES))
        self._reader.judge()
        self._load.be_busy()
        self._traffic.begin_truncating()
        self._run_load()
        equal, report = self._verify(file, folder, stack)
        self._end_pipeline()
        return Verdict(equal, report, self._reader.invariant)

    def _show_page(self, file: Path, folder: Path, stack: ExitStack) -> None:
        # Loaded here: the demo needs the extra `serve` for this alone.
        from penstock.demo.page import DemoPage

        page = DemoPage(file, folder, self._view.say)
        stack.callback(page.stop)
        page.follow(self._pipeline, PIPELINE)
        page.start()

    def _follows(self, *tables: str) -> bool:
        copies = self._pipeline.copies
        return all(table in copies and copies[table].phase == "ready" for table in tables)

    def _state(self) -> object:
        """It changes as long as anything moves."""
        copies = self._pipeline.copies.values()
        return self._frontier(), [(copy.phase, copy.chunks_done) for copy in copies]

    def _frontier(self) -> Frontier:
        look = self._reader.latest
        return look.frontier if look else NOTHING

    def _run_load(self) -> None:
        """The load goes on until its time is over and the table that came later is followed."""
        began = time.monotonic()
        added = False
        while (passed := time.monotonic() - began) < self._seconds:
            detail = f"{self._load.transactions:,} transactions committed"
            self._tick(Phase("live", f"{passed:.0f} of {self._seconds:g} s, {detail}"))
            if not added and passed > self._seconds / 4:
                added = True
                self._add_table()
        self._wait_for(f"waiting for {REVIEWS}", lambda: self._follows(REVIEWS))
        self._load.stop()
        self._load.check()

    def _add_table(self) -> None:
        add_reviews(self._conn)
        self._traffic.join(ReviewTraffic(_SEED).kinds())
        self._view.say(
            f"The shop has a new table, {REVIEWS}, with {FILLED:,} rows. The pipeline finds it, "
            "copies it beside the stream and follows it."
        )

    def _verify(self, file: Path, folder: Path, stack: ExitStack) -> tuple[bool, tuple[str, ...]]:
        """Compare both sides at one position, while the pipeline runs.

        The load has ended: a snapshot that is older than a TRUNCATE sees the table empty, and this
        load has one a second or so.
        """
        verification = Verification(file, folder, _PATIENCE_SECONDS)
        stack.callback(verification.stop)
        verification.start()
        began = time.monotonic()
        while verification.running:
            self._tick(Phase("verifying", f"{time.monotonic() - began:.0f} s"))
        # What is shown from here on is where the pipeline was when it was verified.
        self._measuring = False
        return verification.result()

    def _end_pipeline(self) -> None:
        self._pipeline.ask_to_stop()
        self._wait_for("stopping Spark", lambda: not self._pipeline.running)
        self._pipeline.check()
        self._reader.stop()
        self._reader.check()

    def _wait_for(self, phase: str, done: Callable[[], bool]) -> None:
        state = self._state()
        began = moved = time.monotonic()
        while not done():
            self._tick(Phase(phase, f"{time.monotonic() - began:.0f} s"))
            if state != (now := self._state()):
                state, moved = now, time.monotonic()
            elif time.monotonic() - moved > _PATIENCE_SECONDS:
                raise PenstockError(
                    f"The demo got no further than {self._frontier()} within "
                    f"{_PATIENCE_SECONDS:.0f} s ({phase}).",
                    remedy="Run it again with --keep, and look at log/capture.json in the folder "
                    "that it names: it says how capture ended.",
                )

    def _tick(self, phase: Phase) -> None:
        """One turn: notice what ended, show where things stand, wait a moment."""
        self._stop_if_asked()
        self._pipeline.check()
        self._load.check()
        self._reader.check()
        for note in self._pipeline.notes():
            # The view shows what tables are at; of the one that is added, every step is told.
            if " -> " not in note or REVIEWS in note:
                self._view.say(note)
        self._show(phase)
        time.sleep(_TICK_SECONDS)

    def _stop_if_asked(self) -> None:
        if self._stopping():
            self._view.say("Stopping … (once more to stop at once)")
            raise Interrupted

    def _show(self, phase: Phase) -> None:
        now = time.monotonic()
        if self._measuring and self._pipeline.copies and (look := self._reader.latest):
            self._progress = self._meter.measure(
                now,
                current_wal_lsn(self._conn),
                look,
                self._reader.invariant,
                self._pipeline.copies,
            )
        self._view.show(now, phase, self._progress)


def _write_pipeline_file(folder: Path, source: str, target: str) -> Path:
    """A pipeline file as a person would write it."""
    file = folder / "pipeline.yaml"
    pipeline = {
        "name": PIPELINE,
        "source": {
            "url": source,
            "tables": {"include": ["public.*"], "reconcile": "2s"},
            # Small, so that the progress of small tables is seen.
            "copy": {"chunk_bytes": "1MiB"},
        },
        "change_log": {"path": "log"},
        "destination": {"type": "postgres", "url": target},
        "spark": {"master": "local[2, 4]"},
    }
    file.write_text(yaml.safe_dump(pipeline, sort_keys=False))
    return file
