"""The `kafka` destination's part of the pipeline file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from penstock.config.librdkafka import Setting, all_but
from penstock.config.quantities import Duration, DurationOrZero, Size
from penstock.destination.contract import DestinationOptions
from penstock.destination.families.queue.names import NameRule
from penstock.destination.families.queue.options import (
    FormatOptions,
    LaneOptions,
    OversizeOption,
)

# What the options above stand for, and what the guarantees rest on.
_OWN = frozenset(
    {
        *("bootstrap.servers", "metadata.broker.list", "transactional.id", "enable.idempotence"),
        *("acks", "request.required.acks", "retries", "message.send.max.retries"),
        *("max.in.flight", "max.in.flight.requests.per.connection", "partitioner"),
        *("linger.ms", "queue.buffering.max.ms", "batch.size", "message.max.bytes"),
        *("queue.buffering.max.kbytes", "queue.buffering.max.messages", "compression.type"),
        *("compression.codec", "message.timeout.ms", "delivery.timeout.ms"),
        *("delivery.report.only.error", "group.id", "isolation.level"),
    }
)
# Of syslog: critical. Clients say every lost connection and every new attempt; ours say it once.
_LOG_LEVEL = "2"
TOPICS = NameRule("kafka", "topic", 249)


TableTopic = Annotated[str, TOPICS.of_tables]
PipelineTopic = Annotated[str, TOPICS.of_pipeline]


class TopicOptions(DestinationOptions):
    """How topics are made that are not there; None leaves it to the broker."""

    create: bool = True
    partitions: int | None = Field(default=None, ge=1)
    replication: int | None = Field(default=None, ge=1)
    config: dict[str, Setting] = Field(default_factory=dict)


class KafkaOptions(FormatOptions):
    """Where messages go, and how. ``announce``: at the start of a run, and when a table comes, a
    schema event tells what it looks like.
    """

    brokers: str = Field(min_length=1)
    topic: TableTopic = "{pipeline}.{schema}.{table}"
    schema_topic: TableTopic = "{pipeline}.schema"
    message_topic: PipelineTopic = "{pipeline}.messages"
    positions_topic: PipelineTopic = "_penstock.{pipeline}.positions"
    lanes: LaneOptions = LaneOptions()
    transactional: bool = False
    announce: bool = False
    topics: TopicOptions = TopicOptions()
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "lz4"
    linger: DurationOrZero = 0.005
    batch_bytes: Size = 2**20
    buffer_bytes: Size = 64 * 2**20
    max_message_bytes: Size = 10**6
    oversize: OversizeOption = "error"
    delivery_timeout: Duration = 60.0
    # repr=False: passwords are among them.
    client: Annotated[dict[str, Setting], all_but(_OWN)] = Field(default_factory=dict, repr=False)

    @property
    def connection(self) -> dict[str, Any]:
        """What every client of the broker is made with."""
        return {"log_level": _LOG_LEVEL, **self.client, "bootstrap.servers": self.brokers}

    @property
    def producer(self) -> dict[str, Any]:
        """What producers are made with."""
        return {
            **self.connection,
            "enable.idempotence": True,
            "linger.ms": round(self.linger * 1000, 3),
            "batch.size": self.batch_bytes,
            "message.max.bytes": self.max_message_bytes,
            "queue.buffering.max.kbytes": max(1, self.buffer_bytes // 1024),
            "queue.buffering.max.messages": 10_000_000,
            "compression.type": self.compression,
            "delivery.timeout.ms": int(self.delivery_timeout * 1000),
            # Of what arrives nobody needs to hear.
            "delivery.report.only.error": True,
            # What Java's producer does, so that topics of both can be joined.
            "partitioner": "murmur2_random",
        }
