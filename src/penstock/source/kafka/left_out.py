"""Messages that are not taken although they came: the pipeline file says whether that stops it."""

from __future__ import annotations

from penstock.config.kafka_source import KafkaSourceConfig
from penstock.model.errors import SourceError
from penstock.source.capture.say import say
from penstock.source.kafka.events import Event, Malformed, ToldTruncate
from penstock.source.kafka.offsets import Partition
from penstock.source.kafka.topic_set import TopicSet
from penstock.source.kafka.transcode import Counts, keeps_order


class LeftOut:
    """Counts and says what is left out. Raises SourceError where nothing may be."""

    def __init__(self, source: KafkaSourceConfig, topics: TopicSet, counts: Counts) -> None:
        self._source = source
        self._topics = topics
        self._counts = counts

    def is_out(self, place: Partition, offset: int, event: Event) -> bool:
        """Whether it is a TRUNCATE without an order, and left out."""
        if not isinstance(event, ToldTruncate):
            return False
        if keeps_order(event.lane, others=False) and not self._topics.others_have_messages(place):
            return False
        names = ", ".join(str(table.table_name) for table in event.tables)
        if self._source.on_truncate == "leave_out":
            say(
                f"TRUNCATE of {names} at offset {offset} of {place} was left out "
                "(source.on_truncate); rows stay at the destination"
            )
            return True
        raise SourceError(
            f"TRUNCATE of {names} at offset {offset} of {place} stands in no order with the "
            "table's rows: they are written by several lanes, or to several partitions",
            remedy="let the pipeline that writes the topic keep tables together (destination."
            "lanes: {by: table}), and begin anew; or set source.on_truncate to leave_out, and "
            "empty the table at the destination yourself",
        )

    def malformed(self, place: Partition, offset: int, error: Exception) -> None:
        said = error.message if isinstance(error, Malformed) else str(error)
        message = f"the message at offset {offset} of {place} is malformed: {said}"
        if self._source.on_malformed == "stop":
            raise SourceError(
                message,
                remedy="see who writes to the topic; with source.on_malformed: leave_out such "
                "messages are counted, logged and left out",
            ) from None
        self._counts.malformed += 1
        count = self._counts.by_topic[place.topic] = self._counts.by_topic.get(place.topic, 0) + 1
        say(f"{message}; it is left out (number {count})")
