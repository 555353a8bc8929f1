"""encode: how fast one core makes messages of w1's changes, with no queue behind it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

from bench.process_usage import usage
from bench.readers import measure_capture
from bench.results import Measurement
from bench.server import BenchDatabase, BenchPipeline
from bench.settings import ENCODERS, turns
from bench.workloads import Workload
from penstock.changelog import chain
from penstock.changelog.changelog import ChangeLog
from penstock.decode.changes import ChangeSet
from penstock.destination.families.queue.events import Encoder
from penstock.destination.families.queue.formats import Formats
from penstock.destination.families.queue.options import LaneOptions
from penstock.destination.families.queue.oversize import Oversize
from penstock.destination.kafka.options import KafkaOptions
from penstock.source.postgres.catalogue.definitions import read_definitions
from penstock.spark.task_input import TaskInput


def measure_encoders(
    database: BenchDatabase,
    workload: Workload,
    systems: tuple[str, ...],
    rounds: int,
    say: Callable[[str], None],
) -> Iterator[Measurement]:
    """Seconds are those of the processor, of all threads together."""
    workload.create(database.conn)
    pipeline = database.pipeline("encode")
    load = workload.load(database.conn)
    measure_capture(database, workload.name, pipeline, load)
    changes = captured_changes(pipeline)
    for number, system in turns(systems, rounds):
        encoder = encoder_of(database, pipeline, ENCODERS[system])
        began = time.process_time()
        for _part in encoder.parts(changes):
            pass
        spent = time.process_time() - began
        rss = usage(os.getpid()).peak_rss_mb
        measured = Measurement("encode", system, load.changes, spent, spent, None, rss)
        say(f"encode round {number + 1} of {rounds}: {system} {measured.rows_per_s:,.0f} rows/s")
        yield measured


def captured_changes(pipeline: BenchPipeline) -> list[ChangeSet]:
    """All that the log has, as tasks get it."""
    log = ChangeLog(pipeline.config.change_log.path)
    listing = log.list()
    assert listing.frontier is not None  # noqa: S101 (something was captured)
    first, last = pipeline.subscription.start_lsn, listing.frontier.commit_lsn
    pointers = chain.between(listing.segments, listing.sizes, first, last)
    buffer_bytes = pipeline.config.batch.buffer_bytes
    return list(TaskInput(pointers, buffer_bytes).changes(log))


def encoder_of(
    database: BenchDatabase, pipeline: BenchPipeline, name: str, *, tombstones: bool = True
) -> Encoder:
    """That of a queue which gets this format."""
    given = {"brokers": "nowhere", "format": name, "debezium": {"tombstones": tombstones}}
    options = KafkaOptions.model_validate(given)
    formats = Formats(options, pipeline.config.name)
    subscription = pipeline.subscription
    formats.know(read_definitions(database.conn, subscription.tables, subscription.publications))
    oversize = Oversize("kafka", options.max_message_bytes, "error", "")
    return Encoder(formats.format(), LaneOptions(), oversize)
