"""What `penstock run` shows to others, without a run: metrics that grow, and the record of a run.

One process for many pipelines: python -m tests.fake_runs FILE… It ends in order on SIGTERM, fails
on SIGUSR1, and fails as one whose file is wrong on SIGUSR2.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

from penstock.config import load_pipeline
from penstock.config.metrics_config import ListenAddress
from penstock.metrics import catalogue as c
from penstock.metrics.pipeline_metrics import Metrics
from penstock.metrics.server import MetricsServer
from penstock.model.errors import ConfigError, PenstockError
from penstock.operations.exit_codes import exit_code_of
from penstock.operations.run_record import recorded_run

_TURN_SECONDS = 0.2


def main(files: list[str]) -> None:
    ending = threading.Event()
    failure: list[PenstockError] = []

    def fail(error: PenstockError) -> None:
        failure.append(error)
        ending.set()

    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    signal.signal(signal.SIGUSR1, lambda *_: fail(PenstockError("It failed.")))
    signal.signal(signal.SIGUSR2, lambda *_: fail(ConfigError("The file is wrong.")))
    dice = random.Random(7)
    with ExitStack() as stack:
        shown = []
        for text in files:
            file = Path(text)
            config = load_pipeline(file)
            metrics = Metrics(config.name)
            server = stack.enter_context(MetricsServer(metrics, ListenAddress("127.0.0.1", 0)))
            stack.enter_context(recorded_run(config, file, server.url))
            metrics.health.streams()
            metrics.health.tables(unsettled=0, errored=0)
            shown.append(metrics)
        print("ready", flush=True)
        level = 1000.0
        while not ending.wait(_TURN_SECONDS):
            level = min(4000.0, max(200.0, level + dice.uniform(-300, 300)))
            for metrics in shown:
                _work(metrics, level, dice)
        if failure:
            raise failure[0]


def _work(metrics: Metrics, level: float, dice: random.Random) -> None:
    rows = int(level * _TURN_SECONDS * dice.uniform(0.8, 1.2))
    registry = metrics.registry
    registry.add(c.RECEIVED_CHANGES, rows)
    registry.add(c.DELIVERED, max(0, rows - dice.randrange(40)), table="public.orders", op="I")
    registry.add(c.BATCHES)
    registry.observe(c.BATCH_SECONDS, dice.uniform(0.15, 0.6))
    registry.observe(c.COMMIT_SECONDS, dice.uniform(0.02, 0.1))
    registry.set(c.LOG_BYTES, int(40e6 + level * 9000))
    registry.set(c.UNCONFIRMED_BYTES, int(level * 800))
    registry.set(c.CAPTURE_STREAMING, 1)
    registry.set(c.TABLES, 6, phase="ready")
    metrics.health.turned(has_work=False)
    metrics.health.captures({"state": "streaming", "at": dice.random()})
    metrics.lag.source_is_at(int(1e9 + registry.total(c.RECEIVED_CHANGES) * 100))
    metrics.lag.delivered(
        int(1e9 + registry.total(c.RECEIVED_CHANGES) * 100 - dice.randrange(90000))
    )


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except PenstockError as error:
        sys.exit(exit_code_of(error))
