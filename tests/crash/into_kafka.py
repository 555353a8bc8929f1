"""A pipeline into Kafka under load, judged message by message."""

from __future__ import annotations

import json
from pathlib import Path

from penstock.destination.registry import make_destination
from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.errors import DestinationUnavailable
from penstock.model.lsn import Frontier
from tests.crash.injured_pipeline import SHORT_BATCHES, SMALL_SEGMENTS, InjuredPipeline
from tests.crash.passed_failpoints import passed_failpoints
from tests.crash.queue_judge import judge_events
from tests.crash.witness import call_witness
from tests.kafka_messages import check_order, place, read_topics
from tests.kafka_server import KafkaServer


class IntoKafka(InjuredPipeline):
    """With a second slot as witness of every single change."""

    failpoints = passed_failpoints("kafka")

    def __init__(
        self,
        server: EmbeddedPostgres,
        kafka: KafkaServer,
        folder: Path,
        seed: int,
        *,
        transactional: bool,
    ) -> None:
        super().__init__(server, folder, seed)
        self.kafka = kafka
        self.transactional = transactional
        self.pipeline.configure(
            destination={
                "type": "kafka",
                "brokers": kafka.brokers,
                "transactional": transactional,
                "lanes": {"by": "key", "count": 3},
                "topics": {"partitions": 3},
                # Shorter than the broker is away: what is under way has to be given up as well.
                "delivery_timeout": "5s",
            },
            batch=SHORT_BATCHES,
            **SMALL_SEGMENTS,
        )
        self.rewrite()
        self.publications = self.pipeline.subscribe().publications
        call_witness(self.url)

    def frontier(self) -> Frontier:
        if not self.transactional:
            reader = self.pipeline.log.reader(self.pipeline.name)
            return reader.frontier if reader else Frontier(0, 0)
        config = self.pipeline.config
        destination = make_destination("kafka", config.destination_options, config.name)
        try:
            committed = destination.committed()
            return committed.frontier if committed else Frontier(0, 0)
        except DestinationUnavailable:
            return Frontier(0, 0)
        finally:
            destination.close()

    def check_all(self) -> int:
        self.check_confirmed()
        self.check_runs()
        messages = read_topics(
            self.kafka.brokers, lambda topic: topic.startswith(f"{self.pipeline.name}.")
        )
        if self.transactional:
            places = [(message.topic(), place(message)) for message in messages]
            assert len(places) == len(set(places)), "a message is there twice"
        check_order(messages)
        values = [json.loads(m.value() or b"", parse_int=str, parse_float=str) for m in messages]
        return judge_events(self, self.publications, values)
