"""`penstock copy` beside `penstock run` under writes: every process is killed, at every step.

The driver does without Spark: what counts here is what processes leave to each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from penstock.failpoints import WORKER_PLACES
from tests.crash.penstock_run import PATIENCE, WITHOUT_SPARK, PenstockCopy, PenstockRun
from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.integration.copied_tables import CopiedTables, Writers
from tests.threads_engine import Threads

pytestmark = [pytest.mark.slow, pytest.mark.release]

DRIVER = WITHOUT_SPARK
PLACES = ("copy.read", "copy.written", "postgres.copy_chunk_written", *WORKER_PLACES)


class Processes:
    """A run and its workers, of which each may be killed and started again."""

    def __init__(self, copied: CopiedTables, **environment: str) -> None:
        self.copied = copied
        self._environment = environment
        self._begun: list[PenstockRun] = []
        self.run: PenstockRun
        self.workers: PenstockCopy

    def start_run(self) -> None:
        self.run = PenstockRun(
            self.copied.pipeline.file, environment={**DRIVER, **self._environment}
        )
        self._begun.append(self.run)

    def start_workers(self, *arguments: str) -> None:
        options = arguments or ("--workers", "2")
        self.workers = PenstockCopy(
            self.copied.pipeline.file, *options, environment=self._environment
        )
        self._begun.append(self.workers)

    def wait_chunks(self, more: int) -> None:
        self._wait(self.copied.chunks_done("items") + more)

    def _wait(self, count: int) -> None:
        def done() -> bool:
            self.keep()
            return self.copied.chunks_done("items") >= count or self.is_ready()

        wait_until(done, f"{count} chunks are copied", PATIENCE)

    def is_ready(self) -> bool:
        return self.copied.phases().get("public.items") == "ready"

    def wait_ready(self) -> None:
        def ready() -> bool:
            self.keep()
            return self.is_ready()

        wait_until(ready, "the table is ready", PATIENCE)

    def keep(self) -> None:
        """Start again what was killed at a failpoint."""
        if self.run.ended_at_failpoint:
            self.run.wait_gone()
            self.start_run()
        self.run.expect_running()
        self.workers.expect_running()

    def a_worker(self) -> psutil.Process:
        def found() -> psutil.Process | None:
            for process in self.workers.processes():
                if "--tether" in process.cmdline():
                    return process
            return None

        process = wait_until(found, "there is a worker", PATIENCE)
        assert process is not None
        return process

    def finish(self) -> None:
        """All is equal, and both end in order."""
        self.wait_ready()
        self.a_worker()  # else the command may be so young that Ctrl-C ends it anyhow
        self.workers.stop()
        self.run.stop()
        for begun in self._begun:
            begun.expect_no_bug()
        self.copied.run_until_caught_up()
        assert self.copied.is_equal("items", "loose")

    def end(self) -> None:
        for begun in self._begun:
            begun.end()
            print(f"---- {begun.command}\n{begun.output[-3000:]}")


@pytest.fixture
def copied(pipeline: PipelineUnderTest, target_url: str, threads: Threads) -> CopiedTables:
    copied = CopiedTables(pipeline, target_url, threads)
    copied.fill("items")
    pipeline.execute(
        "CREATE TABLE loose (a int, b text)",
        "ALTER TABLE loose REPLICA IDENTITY FULL",
        "INSERT INTO loose SELECT n % 7, repeat('twice', 100) FROM generate_series(1, 2000) n",
    )
    copied.configure(chunk_bytes="256KiB", workers="required")
    return copied


@pytest.fixture
def processes(copied: CopiedTables) -> Iterator[Processes]:
    processes = Processes(copied)
    yield processes
    processes.end()


def test_each_process_is_killed(processes: Processes) -> None:
    """A worker, their leader, the driver, and all of them; holders of snapshots stay."""
    with Writers(processes.copied.pipeline.url):
        processes.start_run()
        processes.start_workers()
        processes.wait_chunks(2)
        processes.a_worker().kill()
        processes.wait_chunks(2)
        processes.workers.kill_driver()
        processes.workers.wait_gone()
        processes.start_workers()
        processes.wait_chunks(2)
        processes.run.kill_driver()
        processes.run.wait_gone()
        processes.start_run()
        processes.wait_chunks(2)
        processes.run.end()
        processes.workers.end()
        processes.start_workers()
        processes.start_run()
        processes.wait_ready()
    processes.finish()


def test_a_death_at_every_step(copied: CopiedTables, tmp_path: Path) -> None:
    fired = tmp_path / "fired"
    fired.mkdir()
    processes = Processes(
        copied,
        PENSTOCK_FAILPOINTS=",".join(f"{place}=kill" for place in PLACES),
        PENSTOCK_FAILPOINT_DIR=str(fired),
    )
    try:
        with Writers(copied.pipeline.url):
            processes.start_run()
            processes.start_workers()
            processes.wait_ready()
        assert {path.name for path in fired.iterdir()} == set(PLACES)
        processes.finish()
    finally:
        processes.end()


def test_a_worker_that_sleeps_loses_its_unit(processes: Processes) -> None:
    """What it does when it wakes counts for nothing: others have done it."""
    with Writers(processes.copied.pipeline.url):
        processes.start_run()
        processes.start_workers()
        processes.wait_chunks(1)
        sleeper = processes.a_worker()
        sleeper.suspend()
        processes.wait_ready()
        sleeper.resume()
    processes.finish()


def test_workers_go_on_without_a_driver(processes: Processes) -> None:
    """Into a destination whose chunks stand by themselves; the next driver counts what they did."""
    copied = processes.copied
    processes.start_run()
    processes.start_workers("--workers", "1")
    processes.wait_chunks(1)
    processes.run.kill_driver()
    processes.run.wait_gone()
    before = copied.chunks_done("items")

    def all_done() -> bool:
        with psycopg.connect(copied.pipeline.url) as conn:
            asked = conn.execute("SELECT bool_and(result IS NOT NULL) FROM penstock.copy_job")
            return asked.fetchone() == (True,)

    wait_until(all_done, "every unit is copied", PATIENCE)
    assert copied.chunks_done("items") == before
    processes.workers.stop()
    copied.pipeline.execute("UPDATE items SET note = 'later' WHERE id % 5 = 0")
    # Nobody else may copy: what the workers left is all that it needs.
    processes.start_run()
    wait_until(processes.is_ready, "the table is ready", PATIENCE)
    processes.run.stop()
    copied.run_until_caught_up()
    assert copied.is_equal("items", "loose")


def test_without_workers_the_run_copies_by_itself(copied: CopiedTables) -> None:
    copied.configure(chunk_bytes="256KiB")
    processes = Processes(copied)
    try:
        with Writers(copied.pipeline.url):
            processes.start_run()
            processes.start_workers()
            processes.wait_chunks(1)
            processes.workers.end()
            wait_until(processes.is_ready, "the table is ready", PATIENCE)
        processes.run.stop()
        copied.run_until_caught_up()
        assert copied.is_equal("items", "loose")
    finally:
        processes.end()


def test_it_ends_when_all_is_copied(processes: Processes) -> None:
    processes.start_workers("--workers", "2", "--until-copied")
    processes.start_run()
    processes.workers.wait_done()
    assert "waiting for the first `penstock run`" in processes.workers.output
    wait_until(processes.is_ready, "the table is ready", PATIENCE)
    processes.run.stop()
    assert processes.copied.is_equal("items", "loose")
