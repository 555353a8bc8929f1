"""One seed of chaos over a pipeline into Kafka: broker, driver and workers die under load."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from penstock.embedded.postgres import EmbeddedPostgres
from tests.crash.chaos_seed import Say, SeedReport
from tests.crash.into_kafka import IntoKafka
from tests.crash.queue_seed import PROCESS_FAULTS, run_queue_seed
from tests.kafka_server import KafkaServer

_LONGEST_SECONDS = 8.0


def _kill_broker(injured: IntoKafka, amount: float) -> str:
    injured.kafka.kill()
    return _away(injured, amount)


def _restart_broker(injured: IntoKafka, amount: float) -> str:
    injured.kafka.stop()
    return _away(injured, amount)


def _away(injured: IntoKafka, amount: float) -> str:
    seconds = amount * _LONGEST_SECONDS
    time.sleep(seconds)
    injured.kafka.start()
    return f"away for {seconds:.1f} s"


FAULTS: dict[str, Callable[[IntoKafka, float], str]] = {
    "broker killed": _kill_broker,
    "broker killed again": _kill_broker,
    "broker restarted": _restart_broker,
    **PROCESS_FAULTS,
}


def run_into(
    report: SeedReport, count: int, server: EmbeddedPostgres, folder: Path, say: Say = print
) -> None:
    """Odd seeds send in transactions, and nothing may be there twice; even ones do not."""
    seed = int(report.seed)
    with (
        KafkaServer() as kafka,
        IntoKafka(server, kafka, folder, seed, transactional=seed % 2 == 1) as injured,
    ):
        run_queue_seed(report, count, injured, FAULTS, say)
