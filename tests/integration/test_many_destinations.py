"""One change log, several destinations: each has its own pace, and none holds back another."""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import partial

import psycopg
import pytest

from penstock.model.errors import LogError
from penstock.store import pipeline_store
from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.integration.copied_tables import Writers
from tests.integration.many_destinations import ManyDestinations
from tests.kafka_messages import place, read_topics
from tests.kafka_server import KafkaServer

ITEMS = (
    "CREATE TABLE items (id bigint PRIMARY KEY, note text, body text)",
    "INSERT INTO items SELECT n, 'note', repeat(n::text, 20) FROM generate_series(1, 500) n",
)
ALL = ("warehouse", "lake", "tables")


@pytest.fixture
def many(pipeline: PipelineUnderTest, target_url: str) -> ManyDestinations:
    pipeline.execute(*ITEMS)
    return ManyDestinations(pipeline, target_url)


def test_one_stops_and_the_others_go_on(many: ManyDestinations) -> None:
    many.capture()
    with Writers(many.pipeline.url) as writers:
        with many.running(*ALL) as runs:
            many.wait(runs, lambda: many.are_ready(*ALL), "all are copied")
        stopped = many.frontier("tables")
        with many.running("warehouse", "lake") as runs:
            before = writers.written
            wait_until(lambda: writers.written > before + 50, "something is written meanwhile")
            marked = many.pipeline.wal_end()
            many.pipeline.execute("INSERT INTO items VALUES (900001, 'while one is away', '')")
            for name in ("warehouse", "lake"):
                many.wait(
                    runs,
                    partial(many.is_beyond, name, marked),
                    f"{name} has got what was committed while another one was away",
                )
            assert many.frontier("tables") == stopped
            # The slot waits for the one that is away, and the log keeps what it needs.
            assert many.pipeline.confirmed <= stopped.end_lsn
    assert any(row[1] == "while one is away" for row in many.rows("warehouse", "items"))
    with many.running(*ALL) as runs:
        many.wait_equal(runs, ALL, "items")
        end = many.pipeline.wal_end()
        many.pipeline.execute("UPDATE items SET note = 'last' WHERE id < 5")
        many.wait_equal(runs, ALL, "items")
        many.wait(runs, lambda: many.pipeline.confirmed >= end, "the slot follows all of them")
        verified = many.command("verify", "FILE", "--only", "warehouse")
        assert "equal: 1 tables" in verified
    with psycopg.connect(many.pipeline.url) as conn:
        slots = conn.execute(
            "SELECT count(*) FROM pg_replication_slots WHERE slot_name ~ %s AND NOT temporary",
            [f"^penstock_{many.pipeline.name}_"],
        ).fetchone()
    assert slots == (1,)


def test_one_that_comes_later_is_copied_and_touches_no_other(many: ManyDestinations) -> None:
    many.configure("warehouse", "lake", grace="0s")
    many.capture()
    with many.running("warehouse", "lake") as runs:
        many.wait(runs, lambda: many.are_ready("warehouse", "lake"), "they are copied")
        many.pipeline.execute("UPDATE items SET note = 'before' WHERE id % 7 = 0")
        many.wait_equal(runs, ("warehouse", "lake"), "items")
    before = {name: many.states(name) for name in ("warehouse", "lake")}
    at = {name: many.frontier(name) for name in ("warehouse", "lake")}
    many.configure(*ALL, grace="0s")
    status = many.command("status", "FILE")
    assert re.search(r"destination +tables \(memory-tables\) has never run", status), status
    # Capture runs with the file as it was: it notices a reader that it has never heard of.
    with Writers(many.pipeline.url), many.running("tables") as runs:
        many.wait(runs, lambda: many.are_ready("tables"), "the new one is copied")
    assert {name: many.states(name) for name in before} == before
    assert {name: many.frontier(name) for name in at} == at
    with many.running(*ALL) as runs:
        many.wait_equal(runs, ALL, "items")
    assert {name: many.states(name) for name in before} == before, "nothing was copied anew"


