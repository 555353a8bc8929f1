"""The topics that a pipeline writes to, and making them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from penstock.destination.kafka.failures import failure
from penstock.destination.kafka.options import KafkaOptions
from penstock.destination.kafka.troubles import Troubles
from penstock.model.errors import DestinationError

_TIMEOUT_SECONDS = 30.0
_ANSWER_SECONDS = 5.0

Answer = TypeVar("Answer")


class Topics:
    """Topics on the brokers. Makes a client for each question: they are rare."""

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options

    def partitions(self) -> dict[str, int]:
        """How many partitions each topic has."""
        found = self._ask(lambda admin: admin.list_topics(timeout=_ANSWER_SECONDS).topics)
        return {name: len(topic.partitions) for name, topic in found.items() if topic.error is None}

    def make(self, names: Iterable[str]) -> dict[str, int]:
        """Let these topics be there; says how many partitions each of all topics has."""
        known = self.partitions()
        missing = sorted(set(names) - set(known))
        if not missing:
            return known
        wanted = self._options.topics
        if not wanted.create:
            raise DestinationError(
                f"destination kafka: topic {missing[0]} does not exist",
                remedy="create it, or let Penstock do so with destination.topics.create: true",
            )
        self._create(missing, wanted.partitions or -1, wanted.config)
        return self.partitions()

    def make_positions(self, name: str, partitions: int) -> None:
        """Let the topic of positions be there, with as many partitions."""
        known = self.partitions().get(name)
        if known is None:
            config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
            self._create([name], partitions, config)
        elif known < partitions:
            raise DestinationError(
                f"destination kafka: topic {name} has {known} partitions and needs {partitions}",
                remedy="give destination.positions_topic another name, or leave destination.lanes "
                "as it was",
            )

    def try_to_make(self, names: Iterable[str]) -> None:
        """Raise what would keep these topics from being made. None is."""
        wanted = self._options.topics
        self._create(list(names), wanted.partitions or -1, wanted.config, only_try=True)

    def expect_writable(self, names: Iterable[str]) -> None:
        """Raise unless the user may write to these topics, which are there."""
        asked = TopicCollection(list(names))
        found = self._results(
            lambda admin: admin.describe_topics(
                asked, include_authorized_operations=True, request_timeout=_TIMEOUT_SECONDS
            ),
            "asking what the user may do with topic",
        )
        for name, topic in found.items():
            # Brokers before 2.3 do not tell.
            allowed = topic.authorized_operations
            if allowed and not {AclOperation.WRITE, AclOperation.ALL}.intersection(allowed):
                raise DestinationError(
                    f"destination kafka: the user may not write to topic {name}",
                    remedy="grant it Write on the topic; docs/destinations/kafka.md has all rights",
                )

    def _create(
        self,
        names: list[str],
        partitions: int,
        config: Mapping[str, str],
        *,
        only_try: bool = False,
    ) -> None:
        replication = self._options.topics.replication or -1
        topics = [NewTopic(name, partitions, replication, config=dict(config)) for name in names]
        self._results(
            lambda admin: admin.create_topics(
                topics,
                operation_timeout=_TIMEOUT_SECONDS,
                request_timeout=_TIMEOUT_SECONDS,
                validate_only=only_try,
            ),
            "creating topic",
            KafkaError.TOPIC_ALREADY_EXISTS,
        )

    def _results(
        self,
        question: Callable[[AdminClient], Mapping[str, Future[Any]]],
        doing: str,
        harmless: int | None = None,
    ) -> dict[str, Any]:
        """What became of each topic; those with the harmless error are left out."""

        def answers(admin: AdminClient) -> dict[str, Any]:
            found = {}
            for name, future in question(admin).items():
                try:
                    found[name] = future.result()
                except KafkaException as error:
                    if error.args[0].code() != harmless:
                        raise failure(error, f"{doing} {name}") from None
            return found

        return self._ask(answers)

    def _ask(self, question: Callable[[AdminClient], Answer]) -> Answer:
        troubles = Troubles()
        settings: dict[str, Any] = {**self._options.connection, "error_cb": troubles}
        try:
            admin = AdminClient(settings)
        except KafkaException as error:
            raise failure(error, "making a client") from None
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while True:
            try:
                return question(admin)
            except KafkaException as error:
                admin.poll(0)  # so that it tells of its troubles
                # Without any it may only be slow.
                if troubles.last is not None or time.monotonic() > deadline:
                    raise failure(error, "asking the brokers", troubles) from None
