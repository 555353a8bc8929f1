"""Topics as a source, with a real broker: what comes out is what went in."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.model.errors import IdentityChanged, PenstockError, SourceError
from penstock.source.registry import source_checks
from tests.crash.penstock_run import WITHOUT_SPARK, PenstockRun
from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.kafka_server import KafkaServer
from tests.kafka_source_pipelines import TABLES, TopicsInBetween
from tests.pipelines import pipeline_on
from tests.threads_engine import Threads

FORGED = (
    None,
    b"",
    b"no JSON",
    b'{"format":2,"op":"insert"}',
    b'{"format":1,"op":"drop"}',
    b'{"format":1,"op":"insert","schema":"public","table":"items"}',
    b'{"format":1,"op":"insert","schema":"public","table":"nobody","key":null}',
    b"[" * 100_000,
)


@pytest.fixture
def topics(
    pipeline: PipelineUnderTest, kafka_server: KafkaServer, target_url: str
) -> TopicsInBetween:
    pipeline.execute(*TABLES)
    return TopicsInBetween(pipeline, kafka_server, target_url)


def test_rows_and_changes_and_columns_come_back(topics: TopicsInBetween, threads: Threads) -> None:
    topics.write(threads)
    assert [r for r in source_checks(topics.config) if r.status == "failed"] == []
    topics.read(threads)
    assert topics.expect_same() == 250
    topics.execute(
        "INSERT INTO items (id, name) VALUES (1000, E'a \"quoted\" \\\\ line\\nbreak')",
        # The large column is unset.
        "UPDATE items SET name = 'changed' WHERE id < 20",
        "DELETE FROM items WHERE id BETWEEN 30 AND 40",
        "INSERT INTO items (id, name) VALUES (31, 'again')",
        "UPDATE places SET b = 'moved' WHERE b = 'p7'",
        "ALTER TABLE items ADD COLUMN colour text",
        "UPDATE items SET colour = 'red' WHERE id % 3 = 0",
        "ALTER TABLE items RENAME COLUMN name TO title",
        "INSERT INTO items (id, title, price) VALUES (1001, 'last', 'NaN')",
        "ALTER TABLE items DROP COLUMN tags",
        "CREATE TABLE later (id int PRIMARY KEY, body jsonb)",
        "INSERT INTO later SELECT n, '{\"n\": [1, null]}' FROM generate_series(1, 20) n",
    )
    topics.write(threads)
    topics.read(threads)
    topics.expect_same("items", "places", "later")
    # Nothing is new: nothing happens.
    topics.read(threads)
    topics.expect_same("items", "places", "later")


@pytest.mark.release
def test_a_table_that_was_set_aside_holds_up_no_schema_change_of_another(
    topics: TopicsInBetween, threads: Threads
) -> None:
    topics.write(threads)
    topics.read(threads)
    topics.execute_there("ALTER TABLE items ADD CHECK (name <> 'unfit')")
    topics.execute("UPDATE items SET name = 'unfit' WHERE id = 1")
    topics.write(threads)
    topics.read(threads)
    topics.execute("CREATE TABLE later (id int PRIMARY KEY)", "INSERT INTO later VALUES (1)")
    topics.write(threads)
    until = time.monotonic() + 30
    run = pipeline_on(threads, topics.config, topics.file)
    run.run(lambda: time.monotonic() > until, until_caught_up=True)
    assert time.monotonic() < until, "it has caught up"
    topics.expect_same("places", "later")


@pytest.mark.release
def test_topics_of_yesterday_are_told_from_others(
    topics: TopicsInBetween, threads: Threads
) -> None:
    topics.write(threads)
    topics.read(threads)
    topics.recreate(topics.topic("places"))
    with pytest.raises(IdentityChanged, match="deleted and made again"):
        topics.read(threads)
    assert "another one than before" in "".join(
        r.detail for r in source_checks(topics.config) if r.status == "failed"
    )


@pytest.mark.release
def test_a_writer_that_has_begun_anew_is_refused_and_its_remedy_works(
    topics: TopicsInBetween, threads: Threads
) -> None:
    topics.write(threads)
    topics.read(threads)
    destroy(topics.first.file)
    topics.execute("DELETE FROM items WHERE id < 10", "UPDATE places SET note = 'anew'")
    topics.write(threads)
    with pytest.raises(IdentityChanged, match="of another source from here on") as caught:
        topics.read(threads)
    assert "delete the topics" in caught.value.remedy
    # As it says.
    topics.delete(*map(topics.topic, ("items", "places")), f"{topics.first.name}.schema")
    destroy(topics.first.file)
    topics.write(threads)
    destroy(topics.file)
    topics.execute_there("TRUNCATE items, places")
    topics.read(threads)
    assert topics.expect_same() == 241


def destroy(file: Path) -> None:
    arguments = [sys.executable, "-m", "penstock", "destroy", str(file), "--yes"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.release
def test_messages_that_are_gone_are_refused(topics: TopicsInBetween, threads: Threads) -> None:
    topics.write(threads)
    admin = AdminClient({"bootstrap.servers": topics.kafka.brokers})
    places = [TopicPartition(topics.topic("items"), number, 5) for number in range(3)]
    for future in admin.delete_records(places).values():
        future.result()
    with pytest.raises(SourceError, match=r"first 5 messages of .* are gone"):
        topics.read(threads)
    topics.configure(incomplete="accept")
    topics.read(threads)
    topics.execute("UPDATE items SET name = 'once more'")
    topics.write(threads)
    end = [TopicPartition(place.topic, place.partition, -1) for place in places]
    for future in admin.delete_records(end).values():
        future.result()
    with pytest.raises(SourceError, match="gone that were not read"):
        topics.read(threads)


@pytest.mark.release
def test_a_group_of_somebody_else_is_not_taken(topics: TopicsInBetween, threads: Threads) -> None:
    topics.write(threads)
    consumer = Consumer(
        {"bootstrap.servers": topics.kafka.brokers, "group.id": f"of {topics.name}"}
    )
    consumer.commit(offsets=[TopicPartition(topics.topic("items"), 0, 3)], asynchronous=False)
    consumer.close()
    topics.configure(group=f"of {topics.name}")
    with pytest.raises(SourceError, match="has not committed"):
        topics.read(threads)
    topics.configure()
    topics.read(threads)
    topics.expect_same()
    topics.configure(group="another")
    with pytest.raises(IdentityChanged, match="the group"):
        topics.read(threads)


@pytest.mark.release
def test_commands(topics: TopicsInBetween, threads: Threads) -> None:
    assert "there is no topic" in command(topics, "check", code=1)
    topics.write(threads)
    assert "failed" not in command(topics, "check")
    assert "lag           " in command(topics, "status")
    topics.read(threads)
    assert json.loads(command(topics, "status", "--json"))["source"]["lag_messages"] == 0
    assert "reads topics" in command(topics, "verify", code=None)
    assert "reads topics" in command(topics, "init", code=None)
    removed = command(topics, "destroy", "--yes")
    assert "consumer group" in removed
    assert "change log" in removed
    # From the beginning, over rows that are there.
    topics.read(threads)
    topics.expect_same()


def command(topics: TopicsInBetween, name: str, *arguments: str, code: int | None = 0) -> str:
    """What it says; None for ``code`` where it is to fail."""
    done = subprocess.run(
        [sys.executable, "-m", "penstock", name, str(topics.file), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    as_told = bool(done.returncode) if code is None else done.returncode == code
    assert as_told, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.release
def test_forged_messages_are_named_and_can_be_left_out(
    topics: TopicsInBetween, threads: Threads
) -> None:
    topics.write(threads)
    topics.produce(topics.topic("items"), FORGED[0], b"k")
    with pytest.raises(SourceError, match=r"at offset \d+ of .*public.items\[\d\] is malformed"):
        topics.read(threads)
    for value in FORGED[1:]:
        topics.produce(topics.topic("items"), value, b"k")
    topics.configure(on_malformed="leave_out")
    topics.execute("UPDATE items SET name = 'after' WHERE id = 7")
    topics.write(threads)
    topics.read(threads)
    topics.expect_same()
    assert (topics.log.capture_report() or {})["malformed"] == len(FORGED)


@pytest.mark.release
def test_a_truncate_without_order_stops(topics: TopicsInBetween, threads: Threads) -> None:
    topics.write(threads)
    topics.read(threads)
    topics.execute("TRUNCATE places")
    topics.write(threads)
    with pytest.raises(PenstockError, match=r"TRUNCATE of public.places .* no order"):
        topics.read(threads)
    topics.configure(on_truncate="leave_out")
    topics.read(threads)
    topics.execute_there("TRUNCATE places")
    topics.expect_same()


@pytest.mark.release
def test_debezium_messages_tell_of_their_tables(
    pipeline: PipelineUnderTest, kafka_server: KafkaServer, target_url: str, threads: Threads
) -> None:
    pipeline.execute(*TABLES)
    topics = TopicsInBetween(
        *(pipeline, kafka_server, target_url),
        format="debezium",
        debezium={"schemas": True},
        announce=False,
    )
    topics.configure(format="debezium", schema_topic=None)
    topics.write(threads)
    topics.read(threads)
    assert topics.expect_same() == 250
    topics.execute(
        "UPDATE items SET name = 'changed' WHERE id < 20",
        "DELETE FROM items WHERE id BETWEEN 30 AND 40",
        "INSERT INTO items (id, name) VALUES (31, 'again')",
        "UPDATE places SET b = 'moved' WHERE b = 'p7'",
        "ALTER TABLE items ADD COLUMN colour text",
        "UPDATE items SET colour = 'red' WHERE id % 3 = 0",
        "CREATE TABLE later (id int PRIMARY KEY, at timestamp, share double precision, ok boolean)",
        "INSERT INTO later VALUES (1, '2026-01-02 03:04:05.6', 0.1, true), (2, NULL, NULL, NULL)",
    )
    topics.write(threads)
    topics.read(threads)
    topics.expect_same("items", "places", "later")


@pytest.mark.release
def test_a_large_value_that_was_not_sent_with_a_new_key_is_kept_or_its_table_stops(
    pipeline: PipelineUnderTest, kafka_server: KafkaServer, target_url: str, threads: Threads
) -> None:
    pipeline.execute(*TABLES)
    topics = TopicsInBetween(
        *(pipeline, kafka_server, target_url, 1),
        format="debezium",
        debezium={"schemas": True},
        announce=False,
    )
    topics.configure(format="debezium", schema_topic=None)
    topics.write(threads)
    topics.read(threads)
    topics.execute("UPDATE items SET id = 5000 WHERE id = 100")
    topics.write(threads)
    run = PenstockRun(topics.file, environment=WITHOUT_SPARK)

    def moved() -> list[tuple[object, ...]]:
        with psycopg.connect(target_url, autocommit=True) as conn:
            return conn.execute("SELECT length(big) FROM items WHERE id = 5000").fetchall()

    try:
        wait_until(lambda: moved() or "set aside" in run.output, "it has come, or its table stops")
    finally:
        run.end()
    assert moved() in ([], [(3200,)])
