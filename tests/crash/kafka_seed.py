"""One seed of chaos over a pipeline into Kafka: broker, driver and workers die under load."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from penstock.demo.embedded_postgres import EmbeddedPostgres
from tests.crash.chaos_seed import Say, SeedReport, Supervisor, bring
from tests.crash.fault_schedule import plan_faults
from tests.crash.into_kafka import IntoKafka
from tests.crash.process_faults import (
    crash_source,
    delete_checkpoint,
    failpoint,
    kill,
    kill_driver,
    stale_driver,
)
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
    "capture killed": partial(kill, "capture"),
    "driver killed": kill_driver,
    "JVM killed": partial(kill, "JVM"),
    "worker killed": partial(kill, "worker"),
    "worker daemon killed": partial(kill, "worker daemon"),
    "checkpoint deleted": delete_checkpoint,
    "stale driver": stale_driver,
    "failpoint": failpoint,
    "source crashed": crash_source,
}


def run_kafka_seed(
    report: SeedReport, count: int, server: EmbeddedPostgres, folder: Path, say: Say = print
) -> None:
    """Odd seeds send in transactions, and nothing may be there twice; even ones do not.

    Fails unless every change is there, and those of each key in order.
    """
    seed = int(report.seed)
    with (
        KafkaServer() as kafka,
        IntoKafka(server, kafka, folder, seed, transactional=seed % 2 == 1) as injured,
    ):
        supervisor = Supervisor(injured)
        injured.load.start()
        injured.start()
        supervisor.wait_recovered()
        for number, fault in enumerate(plan_faults(seed, count, FAULTS)):
            line = bring(fault, injured, supervisor, FAULTS)
            report.faults.append(line)
            say(f"  {number + 1:3} {line}")
        injured.load.stop()
        injured.wait_delivered()
        injured.run.stop()
        report.rows = injured.check_all()
        report.transactions = injured.load.count
