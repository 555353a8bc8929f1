"""The topics and partitions that are read: found, and compared with those of yesterday."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.config.kafka_source import KafkaSourceConfig
from penstock.model.errors import IdentityChanged, SourceError
from penstock.source.capture.say import say
from penstock.source.kafka.client import Brokers, Topic, wants_topic
from penstock.source.kafka.offsets import Offsets, Partition, PartitionState
from penstock.source.kafka.topic_tables import ToldTable

_ANEW = (
    "Begin anew: `penstock destroy FILE`, then `penstock run FILE`, which reads all topics from "
    "their beginning. Rows at the destination stay, and those that are gone from the source stay, "
    "too: empty its tables before."
)


class TopicSet:
    """Puts what it finds into the offsets."""

    def __init__(self, config: KafkaSourceConfig, brokers: Brokers, offsets: Offsets) -> None:
        self._config = config
        self._brokers = brokers
        self._offsets = offsets
        self._waiting: dict[Partition, int] = {}
        self._until: dict[Partition, int] = {}
        self._counts: dict[str, int] = {}

    def look(self, *, is_first: bool) -> dict[Partition, int]:
        """Partitions that may be read from now on, and from which offset. ``is_first``: no message
        of this session was taken.

        Raises IdentityChanged where a topic is another one than yesterday, and SourceError where
        messages are gone that were not read.
        """
        topics = {
            name: topic
            for name, topic in self._brokers.topics().items()
            if name == self._config.transaction_topic
            or (wants_topic(self._config, name) and name != self._config.schema_topic)
        }
        self._expect_transaction_topic(topics)
        if not topics and not self._offsets.partitions:
            raise SourceError(
                f"source kafka: there is no topic that source.topics names "
                f"({', '.join(self._config.topics[:5])})",
                remedy="write names of topics as they are; a pattern begins with ^ and matches "
                "whole names, such as ^shop\\.public\\..*",
            )
        self._counts = {name: topic.partitions for name, topic in topics.items()}
        for name, topic in topics.items():
            expect_same(self._offsets.topic_ids, name, topic)
        there = [Partition(n, number) for n, t in topics.items() for number in range(t.partitions)]
        first = self._brokers.bounds(there, first=True)
        known = {place: s.next for place, s in self._offsets.partitions.items() if place in first}
        for place, at in known.items():
            if first[place] > at:
                raise self.gone(place, at, first[place])
        self._forget_deleted(first)
        new = [place for place in there if place not in known and place not in self._waiting]
        if new:
            # Where transactions are put together, they say what comes after what.
            at_once = self._config.transaction_topic is not None or (is_first and not known)
            self._begin(new, first, topics, at_once=at_once)
        return known | self._released()

    def _expect_transaction_topic(self, topics: Mapping[str, Topic]) -> None:
        """Raise SourceError where ENDs have no order, or will not come."""
        name = self._config.transaction_topic
        if name is None or (name in topics and topics[name].partitions == 1):
            return
        found = "it is not there"
        if name in topics:
            found = f"it has {topics[name].partitions} partitions"
        raise SourceError(
            f"source kafka: the transaction topic {name} has to have one partition, which alone "
            f"gives the ends of transactions an order, and {found}",
            remedy="let Debezium write transactions (provide.transaction.metadata: true) into a "
            "topic of one partition, and name it as source.transaction_topic: it is called "
            "<topic.prefix>.transaction",
        )

    def places_of(self, topic: str) -> tuple[Partition, ...] | None:
        """Its partitions, none where it was not made yet; None where it is not read, or deleted."""
        if not wants_topic(self._config, topic) or topic == self._config.transaction_topic:
            return None
        if topic in self._counts:
            return tuple(Partition(topic, number) for number in range(self._counts[topic]))
        return None if topic in self._offsets.topic_ids else ()

    def _begin(
        self,
        new: list[Partition],
        first: dict[Partition, int],
        topics: dict[str, Topic],
        *,
        at_once: bool,
    ) -> None:
        for place in new:
            if first[place] and place.topic == self._config.transaction_topic:
                raise SourceError(
                    f"the first {first[place]} messages of the transaction topic {place.topic} are "
                    "gone (retention): rows of which transactions stand in the other topics, and "
                    "how many, is not known",
                    remedy="begin with topics without the old rows, or leave out "
                    "source.transaction_topic and set source.split_transactions to accept; give "
                    "the topic the retention of the others",
                )
            if first[place] and self._config.incomplete == "refuse":
                raise SourceError(
                    f"the first {first[place]} messages of {place} are gone (retention): rows that "
                    "only they told of would be missing at the destination",
                    remedy="let the table be copied into its topic anew (`penstock tables resync` "
                    "in the pipeline that writes it), and set source.incomplete to accept",
                )
        self._waiting |= {place: first[place] for place in new}
        if not at_once:
            # Asked after the new ones were found: what came before their first messages is there.
            others = [place for place in self._offsets.partitions if place.topic in topics]
            self._until |= self._brokers.bounds(others)
        for place in new:
            self._offsets.topic_ids[place.topic] = topics[place.topic].id

    def _forget_deleted(self, there: Collection[Partition]) -> None:
        """What is deleted has no end that could be reached: nobody waits for it."""
        for place in [place for place in self._until if place not in there]:
            end, at = self._until.pop(place), self._offsets.partitions[place].next
            if at < end:
                say(f"{place} was deleted, and {end - at} messages of it were not read")
        self._waiting = {place: at for place, at in self._waiting.items() if place in there}

    def _released(self) -> dict[Partition, int]:
        states = self._offsets.partitions
        if any(states[place].next < end for place, end in self._until.items()):
            return {}
        ready, self._waiting, self._until = self._waiting, {}, {}
        for place, at in ready.items():
            states[place] = PartitionState(at)
        return ready

    def partitions(self, topic: str) -> int:
        """How many it has, as far as was seen."""
        return self._counts.get(topic, 1)

    def expect_topic_of(self, table: ToldTable, place: Partition, offset: int) -> None:
        """Raises SourceError where the table's messages stand in another topic, too."""
        known = self._offsets.topic_of.setdefault(table.oid, place.topic)
        if known == place.topic:
            return
        if known not in self._counts:
            # It was deleted, or the pipeline file asks for it no more.
            self._offsets.topic_of[table.oid] = place.topic
            return
        raise SourceError(
            f"the message at offset {offset} of {place} is about table {table.table_name}, whose "
            f"messages stand in topic {known}: a second pipeline writes it, or somebody who is "
            "none, and nothing orders the two topics",
            remedy="name the topics of one pipeline alone in source.topics, so that "
            f"{place.topic} (or {known}) is none of them; see who may make topics of such names",
        )

    def others_have_messages(self, place: Partition) -> bool:
        """Whether other partitions of its topic have messages, read or not, or had some."""
        topic = self._brokers.topics().get(place.topic)
        there = {
            Partition(place.topic, number) for number in range(topic.partitions if topic else 0)
        }
        read = {other for other in self._offsets.partitions if other.topic == place.topic}
        ends = self._brokers.bounds(there - {place}, are_decided=False)
        return any(ends.values()) or any(
            self._offsets.partitions[other].next > 0 for other in read - {place}
        )

    def first(self, place: Partition) -> int:
        return self._brokers.bounds([place], first=True)[place]

    def gone(self, place: Partition, at: int, first: int | None = None) -> SourceError:
        """What to say where the next message is not there any more."""
        where = "" if first is None else f", and the first one that is left has offset {first}"
        return SourceError(
            f"messages of {place} are gone that were not read (retention, deleted by somebody, "
            "or lost when a replica without them became the leader): "
            f"the change log goes on at offset {at}{where}",
            remedy=f"{_ANEW} Give the topic a longer retention.",
        )


def expect_same(topic_ids: Mapping[str, str], name: str, topic: Topic) -> None:
    """Raise IdentityChanged where a topic was deleted and made again."""
    known = topic_ids.get(name)
    if known is not None and known != topic.id:
        raise IdentityChanged(
            f"Topic {name} is another one than before (id {topic.id} instead of {known}): it was "
            "deleted and made again, and offsets of the one mean nothing in the other.",
            remedy=_ANEW,
        )
