"""Capture that stops, dies or loses its server goes on without a gap and without repetition."""

from __future__ import annotations

import psycopg
import pytest

from penstock.changelog.changelog import ChangeLog
from tests.fix_pipeline import MakePipeline, PipelineUnderTest, wait_until
from tests.fix_postgres import FreshServer
from tests.logged_changes import LoggedChange

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text)"


def ids(changes: list[LoggedChange]) -> list[int]:
    return [int((change.new or {})["id"] or "") for change in changes]


def insert(pipeline: PipelineUnderTest, *numbers: int) -> None:
    """A transaction of two changes for each number."""
    with psycopg.connect(pipeline.url, autocommit=True) as conn:
        for number in numbers:
            conn.execute("INSERT INTO items VALUES (%s, 'a'), (%s, 'b')", both(number))


def both(*numbers: int) -> list[int]:
    return [number for n in numbers for number in (n, n + 1_000_000)]


def has_open_tail(log: ChangeLog) -> bool:
    segments = log.list().segments
    return bool(segments) and segments[-1].is_open


@pytest.mark.every_postgres
def test_stop_and_start(pipeline: PipelineUnderTest) -> None:
    pipeline.execute(ITEMS)
    pipeline.subscribe()
    for number in (1, 2, 3):
        insert(pipeline, number)
        assert ids(pipeline.capture_all()) == both(*range(1, number + 1))
    # Nothing new is no reason to write anything twice.
    assert ids(pipeline.capture_all()) == both(1, 2, 3)


@pytest.mark.every_postgres
def test_a_process_stops_in_order_when_its_supervisor_goes(pipeline: PipelineUnderTest) -> None:
    pipeline.execute(ITEMS)
    pipeline.subscribe()
    capture = pipeline.start_capture()
    insert(pipeline, 1)
    pipeline.sync(capture)
    assert capture.stop() == 0
    assert capture.errors == ""
    assert capture.report()["state"] == "stopped"
    assert not pipeline.slot().active


@pytest.mark.every_postgres
def test_stop_inside_a_transaction(pipeline: PipelineUnderTest) -> None:
    pipeline.configure(segment_bytes="16 KiB", segment_age="1ms")
    pipeline.execute(ITEMS)
    pipeline.subscribe()
    insert(pipeline, 1)
    large = "INSERT INTO items SELECT n, repeat('x', 200) FROM generate_series(10, 60009) n"
    pipeline.execute(large)
    insert(pipeline, 2)
    with pipeline.capturing():
        wait_until(lambda: has_open_tail(pipeline.log), "a part of the transaction is there")
    # What is left of it is invisible, and goes when the whole transaction comes again.
    assert ids(pipeline.changes()) in ([], both(1))
    assert ids(pipeline.capture_all()) == [*both(1), *range(10, 60_010), *both(2)]


@pytest.mark.parametrize("passes", [1, 4])
@pytest.mark.parametrize(
    "place",
    ["capture.received", "capture.before_publish", "capture.published", "capture.before_confirm"],
)
def test_killed_at_a_failpoint(pipeline: PipelineUnderTest, place: str, passes: int) -> None:
    pipeline.configure(segment_bytes="1 KiB", segment_age="1ms", confirm="log")
    pipeline.execute(ITEMS)
    pipeline.subscribe()
    insert(pipeline, *range(10))
    pipeline.execute(
        "INSERT INTO items SELECT n, repeat('x', 200) FROM generate_series(100000, 119999) n"
    )
    capture = pipeline.start_capture(PENSTOCK_FAILPOINTS=f"{place}=kill:{passes}")
    number = 10

    def dead() -> bool:
        # Work goes on, so that there is something to receive, publish and confirm.
        nonlocal number
        insert(pipeline, number)
        number += 1
        return not capture.running

    wait_until(dead, f"capture dies at {place}")
    assert capture.wait() == -9, capture.errors
    expected = [*both(*range(10)), *range(100_000, 120_000), *both(*range(10, number))]
    visible = ids(pipeline.changes())
    assert visible == expected[: len(visible)]
    assert ids(pipeline.capture_all()) == expected


@pytest.mark.every_postgres
def test_its_walsender_is_terminated(pipeline: PipelineUnderTest) -> None:
    pipeline.execute(ITEMS)
    pipeline.subscribe()
    with pipeline.capturing() as capture:
        insert(pipeline, 1)
        pipeline.sync(capture)
        pid = pipeline.slot().active_pid
        pipeline.execute(f"SELECT pg_terminate_backend({pid}, 10000)")
        insert(pipeline, 2)
        pipeline.sync(capture)
        assert pipeline.slot().active_pid not in (None, pid)
    assert ids(pipeline.changes()) == both(1, 2)


@pytest.mark.every_postgres
def test_the_connection_that_holds_its_lock_is_terminated(pipeline: PipelineUnderTest) -> None:
    """Without it a second capture could start, and the server's shutdown would be missed."""
    pipeline.execute(ITEMS)
    pipeline.subscribe()
    with pipeline.capturing() as capture:
        insert(pipeline, 1)
        pipeline.sync(capture)
        pid = pipeline.slot().active_pid
        pipeline.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE backend_type ="
            " 'client backend' AND datname = current_database() AND pid <> pg_backend_pid()"
        )
        wait_until(
            lambda: pipeline.slot().active_pid not in (None, pid), "capture has a new session"
        )
        insert(pipeline, 2)
        pipeline.sync(capture)
    assert ids(pipeline.changes()) == both(1, 2)


@pytest.mark.every_postgres
@pytest.mark.parametrize("way", ["fast", "immediate", "kill"])
def test_the_server_restarts(
    fresh_server: FreshServer, make_pipeline: MakePipeline, way: str
) -> None:
    server = fresh_server()
    pipeline = make_pipeline(server.create_database("shop"))
    pipeline.execute(ITEMS)
    pipeline.subscribe()
    with pipeline.capturing() as capture:
        insert(pipeline, 1)
        pipeline.sync(capture)
        with psycopg.connect(pipeline.url) as open_transaction:
            open_transaction.execute("INSERT INTO items VALUES (5, 'never committed')")
            if way == "kill":
                server.kill()
            else:
                # Nothing is confirmed here, since no destination has said a word. Even so the
                # server must be able to stop: it waits for a walsender that is not confirmed.
                server.stop("fast" if way == "fast" else "immediate")
                if way == "fast":
                    assert "database system is shut down" in server.log_path.read_text()
            open_transaction.close()
        server.start()
        insert(pipeline, 2)
        pipeline.sync(capture)
    assert ids(pipeline.changes()) == both(1, 2)
