"""Which topic and partition an event goes to, and what its headers are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.decode.row_values import Ints
from penstock.destination.families.queue.events import format_headers, kinds_of, position_texts
from penstock.destination.kafka.options import TOPICS, KafkaOptions

Headers = list[tuple[str, str | bytes | None]]
_ANY = -1
"""Kafka's own partitioner chooses, by the message's key."""


@dataclass(frozen=True)
class Outgoing:
    """What a producer is given, one entry a message in each list."""

    topic: list[str]
    partition: list[int]
    key: list[bytes | None]
    value: list[bytes | None]
    headers: list[Headers]

    @classmethod
    def empty(cls) -> Outgoing:
        return cls([], [], [], [], [])

    def append(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        self.topic.append(topic)
        self.partition.append(partition)
        self.key.append(key)
        self.value.append(value)
        self.headers.append([])


@dataclass(frozen=True)
class Routes:
    """``partitions`` says how many each topic has that the pipeline knows of."""

    options: KafkaOptions
    pipeline: str
    partitions: Mapping[str, int]

    def topic(self, op: str, schema: str, table: str) -> str:
        options = self.options
        if op == "schema":
            return TOPICS.name(options.schema_topic, self.pipeline, schema, table)
        if op == "message":
            return TOPICS.name(options.message_topic, self.pipeline)
        return TOPICS.name(options.topic, self.pipeline, schema, table)

    def outgoing(self, events: pa.RecordBatch) -> Outgoing:
        """In the events' order."""
        of, kinds = kinds_of(events)
        routes = [self._route(*kind) for kind in kinds]
        topics = _picked([topic for topic, _ in routes], of)
        partitions = np.array([self.partitions.get(topic, 1) for topic, _ in routes], np.uint64)
        lanes = np.asarray(events.column("lane_hash")) % partitions[of]
        own = self.options.lanes
        lane_names = [f"{lane}/{own.count} {own.by}".encode() for lane in range(own.count)]
        lane_of = (np.asarray(events.column("lane_hash")) % np.uint64(own.count)).tolist()
        by_key = np.asarray(events.column("by_key").to_numpy(zero_copy_only=False))
        headers = [
            [("penstock.position", position), ("penstock.lane", lane_names[lane]), *fixed]
            for position, lane, fixed in zip(
                position_texts(events).cast(pa.large_binary()).to_pylist(),
                lane_of,
                _picked([h for _, h in routes], of),
                strict=True,
            )
        ]
        for name, column in format_headers(events):
            for row in np.flatnonzero(np.asarray(column.is_valid())).tolist():
                headers[row].append((name, column[row].as_py().encode()))
        return Outgoing(
            topics,
            np.where(by_key, _ANY, lanes.astype(np.int64)).tolist(),
            events.column("key").cast(pa.large_binary()).to_pylist(),
            events.column("value").cast(pa.large_binary()).to_pylist(),
            headers,
        )

    def _route(self, op: str, schema: str, table: str, version: str) -> tuple[str, Headers]:
        """The topic, and the headers that do not differ."""
        headers: Headers = [("penstock.op", op.encode())]
        if version:
            headers.append(("penstock.schema_version", version.encode()))
        return self.topic(op, schema, table), headers


def _picked(values: Sequence[Any], of: Ints) -> list[Any]:
    some = np.empty(len(values), object)
    some[:] = values
    picked: list[Any] = some[of].tolist()
    return picked
