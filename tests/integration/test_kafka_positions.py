"""Where a pipeline stands, read from Kafka while transactions are open."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Producer

from penstock.destination.kafka import positions
from penstock.destination.kafka.destination import KafkaDestination
from penstock.destination.kafka.options import KafkaOptions
from penstock.destination.kafka.positions import (
    DRIVER,
    DriverRecord,
    lane_partition,
    lane_producer,
    lanes_text,
    read_driver,
)
from penstock.destination.kafka.transactions import TransactionalProducer
from penstock.model.errors import DestinationUnavailable
from penstock.model.lsn import Frontier
from penstock.model.watermarks import Watermarks
from tests.kafka_server import KafkaServer

AT = Watermarks(Frontier(10, 11))
LATER = Watermarks(Frontier(20, 21))


@pytest.fixture
def options(kafka_server: KafkaServer) -> KafkaOptions:
    name = uuid.uuid4().hex[:8]
    return KafkaOptions.model_validate(
        {
            "brokers": kafka_server.brokers,
            "topic": f"{name}.{{schema}}.{{table}}",
            "schema_topic": f"{name}-schema",
            "message_topic": f"{name}-messages",
            "positions_topic": f"{name}_positions",
            "transactional": True,
            "lanes": {"by": "key", "count": 1},
        }
    )


@pytest.fixture
def destination(options: KafkaOptions) -> Iterator[KafkaDestination]:
    """Opened, with one commit."""
    made = KafkaDestination(options, "shop")
    made.open()
    made.commit([], AT)
    yield made
    made.close()


def begun(options: KafkaOptions, name: str, partition: int = DRIVER) -> Producer:
    """A transaction with a record that has arrived, and that nobody has decided."""
    producer = Producer({**options.producer, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    record = DriverRecord(LATER.frontier, None, lanes_text(options.lanes))
    producer.produce(options.positions_topic, record.to_json(), b"driver", partition)
    producer.flush(60)
    return producer


def test_a_reader_waits_until_a_transaction_is_decided(
    options: KafkaOptions, destination: KafkaDestination, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = begun(options, f"{options.positions_topic}.other")
    is_waiting = threading.Event()
    pause = time.sleep

    def waiting(seconds: float) -> None:
        is_waiting.set()
        pause(seconds)

    monkeypatch.setattr("penstock.destination.kafka.positions.time.sleep", waiting)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(read_driver, options, options.positions_topic)
        assert is_waiting.wait(60)
        other.commit_transaction(60)
        found = read.result()
    assert found is not None
    assert found.frontier == LATER.frontier


def test_a_reader_comes_to_its_end_while_a_driver_commits(
    options: KafkaOptions, destination: KafkaDestination
) -> None:
    """As `penstock status` beside a busy pipeline: the partition never ends."""
    is_read = threading.Event()

    def commit() -> bool:
        for lsn in range(20, 5000, 2):
            if is_read.is_set():
                return True
            destination.commit([], Watermarks(Frontier(lsn, lsn + 1)))
        return False

    with ThreadPoolExecutor(1) as pool:
        commits = pool.submit(commit)
        found = read_driver(options, options.positions_topic)
        is_read.set()
        assert commits.result(), "the reader waited for the last commit"
    assert found is not None
    assert found.frontier is not None


def test_what_nobody_decides_is_not_taken_for_an_answer(
    options: KafkaOptions, destination: KafkaDestination, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = begun(options, f"{options.positions_topic}.other")
    monkeypatch.setattr(positions, "_DECISION_SECONDS", 0.5)
    with pytest.raises(DestinationUnavailable, match="neither committed nor given up"):
        KafkaDestination(options, "shop").committed()
    other.abort_transaction(60)
    monkeypatch.undo()
    assert KafkaDestination(options, "shop").committed() == AT


def test_after_an_unknown_outcome_the_transaction_is_decided_first(
    options: KafkaOptions, destination: KafkaDestination, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(self: TransactionalProducer, *_: object) -> None:
        # The messages have arrived, the commit has not.
        self._kept.flush()
        raise DestinationUnavailable("the broker did not answer")

    with monkeypatch.context() as broken:
        broken.setattr(TransactionalProducer, "_patiently", lost)
        with pytest.raises(DestinationUnavailable):
            destination.commit([], LATER)
    assert destination.committed() == AT
    destination.commit([], LATER)
    assert KafkaDestination(options, "shop").committed() == LATER


def test_lanes_that_a_crash_left_open_are_decided_before_others_take_over(
    options: KafkaOptions, destination: KafkaDestination
) -> None:
    destination.close()
    # The transaction of a lane, by a task of which nobody hears again.
    task = begun(options, lane_producer(options.positions_topic, 0), lane_partition(0))
    lanes = options.lanes.model_copy(update={"by": "table"})
    by_table = options.model_copy(update={"lanes": lanes})
    other = KafkaDestination(by_table, "shop")
    other.open()
    assert other.committed() == AT
    other.close()
    del task