def test_one_that_comes_later_begins_with_the_log(many: ManyDestinations) -> None:
    """Where the log still has all: what tables were like then, another destination knows."""
    many.pipeline.execute("TRUNCATE items")
    many.configure("lake", grace="1h")
    many.capture()
    with many.running("lake") as runs:
        many.wait(runs, lambda: many.are_ready("lake"), "it is copied")
        many.pipeline.execute(
            "INSERT INTO items SELECT n, 'first', '' FROM generate_series(1, 20) n",
            "ALTER TABLE items ADD COLUMN more int",
            "UPDATE items SET note = 'second', more = 8 WHERE id < 10",
            "ALTER TABLE items RENAME COLUMN body TO content",
            "DELETE FROM items WHERE id = 3",
            # Files do not say what became of older rows.
            "UPDATE items SET more = id",
        )
        many.wait(runs, lambda: many.is_equal("lake", "items"), "the lake is equal")
    many.configure("lake", "warehouse", own={"warehouse": {"from": "log"}}, grace="1h")
    with many.running("lake", "warehouse") as runs:
        many.wait_equal(runs, ("warehouse",), "items")
        many.pipeline.execute("INSERT INTO items VALUES (100, 'third', '', 1)")
        many.wait_equal(runs, ("warehouse", "lake"), "items")
    assert {name: phase for name, (phase, _) in many.states("warehouse").items()} == {
        "items": "ready"
    }
    with pipeline_store(many.view("warehouse")) as store:
        store.open()
        assert not store.get_copies()


def test_a_log_that_does_not_reach_back_is_refused(many: ManyDestinations) -> None:
    many.configure("lake", grace="0s")
    many.capture()
    with many.running("lake") as runs:
        many.wait(runs, lambda: many.are_ready("lake"), "it is copied")
        many.pipeline.execute("UPDATE items SET note = 'gone' WHERE id < 100")
        many.pipeline.sync()
        first = many.pipeline.log.list().segments[0]
        many.pipeline.execute("UPDATE items SET note = 'gone too' WHERE id < 100")
        many.wait(
            runs,
            lambda: many.pipeline.log.list().segments[0].after > first.last,
            "the log's beginning is gone",
        )
    many.configure("lake", "nothing", own={"nothing": {"from": "log"}}, grace="0s")
    with (
        pytest.raises(LogError, match="no longer reaches back") as refused,
        many.running("nothing"),
    ):
        pass
    assert "leave `from: log` out" in refused.value.remedy
    # Nobody waits for it: the log has no reader of that name.
    assert many.pipeline.log.reader(many.view("nothing").delivery) is None
    # The remedy heals it.
    many.configure("lake", "nothing", grace="0s")
    with many.running("lake", "nothing") as runs:
        many.wait(runs, lambda: many.are_ready("nothing"), "it begins")


def test_a_full_log_names_who_is_behind(many: ManyDestinations) -> None:
    many.configure("lake", "nothing", segment_bytes="64KiB", max_bytes="512KiB", grace="0s")
    many.capture()
    with many.running("lake", "nothing") as runs:
        many.wait(runs, lambda: many.are_ready("lake", "nothing"), "they are copied")
    with many.running("lake") as runs:
        many.pipeline.execute(
            *["UPDATE items SET note = repeat(note, 10)"] * 2,
            *["UPDATE items SET body = repeat('x', 900)"] * 8,
        )

        def report() -> dict[str, str]:
            return many.pipeline.log.capture_report() or {}

        many.wait(runs, lambda: report().get("state") == "paused", "the log is full")
        # At first it may be the other one, until that has written down its next position.
        behind = many.view("nothing").delivery
        many.wait(runs, lambda: report().get("held_by") == behind, "it says who is behind")
        status = many.command("status", "FILE")
        assert "capture waits until destination nothing has taken from it" in status
        assert "penstock destroy FILE --only nothing" in status
        # The remedy, while the others run.
        given_up = many.command("destroy", "FILE", "--only", "nothing", "--yes")
        assert "its place in the change log" in given_up
        assert "Take nothing out of the file" in given_up
        many.wait_equal(runs, ("lake",), "items")


