"""What capture confirms to the slot, what it keeps, and when it pauses.

``ChangeLog.set_reader`` stands in for a destination that says how far it is.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

import psycopg
import pytest

from penstock.changelog.storage.folder import FolderStorage
from penstock.changelog.storage.pace import FOLDER
from penstock.model.errors import LogError
from penstock.model.lsn import Frontier
from penstock.source.capture import keeper
from penstock.source.postgres.capture import stream
from tests.fix_pipeline import PipelineUnderTest, wait_until

pytestmark = pytest.mark.every_postgres

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text)"


def insert(pipeline: PipelineUnderTest, first: int, last: int) -> None:
    with psycopg.connect(pipeline.url, autocommit=True) as conn:
        for number in range(first, last + 1):
            conn.execute("INSERT INTO items VALUES (%s, repeat('x', 200))", [number])


def ids(pipeline: PipelineUnderTest, after: int | None = None) -> list[int]:
    return [int((change.new or {})["id"] or "") for change in pipeline.changes(after)]


def test_confirms_what_the_destination_holds_and_no_more(pipeline: PipelineUnderTest) -> None:
    pipeline.execute(ITEMS)
    start = pipeline.subscribe().start_lsn
    with pipeline.capturing() as capture:
        insert(pipeline, 1, 1)
        first = pipeline.sync(capture)
        insert(pipeline, 2, 2)
        second = pipeline.sync(capture)
        assert second.end_lsn > first.end_lsn
        assert pipeline.confirmed == start
        pipeline.log.set_reader(pipeline.name, first)
        wait_until(lambda: pipeline.confirmed >= first.end_lsn, "the first part is confirmed")
    # Stopping sends what may be confirmed once more.
    assert pipeline.confirmed == first.end_lsn
    with pipeline.capturing() as capture:
        pipeline.sync(capture)
        # The slowest reader decides.
        pipeline.log.set_reader("other", first)
        pipeline.log.set_reader(pipeline.name, second)
    assert pipeline.confirmed == first.end_lsn
    pipeline.log.set_reader("other", second)
    with pipeline.capturing():
        wait_until(lambda: pipeline.confirmed >= second.end_lsn, "the second part is confirmed")
    assert pipeline.confirmed == second.end_lsn


def test_confirm_log_follows_the_log(pipeline: PipelineUnderTest) -> None:
    pipeline.configure(confirm="log")
    pipeline.execute(ITEMS)
    start = pipeline.subscribe().start_lsn
    # What readers have does not count.
    pipeline.log.set_reader(pipeline.name, Frontier(0, start))
    with pipeline.capturing() as capture:
        insert(pipeline, 1, 3)
        held = pipeline.sync(capture)
        wait_until(lambda: pipeline.confirmed >= held.end_lsn, "the log's end is confirmed")
    frontier = pipeline.log.list().frontier
    assert frontier is not None
    assert pipeline.confirmed <= frontier.end_lsn


def test_the_slot_advances_while_only_other_tables_are_busy(
    pipeline: PipelineUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FolderStorage, "pace", replace(FOLDER, advance=0.2))
    pipeline.configure(include=("public.items",))
    pipeline.execute(ITEMS, "CREATE TABLE busy (id int)")
    start = pipeline.subscribe().start_lsn
    pipeline.execute("INSERT INTO busy SELECT generate_series(1, 1000)")
    target = pipeline.wal_end()
    with pipeline.capturing() as capture:

        def held() -> Frontier | None:
            if capture.done():
                capture.result()
            frontier = pipeline.log.list().frontier
            return frontier if frontier is not None and frontier.end_lsn >= target else None

        frontier = wait_until(held, "the log knows that there was nothing for it")
        assert frontier is not None
        assert sum(name.rows for name in pipeline.log.list().segments) == 0
        # Nothing is confirmed that the destination has not recorded, not even nothing.
        assert pipeline.confirmed == start
        pipeline.log.set_reader(pipeline.name, frontier)
        wait_until(lambda: pipeline.confirmed >= target, "the slot advances")
    # A new start goes on from there, and finds what comes then.
    insert(pipeline, 1, 1)
    pipeline.capture_all()
    assert ids(pipeline) == [1]


def test_a_wanted_position_is_reached_at_once(pipeline: PipelineUnderTest) -> None:
    """What --until-caught-up relies on: it need not wait for the next idle advance."""
    pipeline.configure(include=("public.items",))
    pipeline.execute(ITEMS, "CREATE TABLE busy (id int)")
    start = pipeline.subscribe().start_lsn
    pipeline.execute("INSERT INTO busy VALUES (1)")
    target = pipeline.wal_end()
    pipeline.log.set_reader(pipeline.name, Frontier(0, start), wanted_lsn=target)
    with pipeline.capturing() as capture:

        def reached() -> bool:
            frontier = pipeline.log.list().frontier
            return capture.done() or (frontier is not None and frontier.end_lsn >= target)

        wait_until(reached, "the log reaches the wanted position")


def test_segments_that_all_readers_passed_are_removed(
    pipeline: PipelineUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "_HOUSEKEEPING_SECONDS", 0.1)
    pipeline.configure(segment_age="1ms", grace=0)
    pipeline.execute(ITEMS)
    pipeline.subscribe()
    with pipeline.capturing() as capture:
        ends = []
        for number in range(1, 11):
            insert(pipeline, number, number)
            ends.append(pipeline.sync(capture))
        middle, end = ends[4], ends[-1]
        segments = pipeline.log.list().segments
        assert len(segments) >= 10
        needed = {name for name in segments if name.last > middle.commit_lsn}
        # With no reader nothing goes; with two, only what both passed.
        pipeline.log.set_reader("quick", end)
        pipeline.log.set_reader("slow", middle)
        passed = set(segments) - needed
        wait_until(
            lambda: passed.isdisjoint(pipeline.log.list().segments), "what both passed is removed"
        )
        assert needed <= set(pipeline.log.list().segments)
        assert ids(pipeline, middle.commit_lsn) == [6, 7, 8, 9, 10]
        pipeline.log.set_reader("slow", end)
        wait_until(lambda: len(pipeline.log.list().segments) == 1, "the rest is removed")
    # The last one stays: it says where the log ends. That may be further on where others write.
    last = pipeline.log.list().frontier
    assert last is not None
    assert last >= end
    insert(pipeline, 11, 11)
    pipeline.capture_all()
    assert ids(pipeline, end.commit_lsn) == [11]


def test_the_grace_period_keeps_passed_segments(
    pipeline: PipelineUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "_HOUSEKEEPING_SECONDS", 0.05)
    pipeline.configure(segment_age="1ms", grace="1h")
    pipeline.execute(ITEMS)
    pipeline.subscribe()
    with pipeline.capturing() as capture:
        for number in (1, 2, 3):
            insert(pipeline, number, number)
            end = pipeline.sync(capture)
        pipeline.log.set_reader(pipeline.name, end)
        wait_until(lambda: pipeline.confirmed >= end.end_lsn, "the reader was seen")
        before = (pipeline.log.capture_report() or {})["at"]
        wait_until(
            lambda: (pipeline.log.capture_report() or {})["at"] > before + 0.2,
            "capture has tidied up a few times",
        )
        assert ids(pipeline) == [1, 2, 3]


def test_a_full_log_pauses_capture_until_readers_advance(
    pipeline: PipelineUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "_HOUSEKEEPING_SECONDS", 0.01)
    monkeypatch.setattr(stream, "_LIBPQ_BUFFER", 1)
    pipeline.configure(segment_bytes="8 KiB", max_bytes="64 KiB", grace=0)
    pipeline.execute(ITEMS)
    start = pipeline.subscribe().start_lsn
    pipeline.log.set_reader(pipeline.name, Frontier(0, start))
    insert(pipeline, 1, 3000)
    target = pipeline.wal_end()
    seen: list[int] = []
    after = 0

    def more() -> Frontier | None:
        if capture.done():
            capture.result()
        frontier = pipeline.log.list().frontier
        return frontier if frontier is not None and frontier.commit_lsn > after else None

    with pipeline.capturing() as capture:
        wait_until(
            lambda: (pipeline.log.capture_report() or {}).get("state") == "paused",
            "capture pauses",
        )
        held = pipeline.log.list()
        assert held.frontier is not None
        assert held.frontier.end_lsn < target
        assert held.total_bytes < 512 * 1024
        while not seen or seen[-1] < 3000:
            frontier = wait_until(more, "capture goes on")
            assert frontier is not None
            changes = pipeline.changes(after)
            seen += [int((change.new or {})["id"] or "") for change in changes]
            after = changes[-1].position.commit_lsn
            pipeline.log.set_reader(pipeline.name, Frontier(after, frontier.end_lsn))
    assert seen == list(range(1, 3001))


def test_a_transaction_larger_than_the_log_may_be_is_an_error(
    pipeline: PipelineUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No reader can pass a part of a transaction, so waiting for readers would never end."""
    monkeypatch.setattr(keeper, "_HOUSEKEEPING_SECONDS", 0.01)
    pipeline.configure(segment_bytes="8 KiB", segment_age="1ms", max_bytes="64 KiB", grace=0)
    pipeline.execute(ITEMS)
    start = pipeline.subscribe().start_lsn
    pipeline.log.set_reader(pipeline.name, Frontier(0, start))
    # More than the buffers between server and capture hold, and hard to compress: capture looks at
    # the log's size many times before it has seen the commit.
    pipeline.execute(
        "INSERT INTO items SELECT n, encode(sha512(n::text::bytea), 'hex')"
        " || encode(sha512((-n)::text::bytea), 'hex') FROM generate_series(1, 50000) n"
    )

    def gave_up(capture: Future[None]) -> bool:
        # The reader takes all that it is given, also the advances of an idle log.
        frontier = pipeline.log.list().frontier
        if frontier is not None:
            pipeline.log.set_reader(pipeline.name, frontier)
        return capture.done()

    with (
        pytest.raises(LogError, match=r"change_log\.max_bytes") as caught,
        pipeline.capturing() as capture,
    ):
        wait_until(lambda: gave_up(capture), "capture gives up")
    assert "raise change_log.max_bytes" in caught.value.remedy
    pipeline.configure(segment_bytes="8 KiB")
    assert len(pipeline.capture_all()) == 50_000
