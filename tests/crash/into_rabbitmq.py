"""A pipeline into RabbitMQ under load, judged message by message."""

from __future__ import annotations

from pathlib import Path

from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.lsn import Frontier
from tests.crash.injured_pipeline import SHORT_BATCHES, SMALL_SEGMENTS, InjuredPipeline
from tests.crash.passed_failpoints import passed_failpoints
from tests.crash.queue_judge import judge_events
from tests.crash.witness import call_witness
from tests.rabbitmq_messages import BoundQueue, check_order
from tests.rabbitmq_server import RabbitServer
from tests.workload import Workload

# Of a table without a key one message is under way at a time.
_PAUSE_SECONDS = 0.5


class IntoRabbitMq(InjuredPipeline):
    """With a second slot as witness of every single change."""

    failpoints = passed_failpoints("rabbitmq")

    def __init__(
        self, server: EmbeddedPostgres, rabbit: RabbitServer, folder: Path, seed: int
    ) -> None:
        super().__init__(server, folder, seed)
        self.load = Workload(self.url, seed, pause=_PAUSE_SECONDS)
        self.rabbit = rabbit
        self.pipeline.configure(
            destination={
                "type": "rabbitmq",
                **rabbit.destination,
                "lanes": {"by": "key", "count": 3},
                # Few, so that a fault meets some that have to wait.
                "max_unconfirmed": 100,
                # Shorter than the server is away: what is under way has to be given up as well.
                "delivery_timeout": "5s",
            },
            batch=SHORT_BATCHES,
            **SMALL_SEGMENTS,
        )
        self.rewrite()
        self.queue = BoundQueue(rabbit, self.pipeline.name)
        self.publications = self.pipeline.subscribe().publications
        call_witness(self.url)

    def frontier(self) -> Frontier:
        reader = self.pipeline.log.reader(self.pipeline.name)
        return reader.frontier if reader else Frontier(0, 0)

    def check_all(self) -> int:
        self.check_confirmed()
        self.check_runs()
        messages = self.queue.messages()
        check_order(messages)
        return judge_events(self, self.publications, [message.event for message in messages])