def test_commands_by_name(many: ManyDestinations) -> None:
    many.capture()
    with many.running(*ALL) as runs:
        many.wait(runs, lambda: many.are_ready(*ALL), "all are copied")
        busy = many.command("destroy", "FILE", "--only", "lake", "--yes", code=1)
        assert busy == ""  # its error is on stderr, as that of the whole
        assert many.frontier("lake")
        many.command("tables", "resync", "FILE", "items", "--only", "tables")
        many.wait_equal(runs, ALL, "items")
    listed = json.loads(many.command("tables", "list", "FILE", "--json"))
    assert [each["destination"] for each in listed] == list(ALL)
    shown = many.command("tables", "list", "FILE", "--destination", "lake")
    assert "destination lake" in shown
    assert "warehouse" not in shown
    status = json.loads(many.command("status", "FILE", "--json"))
    assert list(status["destinations"]) == list(ALL)
    assert status["destinations"]["lake"]["tables"]["phases"] == {"ready": 1}
    history = many.command("schema", "history", "FILE", "items", "--only", "lake")
    assert "version 1" in history
    # Rules are the pipeline's: the publication is one.
    many.command("tables", "remove", "FILE", "items")
    with many.running(*ALL) as runs:
        many.wait(runs, lambda: not any(many.states(name) for name in ALL), "all let it go")
    # One is given up, also after it was taken out of the file.
    many.configure("warehouse", "lake")
    status = many.command("status", "FILE")
    assert "not in file   destination tables" in status
    assert "`penstock destroy FILE --only tables` gives it up" in status
    gone = many.command("destroy", "FILE", "--only", "tables", "--yes")
    assert "The file does not name tables" in gone
    assert "not in file" not in many.command("status", "FILE")
    kept = many.frontier("warehouse")
    assert kept == many.frontier("warehouse")


@pytest.mark.release
def test_postgres_kafka_and_files_under_load(
    many: ManyDestinations, kafka_server: KafkaServer
) -> None:
    """Kafka is away for a while, with a driver that is stopped, and later gets all of it."""
    kafka = {"type": "kafka", "brokers": kafka_server.brokers, "topics": {"partitions": 2}}
    many.more["events"] = kafka
    names = ("warehouse", "lake", "events")
    many.configure(*names, own={"events": {"batch": {"max_age": "500ms"}}})
    many.capture()
    with Writers(many.pipeline.url) as writers:
        with many.running(*names) as runs:
            many.wait(runs, lambda: many.are_ready(*names), "all are copied")
        with many.running("warehouse", "lake") as runs:
            before = writers.written
            wait_until(lambda: writers.written > before + 2000, "much is written meanwhile")
            marked = many.pipeline.wal_end()
            for name in ("warehouse", "lake"):
                many.wait(runs, partial(many.is_beyond, name, marked), f"{name} goes on")
            assert not many.is_beyond("events", marked)
    with many.running(*names) as runs:
        many.wait_equal(runs, ("warehouse", "lake"), "items")
        end = many.pipeline.wal_end()
        many.pipeline.execute("UPDATE items SET note = 'last' WHERE id < 5")
        many.wait(runs, partial(many.is_beyond, "events", end), "the events have caught up")
        many.wait_equal(runs, ("warehouse", "lake"), "items")
        many.wait(runs, partial(many.is_beyond, "events", many.pipeline.wal_end()), "all of them")
    topic = f"{many.view('events').delivery}.public.items"
    found = read_topics(kafka_server.brokers, lambda name: name == topic)
    rows: dict[int, tuple[str | None, ...]] = {}
    for message in sorted(found, key=place):
        event = json.loads(message.value() or b"null")
        if event is None:
            continue
        for gone in (event["old"], event["key"] if event["op"] == "delete" else None):
            rows.pop((gone or {}).get("id", 0), None)
        if (new := event["new"]) is not None:
            rows[new["id"]] = (str(new["id"]), new["note"], new["body"])
    assert Counter(rows.values()) == many.source("items")
