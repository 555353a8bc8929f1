"""Which topic and partition an event goes to, and what its headers are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.destination.encode.json_values import TEXT
from penstock.destination.families.queue.events import format_headers, kinds_of, position_texts
from penstock.destination.kafka.message_slots import Header, Outgoing
from penstock.destination.kafka.options import TOPICS, KafkaOptions

_ANY = -1
"""Kafka's own partitioner chooses, by the message's key."""


@dataclass(frozen=True)
class Routes:
    """``partitions`` says how many each topic has that the pipeline knows of, ``source`` which one
    the changes are of; empty where that is not known.
    """

    options: KafkaOptions
    pipeline: str
    partitions: Mapping[str, int]
    source: str = ""

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
        topics = [self.topic(kind.op, kind.schema, kind.table) for kind in kinds]
        partitions = np.array([self.partitions.get(topic, 1) for topic in topics], np.uint64)
        lane_hash = np.asarray(events.column("lane_hash"))
        by_key = np.asarray(events.column("by_key").to_numpy(zero_copy_only=False))
        places = (lane_hash % partitions[of]).astype(np.int64)
        own = self.options.lanes
        # A header costs a quarter of a microsecond: the source has none of its own.
        of_source = f" {self.source}" if self.source else ""
        lane_names = [f"{lane}/{own.count} {own.by}{of_source}" for lane in range(own.count)]
        versions = [kind.schema_version or None for kind in kinds]
        headers = [
            Header("penstock.position", position_texts(events)),
            Header(
                "penstock.lane",
                pa.array(lane_names, TEXT),
                (lane_hash % np.uint64(own.count)).astype(np.int64),
            ),
            Header("penstock.op", pa.array([kind.op for kind in kinds], TEXT), of),
            Header("penstock.schema_version", pa.array(versions, TEXT), of),
            *(Header(name, values) for name, values in format_headers(events)),
        ]
        return Outgoing(
            topics,
            of,
            np.where(by_key, _ANY, places),
            events.column("key"),
            events.column("value"),
            headers,
        )
