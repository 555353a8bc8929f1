"""Processes killed at random moments under load: `files` holds every change once, in order.

``PENSTOCK_CRASH_SEEDS=n`` runs n schedules instead of one; ``PENSTOCK_CRASH_SEED=k`` runs the one
of that seed, which a failed test names.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.crash.injured_pipeline import InjuredPipeline
from tests.crash.penstock_run import Part, PenstockRun
from tests.fix_pipeline import wait_until
from tests.fix_postgres import FreshServer

pytestmark = [pytest.mark.slow, pytest.mark.newest_postgres]


def seeds() -> list[int]:
    if "PENSTOCK_CRASH_SEED" in os.environ:
        return [int(os.environ["PENSTOCK_CRASH_SEED"])]
    return list(range(1, 1 + int(os.environ.get("PENSTOCK_CRASH_SEEDS", "1"))))


@pytest.mark.parametrize("seed", seeds(), ids=lambda seed: f"seed{seed}")
def test_random_injuries(fresh_server: FreshServer, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    # Each once; which of Spark's Python processes dies is left to chance.
    injuries = ["capture", "python", "driver", "JVM", "server", "walsender"]
    chance.shuffle(injuries)
    with InjuredPipeline(fresh_server(deadlock_timeout="50ms"), tmp_path, seed) as injured:
        injured.load.start()
        run = injured.start()
        for injury in injuries:
            injured.wait_delivering(run)
            injured.wait_load(chance.randint(1, 60))
            run = _INJURE[injury](injured, run, chance)
            injured.check_confirmed()
        injured.wait_delivering(run)
        run.stop()
        injured.wait_load(5)
        injured.load.stop()
        injured.catch_up()
        injured.check_all()


def _kill(run: PenstockRun, part: Part) -> None:
    process = wait_until(lambda: run.find(part), f"there is a {part}")
    assert process is not None
    process.kill()
    wait_until(lambda: process.pid not in {p.pid for p in run.processes()}, f"the {part} is dead")


def _kill_capture(
    _injured: InjuredPipeline, run: PenstockRun, _chance: random.Random
) -> PenstockRun:
    """The driver starts it again."""
    _kill(run, "capture")
    return run


def _kill_python(_injured: InjuredPipeline, run: PenstockRun, chance: random.Random) -> PenstockRun:
    """Spark repeats the task, or the driver begins the query again."""
    parts: tuple[Part, ...] = ("worker", "worker daemon", "stream reader")
    _kill(run, chance.choice(parts))
    return run


def _kill_driver(injured: InjuredPipeline, run: PenstockRun, _chance: random.Random) -> PenstockRun:
    """JVM and capture must not outlive it."""
    run.kill_driver()
    run.wait_gone()
    return injured.start()


def _kill_jvm(injured: InjuredPipeline, run: PenstockRun, _chance: random.Random) -> PenstockRun:
    """Without it the command ends, says so, and takes capture with it."""
    _kill(run, "JVM")
    run.wait_gone()
    assert run.exit_code == 1, run.output[-3000:]
    assert "Spark's JVM ended unexpectedly" in run.output
    return injured.start()


def _kill_server(injured: InjuredPipeline, run: PenstockRun, _chance: random.Random) -> PenstockRun:
    """Whatever it had promised to the load is there when it is back."""
    injured.server.kill()
    injured.server.start()
    return run


def _end_walsender(
    injured: InjuredPipeline, run: PenstockRun, _chance: random.Random
) -> PenstockRun:
    pid = wait_until(lambda: injured.pipeline.slot().active_pid, "capture streams")
    with psycopg.connect(injured.url, autocommit=True) as conn:
        conn.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
    return run


_INJURE: dict[str, Callable[[InjuredPipeline, PenstockRun, random.Random], PenstockRun]] = {
    "capture": _kill_capture,
    "python": _kill_python,
    "driver": _kill_driver,
    "JVM": _kill_jvm,
    "server": _kill_server,
    "walsender": _end_walsender,
}
