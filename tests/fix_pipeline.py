"""A pipeline of a test's own: its file, its capture process, and what its change log holds."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import psycopg
import pytest
import yaml

from penstock.changelog.changelog import ChangeLog
from penstock.config import load_deliveries
from penstock.config.models import PipelineConfig
from penstock.model.lsn import Frontier, parse_lsn
from penstock.source.capture.stop import Stop
from penstock.source.contract import Subscription
from penstock.source.postgres.capture.process import run_capture
from penstock.source.postgres.subscription.slot import SlotState, slot_state
from penstock.source.postgres.subscription.subscription import (
    ensure_subscription,
    find_subscription,
)
from tests.application_session import connect
from tests.logged_changes import MESSAGES, SENTINEL, LoggedChange, logged_changes

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str, timeout: float = 180.0) -> T:
    """What ``condition`` returns, once that is true; else the test fails and says ``what``."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"waited {timeout:g} s in vain until {what}; at the end: {value!r}")
        time.sleep(0.02)


class _StopByTest(Stop):
    def __init__(self) -> None:
        super().__init__(supervised=False)

    def ask(self) -> None:
        self._set()


class CaptureProcess:
    """`penstock capture FILE`, by default as `penstock run` starts it: it ends with its stdin."""

    def __init__(
        self, file: Path, log: ChangeLog, environment: dict[str, str], *, supervised: bool
    ) -> None:
        self._log = log
        self._errors = file.with_suffix(f".{uuid.uuid4().hex[:6]}.stderr")
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "penstock", "capture", str(file)),
                    *(["--supervised"] if supervised else []),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    def report(self) -> dict[str, Any]:
        """What this very process last said of itself; empty before it said anything."""
        report = self._log.capture_report() or {}
        return report if report.get("pid") == self.pid else {}

    def wait_streaming(self) -> None:
        wait_until(self._streams, "capture streams")

    def wait(self, timeout: float = 180.0) -> int:
        """Its exit code, once it has ended by itself."""
        return self._process.wait(timeout)

    def stop(self) -> int:
        """End its standard input, as a supervisor that stops or dies does; its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(180)

    def kill(self) -> None:
        """SIGKILL; no effect where it has ended."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _streams(self) -> bool:
        self.expect_running()
        return self.report().get("state") in ("streaming", "paused")

    def expect_running(self) -> None:
        if not self.running:
            pytest.fail(f"capture ended with {self._process.returncode}: {self.errors}")


