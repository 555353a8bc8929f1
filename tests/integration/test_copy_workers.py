"""Tables are copied by workers: `penstock copy`, apart from the stream."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from penstock.model.errors import ConfigError
from penstock.pipeline.workers.copy_worker import CopyWorker
from penstock.store import pipeline_store
from tests.fix_pipeline import PipelineUnderTest
from tests.integration.copied_tables import CopiedTables, Writers
from tests.threads_engine import Threads


@pytest.fixture
def copied(pipeline: PipelineUnderTest, target_url: str, threads: Threads) -> CopiedTables:
    return CopiedTables(pipeline, target_url, threads)


@contextmanager
def working(copied: CopiedTables) -> Iterator[Future[None]]:
    """A worker in a thread, with a store of its own as a process has."""
    stop = threading.Event()

    def work() -> None:
        with pipeline_store(copied.pipeline.config) as store:
            store.open()
            CopyWorker(copied.pipeline.config, copied.pipeline.file, store).run(stop.is_set)

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        try:
            yield future
        finally:
            stop.set()
    future.result()


def test_a_worker_copies_what_the_run_leaves_to_it(copied: CopiedTables) -> None:
    copied.fill("items")
    copied.configure(chunk_bytes="512KiB", workers="required")
    with Writers(copied.pipeline.url), copied.running() as future:
        copied.wait(future, lambda: copied.copy_of("items") is not None, "the copy is planned")
        with working(copied) as worker:
            copied.wait(future, lambda: copied.chunks_done("items") > 1, "some chunks are copied")
            shown = copied.command("status", str(copied.pipeline.file))
            assert "worker        " in shown
            copied.wait(
                future,
                lambda: worker.done() or "ready" in copied.phases().values(),
                "the table is ready",
            )
    copied.run_until_caught_up()
    assert copied.is_equal("items")


def test_another_file_than_the_drivers_is_refused(copied: CopiedTables) -> None:
    copied.fill("items")
    copied.configure(chunk_bytes="512KiB", workers="required")
    with copied.running() as future:
        copied.wait(future, lambda: copied.copy_of("items") is not None, "the copy is planned")
        other = copied.pipeline.config.model_copy(
            update={"destination": {"type": "discard"}}, deep=True
        )
        with pipeline_store(copied.pipeline.config) as store:
            store.open()
            worker = CopyWorker(other, copied.pipeline.file, store)
            with pytest.raises(ConfigError, match="destination: type or options"):
                worker.run(lambda: False)
        assert copied.chunks_done("items") == 0
