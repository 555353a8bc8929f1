"""What seeds of chaos over pipelines into queues share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from tests.crash.chaos_seed import Say, SeedReport, Supervisor, bring
from tests.crash.fault_schedule import plan_faults
from tests.crash.injured_pipeline import InjuredPipeline
from tests.crash.process_faults import (
    crash_source,
    failpoint,
    kill,
    kill_driver,
    stale_driver,
)

Injured = TypeVar("Injured", bound=InjuredPipeline)

PROCESS_FAULTS: dict[str, Callable[[InjuredPipeline, float], str]] = {
    "capture killed": partial(kill, "capture"),
    "driver killed": kill_driver,
    "JVM killed": partial(kill, "JVM"),
    "worker killed": partial(kill, "worker"),
    "worker daemon killed": partial(kill, "worker daemon"),
    "stale driver": stale_driver,
    "failpoint": failpoint,
    "source crashed": crash_source,
}


def run_queue_seed(
    report: SeedReport,
    count: int,
    injured: Injured,
    faults: Mapping[str, Callable[[Injured, float], str]],
    say: Say,
) -> None:
    """Faults under load. Fails unless every change is there, and those of each key in order."""
    supervisor = Supervisor(injured)
    injured.load.start()
    injured.start()
    supervisor.wait_recovered()
    for number, fault in enumerate(plan_faults(int(report.seed), count, faults)):
        line = bring(fault, injured, supervisor, faults)
        report.faults.append(line)
        say(f"  {number + 1:3} {line}")
    injured.load.stop()
    injured.wait_delivered()
    injured.run.stop()
    report.rows = injured.check_all()
    report.transactions = injured.load.count
