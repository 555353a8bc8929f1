"""A destination that is away for a while, under load, with ``confirm: log``."""

from __future__ import annotations

import time
from pathlib import Path

from penstock.embedded.postgres import EmbeddedPostgres
from tests.crash.chaos_seed import Say, SeedReport
from tests.crash.into_postgres import IntoPostgres
from tests.fix_pipeline import wait_until

_LEAST_ROUNDS = 3


def run_outage(
    report: SeedReport,
    servers: tuple[EmbeddedPostgres, EmbeddedPostgres],
    folder: Path,
    seconds: float,
    say: Say = print,
) -> None:
    """Stop the destination for that long.

    Fails unless the slot follows the load meanwhile, one and the same run delivers again
    afterwards, and both databases hold the same rows in the end.
    """
    source, target = servers
    with IntoPostgres(source, target, folder, seed=5, confirm="log") as injured:
        injured.load.start()
        run = injured.start()
        injured.wait_delivering()
        target.stop("fast")
        began = time.monotonic()
        rounds = 0
        while rounds < _LEAST_ROUNDS or time.monotonic() < began + seconds:
            if rounds == 1:
                # Whoever starts capture again must not need the destination for it.
                assert run.kill("capture")
            _wait_slot_follows(injured)
            run.expect_running()
            rounds += 1
        away = time.monotonic() - began
        target.start()
        began = time.monotonic()
        injured.wait_delivering()
        back = time.monotonic() - began
        report.faults.append(f"destination away for {away:.0f} s: recovered in {back:.1f} s")
        say(f"  {report.faults[-1]}")
        for _ in range(_LEAST_ROUNDS):
            # The reader of the invariant has to see several states to tell anything.
            injured.wait_load(10)
            injured.wait_delivering()
        injured.load.stop()
        injured.wait_delivered()
        run.stop()
        report.judged(injured)


def _wait_slot_follows(injured: IntoPostgres) -> None:
    written = injured.pipeline.wal_end()
    injured.wait_load(10)
    wait_until(
        lambda: injured.pipeline.confirmed >= written,
        "the slot follows the load while the destination is away",
    )
