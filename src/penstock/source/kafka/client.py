"""Asking brokers about topics, and reading them. Raises SourceUnavailable where another try may
succeed, SourceError for everything else.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from penstock.config.kafka_source import KafkaSourceConfig
from penstock.model.errors import SourceError, SourceUnavailable
from penstock.source.kafka.offsets import Partition

_SECONDS = 20.0
# Of syslog: critical. Clients say every lost connection and every new attempt; ours say it once.
_LOG_LEVEL = "2"
_PAUSE_SECONDS = 0.1
# A topic that was just made has no leader for a moment, and a group no coordinator.
_PASSING = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)
_LASTING = {
    KafkaError._AUTHENTICATION: "the user or its password is wrong; see source.client",
    KafkaError.SASL_AUTHENTICATION_FAILED: "the user or its password is wrong; see source.client",
    KafkaError._SSL: "TLS failed; see the ssl settings in source.client",
    KafkaError._INVALID_ARG: "see source.client",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant the user Read and Describe on the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "grant the user Read and Describe on the group that "
    "source.group names",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "grant the user Describe on the cluster",
}

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Topic:
    """``id`` is another one once the topic was deleted and made again."""

    id: str
    partitions: int


def failure(error: KafkaError, doing: str, last: KafkaError | None = None) -> SourceError:
    """The error of a client as one of ours; ``last`` is what it met before."""
    message = f"source kafka: {doing} failed: {error.str()} ({error.name()})"
    code = error.code()
    if code in _LASTING:
        return SourceError(message, remedy=_LASTING[code])
    if last is not None:
        message += f"; at last: {last.str()}"
        if last.code() in _LASTING:
            return SourceUnavailable(message, remedy=_LASTING[last.code()])
    return SourceUnavailable(message, remedy="see whether the brokers run and can be reached")


@contextmanager
def kafka_errors(
    doing: str, last: Callable[[], KafkaError | None] = lambda: None
) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise failure(error.args[0], doing, last()) from None


class Brokers:
    """Questions to the brokers; one client for all of them."""

    def __init__(self, config: KafkaSourceConfig) -> None:
        self._config = config
        self._last: KafkaError | None = None
        with kafka_errors("making a client"):
            settings: dict[str, Any] = {**connection(config), "error_cb": self._met}
            self._admin = AdminClient(settings)

    def _met(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._last = error

    def cluster_id(self) -> str:
        return self._ask(
            "asking for the cluster",
            lambda: str(self._admin.list_topics(timeout=_SECONDS).cluster_id),
        )

    def topics(self) -> dict[str, Topic]:
        """Those that the pipeline file names and that are there, the schema topic among them."""

        def names_now() -> list[str]:
            found = self._admin.list_topics(timeout=_SECONDS).topics
            wanted = {name: each.error for name, each in found.items() if self.wants(name)}
            for error in wanted.values():
                # One that is not to be had at the moment is not one that is gone.
                if error is not None and error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise KafkaException(error)
            return [name for name, error in wanted.items() if error is None]

        names = self._ask("listing topics", names_now)
        if not names:
            return {}
        asked = self._ask(
            "describing topics",
            lambda: {
                name: future.result()
                for name, future in self._admin.describe_topics(
                    TopicCollection(names), request_timeout=_SECONDS
                ).items()
            },
        )
        return {n: Topic(str(t.topic_id), len(t.partitions)) for n, t in asked.items()}

    def wants(self, topic: str) -> bool:
        own = (self._config.schema_topic, self._config.transaction_topic)
        return topic in own or wants_topic(self._config, topic)

    def bounds(
        self, places: Collection[Partition], *, first: bool = False, are_decided: bool = True
    ) -> dict[Partition, int]:
        """The offset behind the last message of each partition that is decided, or behind the last
        one of all; with ``first`` that of the first message.
        """
        if not places:
            return {}
        spec: Any = OffsetSpec
        spec = spec.earliest() if first else spec.latest()
        wanted = {TopicPartition(*place): spec for place in places}
        level = IsolationLevel.READ_COMMITTED if are_decided else IsolationLevel.READ_UNCOMMITTED

        def ask() -> dict[Partition, int]:
            futures = self._admin.list_offsets(
                wanted, isolation_level=level, request_timeout=_SECONDS
            )
            return {
                Partition(str(at.topic), int(at.partition)): int(future.result().offset)
                for at, future in futures.items()
            }

        return self._ask("asking where topics end", ask)

    def members(self, group: str) -> list[str]:
        """Who consumes as part of the group."""

        def ask() -> list[str]:
            future = self._admin.describe_consumer_groups([group], request_timeout=_SECONDS)[group]
            try:
                found = future.result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                    return []
                raise
            return [f"{member.client_id} at {member.host}" for member in found.members]

        return self._ask(f"asking for the group {group}", ask)

    def committed(self, group: str) -> dict[Partition, tuple[int, str]]:
        """What was committed under the group: offsets, and what stands beside each."""

        def ask() -> dict[Partition, tuple[int, str]]:
            request = [ConsumerGroupTopicPartitions(group)]
            future = self._admin.list_consumer_group_offsets(request, request_timeout=_SECONDS)
            try:
                found = future[group].result().topic_partitions
            except KafkaException as error:
                if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                    return {}
                raise
            return {
                Partition(at.topic, at.partition): (at.offset, at.metadata or "")
                for at in found
                if at.offset >= 0
            }

        return self._ask(f"asking for the offsets of group {group}", ask)

    def forget_group(self, group: str) -> bool:
        """Remove what was committed; False where there was nothing."""

        def ask() -> bool:
            future = self._admin.delete_consumer_groups([group], request_timeout=_SECONDS)[group]
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                    return False
                raise
            return True

        return self._ask(f"removing the group {group}", ask)

    def _ask(self, doing: str, question: Callable[[], Answer]) -> Answer:
        deadline = time.monotonic() + _SECONDS
        with kafka_errors(doing, self._trouble):
            while True:
                try:
                    return question()
                except KafkaException as error:
                    if error.args[0].code() not in _PASSING or time.monotonic() > deadline:
                        raise
                    time.sleep(_PAUSE_SECONDS)

    def _trouble(self) -> KafkaError | None:
        self._admin.poll(0)
        return self._last


def connection(config: KafkaSourceConfig) -> dict[str, Any]:
    """What every client is made with."""
    return {"log_level": _LOG_LEVEL, **config.client, "bootstrap.servers": config.brokers}


def wants_topic(config: KafkaSourceConfig, topic: str) -> bool:
    return any(
        re.fullmatch(wanted, topic) if wanted.startswith("^") else wanted == topic
        for wanted in config.topics
    )


def group_name(config: KafkaSourceConfig, pipeline: str) -> str:
    return config.group or f"penstock.{pipeline}"


class TopicReader:
    """Reads partitions from given offsets on. No member of its group: partitions are never taken
    away from it, and whoever else captures is kept out by the pipeline's lock.
    """

    def __init__(self, config: KafkaSourceConfig, group: str) -> None:
        self._last: KafkaError | None = None
        self._refused: KafkaError | None = None
        with kafka_errors("making a client"):
            self._consumer = Consumer(
                {
                    **connection(config),
                    "group.id": group,
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "auto.offset.reset": "error",
                    "isolation.level": "read_committed",
                    "enable.partition.eof": True,
                    "allow.auto.create.topics": False,
                    "queued.max.messages.kbytes": config.client.get(
                        "queued.max.messages.kbytes", "65536"
                    ),
                    "error_cb": self._met,
                    "on_commit": self._on_commit,
                }
            )
        self._assigned: set[Partition] = set()
        self._paused: frozenset[Partition] = frozenset()

    def add(
        self, places: Mapping[Partition, int], epochs: Mapping[Partition, int] | None = None
    ) -> None:
        """From these offsets on. ``epochs`` are those of the leaders that wrote what stands before
        them: where the brokers have lost that since, reading fails instead of going on behind it.
        """
        known = epochs or {}
        new = {place: at for place, at in places.items() if place not in self._assigned}
        if new:
            with kafka_errors("beginning to read topics"):
                self._consumer.incremental_assign(
                    [
                        TopicPartition(*place, at, leader_epoch=known[place])
                        if place in known
                        else TopicPartition(*place, at)
                        for place, at in new.items()
                    ]
                )
            self._assigned |= new.keys()

    def only(self, places: Collection[Partition] | None) -> None:
        """Ask for messages of these partitions alone for now; None for all."""
        paused = frozenset() if places is None else frozenset(self._assigned - set(places))
        if paused != self._paused:
            with kafka_errors("choosing what to read"):
                self._consumer.resume([TopicPartition(*place) for place in self._paused - paused])
                self._consumer.pause([TopicPartition(*place) for place in paused - self._paused])
            self._paused = paused

    def take(self, count: int, seconds: float) -> list[Any]:
        """Messages, and ends of partitions, as they come. Raises what is wrong with a partition."""
        with kafka_errors("reading topics", lambda: self._last):
            found = self._consumer.consume(count, seconds)
        if self._refused is not None:
            raise failure(self._refused, "committing offsets to the group")
        return found

    def commit(self, places: Mapping[Partition, int], tag: str) -> None:
        """Tell the group, for tools that show how far it is. Nothing depends on it."""
        offsets = [TopicPartition(*place, at, tag) for place, at in places.items()]
        with kafka_errors("committing offsets to the group"):
            self._consumer.commit(offsets=offsets, asynchronous=True)

    def close(self) -> None:
        self._consumer.close()

    def _met(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._last = error

    def _on_commit(self, error: KafkaError | None, _places: list[TopicPartition]) -> None:
        if error is not None and error.code() in (
            KafkaError.UNKNOWN_MEMBER_ID,
            KafkaError.ILLEGAL_GENERATION,
            KafkaError.FENCED_INSTANCE_ID,
            KafkaError.GROUP_AUTHORIZATION_FAILED,
        ):
            self._refused = error
