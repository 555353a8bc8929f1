"""A pipeline into Kinesis under load, judged record by record."""

from __future__ import annotations

from pathlib import Path

from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.lsn import Frontier
from tests.crash.injured_pipeline import SHORT_BATCHES, SMALL_SEGMENTS, InjuredPipeline
from tests.crash.passed_failpoints import passed_failpoints
from tests.crash.queue_judge import judge_events
from tests.crash.witness import call_witness
from tests.kinesis_proxy import Faults
from tests.kinesis_records import check_order, read_streams
from tests.kinesis_server import KinesisServer
from tests.workload import Workload

# Without aggregation a hot key, and a table without one, go a record a call; moto takes its time.
_PAUSE_SECONDS = {True: 0.5, False: 1.5}
STEADY = Faults(records=0.2, calls=0.02, answers=0.02)
"""What goes wrong all the time."""


class IntoKinesis(InjuredPipeline):
    """With a second slot as witness of every single change."""

    failpoints = passed_failpoints("kinesis")

    def __init__(
        self,
        server: EmbeddedPostgres,
        kinesis: KinesisServer,
        folder: Path,
        seed: int,
        *,
        aggregate: bool,
    ) -> None:
        super().__init__(server, folder, seed)
        self.load = Workload(self.url, seed, pause=_PAUSE_SECONDS[aggregate])
        self.kinesis = kinesis
        kinesis.proxy.set(STEADY, seed)
        self.pipeline.configure(
            destination={
                "type": "kinesis",
                **kinesis.destination,
                "aggregate": aggregate,
                "lanes": {"by": "key", "count": 3},
                "streams": {"shards": 2},
                # Shorter than the endpoint is away: what is under way has to be given up as well.
                "delivery_timeout": "5s",
            },
            batch=SHORT_BATCHES,
            **SMALL_SEGMENTS,
        )
        self.rewrite()
        self.publications = self.pipeline.subscribe().publications
        call_witness(self.url)

    def frontier(self) -> Frontier:
        reader = self.pipeline.log.reader(self.pipeline.name)
        return reader.frontier if reader else Frontier(0, 0)

    def check_all(self) -> int:
        self.check_confirmed()
        self.check_runs()
        records = read_streams(self.kinesis, lambda stream: stream == self.pipeline.name)
        check_order(records)
        events = [event for record in records for event in record.events]
        return judge_events(self, self.publications, events)
