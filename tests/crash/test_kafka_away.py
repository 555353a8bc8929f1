"""A broker that is away under load: what waits for it waits in the change log, not in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.crash.penstock_run import PATIENCE, PenstockRun
from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.fix_postgres import FreshServer
from tests.kafka_messages import check_order, place, read_topics
from tests.kafka_server import KafkaServer

pytestmark = [pytest.mark.slow, pytest.mark.release]

_ROW_BYTES = 4096
_TRANSACTION_ROWS = 5000
# What waits in the end, many times what the pipeline may hold of it.
_WAITING_BYTES = 900 * 2**20
# Buffers of tasks in each of their forms, and the producers', in as many workers as Spark starts:
# about 200 MiB, whether 300 or 900 wait.
_ALLOWED_BYTES = 400 * 2**20


def test_memory_is_bounded_while_the_broker_is_away(
    fresh_server: FreshServer, tmp_path: Path
) -> None:
    url = fresh_server().create_database("shop")
    with KafkaServer() as kafka:
        pipeline = PipelineUnderTest(url, tmp_path)
        pipeline.execute("CREATE TABLE papers (id bigserial PRIMARY KEY, body text)")
        pipeline.configure(
            destination={
                "type": "kafka",
                "brokers": kafka.brokers,
                "buffer_bytes": "8 MiB",
                "delivery_timeout": "5s",
            },
            batch={"max_bytes": "16 MiB", "max_growth": 1, "buffer_bytes": "8 MiB"},
        )
        pipeline.subscribe()
        run = PenstockRun(pipeline.file)
        try:
            with _peak(run) as before:
                for _ in range(4):
                    _write(pipeline)
                _wait_delivered(pipeline, run)
            kafka.kill()
            with _peak(run) as away:
                for _ in range(_WAITING_BYTES // (_ROW_BYTES * _TRANSACTION_ROWS)):
                    _write(pipeline)
                _wait_until_the_log_has_all(pipeline, run)
                tried = run.output.count("destination kafka")
                wait_until(
                    lambda: run.output.count("destination kafka") > tried + 1,
                    "it was tried again",
                    PATIENCE,
                )
                kafka.start()
                _wait_delivered(pipeline, run)
            run.stop()
        finally:
            run.end()
        assert max(away) - max(before) < _ALLOWED_BYTES
        messages = read_topics(kafka.brokers, lambda topic: topic.endswith(".papers"))
    check_order(messages)
    written = 4 + _WAITING_BYTES // (_ROW_BYTES * _TRANSACTION_ROWS)
    assert len({place(message) for message in messages}) == written * _TRANSACTION_ROWS


def _write(pipeline: PipelineUnderTest) -> None:
    """One transaction, of rows that are small in the WAL and large in the stream."""
    pipeline.execute(
        f"INSERT INTO papers (body) SELECT repeat(md5(i::text), {_ROW_BYTES // 32})"  # noqa: S608
        f" FROM generate_series(1, {_TRANSACTION_ROWS}) i"
    )


def _wait_delivered(pipeline: PipelineUnderTest, run: PenstockRun) -> None:
    end = pipeline.wal_end()

    def delivered() -> bool:
        run.expect_running()
        reader = pipeline.log.reader(pipeline.name)
        return reader is not None and reader.frontier.end_lsn >= end

    pipeline.execute("SELECT pg_logical_emit_message(true, 'the last one', '')")
    wait_until(delivered, "everything is delivered", PATIENCE)


def _wait_until_the_log_has_all(pipeline: PipelineUnderTest, run: PenstockRun) -> None:
    end = pipeline.wal_end()

    def held() -> bool:
        run.expect_running()
        frontier = pipeline.log.list().frontier
        return frontier is not None and frontier.end_lsn >= end

    pipeline.execute("SELECT pg_logical_emit_message(true, 'the last one', '')")
    wait_until(held, "the log has everything", PATIENCE)


@contextmanager
def _peak(run: PenstockRun) -> Iterator[list[int]]:
    """What all processes but the JVM, whose heap has a limit of its own, had for themselves."""
    seen = [0]
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            seen.append(sum(map(_own_bytes, run.processes())))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def _own_bytes(process: psutil.Process) -> int:
    try:
        if process.name() == "java":
            return 0
        # Without the pages that forked workers share: there may be more of them by then.
        return int(process.memory_full_info().uss)
    except psutil.Error:
        return 0
