"""How far a pipeline has read its topics, for `penstock status`."""

from __future__ import annotations

from penstock.changelog.changelog import ChangeLog
from penstock.config.kafka_source import KafkaPipelineConfig
from penstock.model.topic_status import TopicStatus
from penstock.source.kafka.client import Brokers, group_name
from penstock.source.kafka.identity import stored_offsets
from penstock.source.kafka.offsets import Offsets, Partition


def read_topic_status(config: KafkaPipelineConfig) -> TopicStatus:
    brokers = Brokers(config.source)
    topics = brokers.topics()
    held = stored_offsets(ChangeLog.of(config.change_log)) or Offsets()
    places = [Partition(name, n) for name, topic in topics.items() for n in range(topic.partitions)]
    ends, first = brokers.bounds(places), brokers.bounds(places, first=True)
    behind = dict.fromkeys(topics, 0)
    for place in places:
        state = held.partitions.get(place)
        behind[place.topic] += ends[place] - (first[place] if state is None else state.next)
    return TopicStatus(config.source.brokers, group_name(config.source, config.name), behind)
