"""The topics that a pipeline writes to, and making them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.destination.kafka.failures import failure
from penstock.destination.kafka.options import KafkaOptions
from penstock.errors import DestinationError

_TIMEOUT_SECONDS = 30.0


class Topics:
    """Topics on the broker."""

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._admin = AdminClient(options.connection)

    def partitions(self) -> dict[str, int]:
        """How many partitions each topic has."""
        try:
            found = self._admin.list_topics(timeout=_TIMEOUT_SECONDS).topics
        except KafkaException as error:
            raise failure(error, "asking for topics") from None
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

    def _create(self, names: list[str], partitions: int, config: Mapping[str, str]) -> None:
        replication = self._options.topics.replication or -1
        made = self._admin.create_topics(
            [NewTopic(name, partitions, replication, config=dict(config)) for name in names],
            operation_timeout=_TIMEOUT_SECONDS,
            request_timeout=_TIMEOUT_SECONDS,
        )
        for name, future in made.items():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise failure(error, f"creating topic {name}") from None