class PipelineUnderTest:
    """One pipeline against one database, with everything it keeps below one folder."""

    def __init__(self, url: str, folder: Path) -> None:
        # Slots belong to the whole server, so two tests must not share a pipeline's name.
        self.name = f"t_{uuid.uuid4().hex[:12]}"
        self.url = url
        self.folder = folder / self.name
        self.folder.mkdir()
        self.file = self.folder / "pipeline.yaml"
        self.log = ChangeLog(str(self.folder / "log"))
        self._captures: list[CaptureProcess] = []
        self.configure()

    def configure(
        self,
        *,
        include: tuple[str, ...] = ("*.*",),
        exclude: tuple[str, ...] = (),
        destination: dict[str, Any] | None = None,
        batch: dict[str, Any] | None = None,
        copy: bool | dict[str, Any] = False,
        tables: dict[str, Any] | None = None,
        **change_log: Any,
    ) -> None:
        """Write the pipeline file. ``tables`` are more of source.tables."""
        content = {
            "name": self.name,
            "source": {
                "url": self.url,
                "tables": {"include": list(include), "exclude": list(exclude), **(tables or {})},
                "copy": copy,
                "messages": list(MESSAGES),
            },
            "change_log": {"path": self.log.root.path, **change_log},
            "destination": destination or {"type": "discard"},
            "batch": batch or {},
            "metrics": {"listen": "127.0.0.1:0"},
        }
        self.file.write_text(yaml.safe_dump(content))

    def also(self, **parts: Any) -> None:
        """Put more parts into the pipeline file, or others in place of what it has."""
        content = yaml.safe_load(self.file.read_text())
        self.file.write_text(yaml.safe_dump({**content, **parts}))

    @property
    def config(self) -> PipelineConfig:
        return load_deliveries(self.file)[0]

    # -- at the source -------------------------------------------------------------------------

    def execute(self, *statements: str) -> None:
        """Run each statement in a transaction of its own."""
        with psycopg.connect(self.url, autocommit=True) as conn:
            for statement in statements:
                conn.execute(statement.encode())

    def subscribe(self) -> Subscription:
        """Make publication and slot, or find those that exist."""
        with connect(self.url) as conn:
            return ensure_subscription(conn, self.config)

    def slot(self) -> SlotState:
        with connect(self.url) as conn:
            subscription = find_subscription(conn, self.name)
            assert subscription is not None
            state = slot_state(conn, subscription.slot)
        assert state is not None
        return state

    @property
    def confirmed(self) -> int:
        """The slot's confirmed_flush_lsn."""
        confirmed = self.slot().confirmed_flush
        assert confirmed is not None
        return confirmed

    def wal_end(self) -> int:
        with psycopg.connect(self.url, autocommit=True) as conn:
            row = conn.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        assert row is not None
        return parse_lsn(row[0])

    # -- capture ---------------------------------------------------------------------------------

    def start_capture(self, *, supervised: bool = True, **environment: str) -> CaptureProcess:
        """Start capture; it is stopped after the test."""
        capture = CaptureProcess(self.file, self.log, environment, supervised=supervised)
        self._captures.append(capture)
        return capture

    def capture_all(self) -> list[LoggedChange]:
        """Capture until the log holds everything committed so far, and read the log."""
        with self.capturing() as capture:
            self.sync(capture)
        return self.changes()

    @contextmanager
    def capturing(self) -> Iterator[Future[None]]:
        """Capture inside this process, which is quicker than a process of its own.

        Its end, and its error, are in the future; an error is raised at the end of the block.
        """
        stop = _StopByTest()
        collecting = gc.isenabled()
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(run_capture, self.config, None, stop)
            try:
                yield future
            finally:
                stop.ask()
                wait([future], 180)
                if collecting:
                    gc.enable()  # run_capture takes the process for its own
        future.result()

    def sync(self, capture: CaptureProcess | Future[None] | None = None) -> Frontier:
        """Wait until the log holds everything that was committed before this call."""
        target = self.wal_end()
        self.execute(f"SELECT pg_logical_emit_message(true, '{SENTINEL}', '')")

        def held() -> Frontier | None:
            if isinstance(capture, CaptureProcess):
                capture.expect_running()
            elif capture is not None and capture.done():
                capture.result()
            frontier = self.log.list().frontier
            return frontier if frontier is not None and frontier.end_lsn > target else None

        frontier = wait_until(held, "the log holds what was committed")
        assert frontier is not None
        return frontier

    def changes(self, after: int | None = None) -> list[LoggedChange]:
        """What readers of the log see, without our own sentinels."""
        return logged_changes(self.log, after)

    def close(self) -> None:
        for capture in self._captures:
            capture.kill()


class MakePipeline(Protocol):
    """Makes a pipeline for the database behind a URL; its processes end with the test."""

    def __call__(self, url: str) -> PipelineUnderTest: ...


@pytest.fixture
def make_pipeline(tmp_path: Path) -> Iterator[MakePipeline]:
    made: list[PipelineUnderTest] = []

    def make(url: str) -> PipelineUnderTest:
        made.append(PipelineUnderTest(url, tmp_path))
        return made[-1]

    yield make
    for pipeline in made:
        pipeline.close()


@pytest.fixture
def pipeline(database: str, make_pipeline: MakePipeline) -> PipelineUnderTest:
    """A pipeline for the test's own database."""
    return make_pipeline(database)
