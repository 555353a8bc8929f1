"""One seed of chaos over a pipeline into webhooks, whose receiver fails all the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from penstock.embedded.postgres import EmbeddedPostgres
from tests.crash.chaos_seed import Say, SeedReport
from tests.crash.into_webhooks import IntoWebhooks
from tests.crash.queue_seed import PROCESS_FAULTS, run_queue_seed
from tests.webhook_receiver import Receiver

_LONGEST_SECONDS = 8.0


def _dead(injured: IntoWebhooks, amount: float) -> str:
    before, injured.share_of_errors = injured.share_of_errors, 1.0
    time.sleep(amount * _LONGEST_SECONDS)
    injured.share_of_errors = before
    return f"for {amount * _LONGEST_SECONDS:.1f} s"


FAULTS: dict[str, Callable[[IntoWebhooks, float], str]] = {
    "receiver dead": _dead,
    **PROCESS_FAULTS,
}


def run_into(
    report: SeedReport, count: int, server: EmbeddedPostgres, folder: Path, say: Say = print
) -> None:
    with (
        Receiver() as receiver,
        IntoWebhooks(server, receiver, folder, int(report.seed)) as injured,
    ):
        run_queue_seed(report, count, injured, FAULTS, say)
