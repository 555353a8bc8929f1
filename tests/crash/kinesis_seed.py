"""One seed of chaos over a pipeline into Kinesis, whose records fail all the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from penstock.embedded.postgres import EmbeddedPostgres
from tests.crash.chaos_seed import Say, SeedReport
from tests.crash.into_kinesis import STEADY, IntoKinesis
from tests.crash.queue_seed import PROCESS_FAULTS, run_queue_seed
from tests.kinesis_proxy import Faults
from tests.kinesis_server import KinesisServer, use_test_credentials

_LONGEST_SECONDS = 8.0


def _away(injured: IntoKinesis, amount: float) -> str:
    return _for_a_while(injured, Faults(connections=1.0), amount)


def _throttled(injured: IntoKinesis, amount: float) -> str:
    return _for_a_while(injured, Faults(calls=0.5, records=0.9), amount)


def _deaf(injured: IntoKinesis, amount: float) -> str:
    """Records arrive, and nobody hears of it."""
    return _for_a_while(injured, Faults(answers=1.0), amount)


def _for_a_while(injured: IntoKinesis, faults: Faults, amount: float) -> str:
    seconds = amount * _LONGEST_SECONDS
    seed = int(amount * 1000)
    injured.kinesis.proxy.set(faults, seed)
    time.sleep(seconds)
    injured.kinesis.proxy.set(STEADY, seed)
    return f"for {seconds:.1f} s"


FAULTS: dict[str, Callable[[IntoKinesis, float], str]] = {
    "endpoint away": _away,
    "endpoint throttles": _throttled,
    "answers lost": _deaf,
    **PROCESS_FAULTS,
}


def run_into(
    report: SeedReport, count: int, server: EmbeddedPostgres, folder: Path, say: Say = print
) -> None:
    """Odd seeds let events share records; even ones do not."""
    use_test_credentials()
    seed = int(report.seed)
    with (
        KinesisServer() as kinesis,
        IntoKinesis(server, kinesis, folder, seed, aggregate=seed % 2 == 1) as injured,
    ):
        run_queue_seed(report, count, injured, FAULTS, say)
