"""Messages on their way to librdkafka: whatever they hold, it reads what was meant."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from penstock.destination.kafka.librdkafka import NativeProducer
from penstock.destination.kafka.message_slots import Header, Outgoing
from tests.handed_over import HandedOver, handed_over

Row = tuple[int, int, bytes | None, bytes | None, bytes | None, int]
"""Topic, partition, key, value, own header, shared header."""

_BYTES = st.none() | st.binary(max_size=20)
_MESSAGES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(-1, 5), _BYTES, _BYTES, _BYTES, st.integers(0, 1)),
    max_size=30,
)


def outgoing(rows: Sequence[Row]) -> Outgoing:
    topic, partition, key, value, own, shared = zip(*rows, strict=True) if rows else [()] * 6
    texts = (pa.array([b"unseen", *column], pa.large_binary())[1:] for column in (key, value, own))
    keys, values, owns = texts
    return Outgoing(
        ["one", "two", "three"],
        np.array(topic, np.int64),
        np.array(partition, np.int64),
        keys,
        values,
        [
            Header("own", owns),
            Header("shared", pa.array(["a", None]), np.array(shared, np.int64)),
        ],
    )


@given(_MESSAGES)
def test_what_librdkafka_reads_is_what_the_columns_hold(rows: list[Row]) -> None:
    """Nulls, empty texts and headers that only some messages have, in columns that are slices."""
    expected = [
        HandedOver(
            ["one", "two", "three"][topic],
            partition,
            key,
            value,
            ({} if own is None else {"own": own}) | ({} if shared else {"shared": b"a"}),
        )
        for topic, partition, key, value, own, shared in rows
    ]
    assert handed_over(outgoing(rows)) == expected


def test_more_messages_than_slots_are_made_for_at_a_time() -> None:
    rows = [(n % 3, n % 4, b"%d" % n, b"v" * (n % 7), None, n % 2) for n in range(5000)]
    found = handed_over(outgoing(rows))
    assert [message.key for message in found] == [b"%d" % n for n in range(5000)]
    assert all("own" not in message.headers for message in found)


def test_a_full_buffer_ends_what_is_taken_and_the_rest_comes_after_it() -> None:
    heard: list[KafkaError] = []
    producer = NativeProducer(
        {"bootstrap.servers": "127.0.0.1:1", "queue.buffering.max.messages": 10, "log_level": 0},
        heard.append,
        heard.append,
    )
    messages = outgoing([(0, 0, b"k", b"v", None, 0)] * 30)
    assert producer.produce(messages) == 10
    assert producer.produce(messages, 10) == 10
    producer.close()
    with pytest.raises(KafkaException):
        producer.poll(0)


def test_a_message_that_did_not_arrive_is_told() -> None:
    failed: list[KafkaError] = []
    settings = {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 1, "log_level": 0}
    producer = NativeProducer(settings, lambda _error: None, failed.append)
    producer.produce(outgoing([(0, 0, b"k", b"v", None, 0)] * 3))
    while producer.flush(1.0):
        pass
    assert [error.code() for error in failed] == [KafkaError._MSG_TIMED_OUT] * 3
    producer.close()


def test_a_wrong_setting_is_named() -> None:
    with pytest.raises(KafkaException, match=r"no\.such\.setting"):
        NativeProducer({"no.such.setting": True}, print, print)
