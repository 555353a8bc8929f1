"""Processes killed at random moments under load: `files` holds every change once, in order.

``PENSTOCK_CRASH_SEEDS=n`` runs n schedules instead of one; ``PENSTOCK_CRASH_SEED=k`` runs the one
of that seed, which a failed test names. Other faults, and more of them, are in test_chaos.py.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.crash.into_files import IntoFiles
from tests.crash.penstock_run import Part
from tests.fix_pipeline import wait_until
from tests.fix_postgres import FreshServer

pytestmark = [pytest.mark.slow, pytest.mark.release]


def seeds() -> list[int]:
    if "PENSTOCK_CRASH_SEED" in os.environ:
        return [int(os.environ["PENSTOCK_CRASH_SEED"])]
    return list(range(1, 1 + int(os.environ.get("PENSTOCK_CRASH_SEEDS", "1"))))


@pytest.mark.parametrize("seed", seeds(), ids=lambda seed: f"seed{seed}")
def test_random_injuries(fresh_server: FreshServer, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    # Each once; which of Spark's Python processes dies is left to chance.
    injuries = list(_INJURE)
    chance.shuffle(injuries)
    with IntoFiles(fresh_server(deadlock_timeout="50ms"), tmp_path, seed) as injured:
        injured.load.start()
        injured.start()
        for injury in injuries:
            injured.wait_delivering()
            injured.wait_load(chance.randint(1, 60))
            _INJURE[injury](injured, chance)
            injured.check_confirmed()
        injured.wait_delivering()
        injured.run.stop()
        injured.wait_load(5)
        injured.load.stop()
        injured.catch_up()
        injured.check_all()


def _kill_capture(injured: IntoFiles, _chance: random.Random) -> None:
    """The driver starts it again."""
    assert injured.run.kill("capture")


def _kill_python(injured: IntoFiles, chance: random.Random) -> None:
    """Spark repeats the task, or the driver plans the batch again."""
    parts: tuple[Part, ...] = ("worker", "worker daemon")
    assert injured.run.kill(chance.choice(parts))


def _kill_driver(injured: IntoFiles, _chance: random.Random) -> None:
    """JVM and capture must not outlive it."""
    injured.run.kill_driver()
    injured.run.wait_gone()
    injured.start()


def _kill_server(injured: IntoFiles, _chance: random.Random) -> None:
    """Whatever it had promised to the load is there when it is back."""
    injured.server.kill()
    injured.server.start()


def _end_walsender(injured: IntoFiles, _chance: random.Random) -> None:
    pid = wait_until(lambda: injured.pipeline.slot().active_pid, "capture streams")
    with psycopg.connect(injured.url, autocommit=True) as conn:
        conn.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])


_INJURE: dict[str, Callable[[IntoFiles, random.Random], None]] = {
    "capture": _kill_capture,
    "python": _kill_python,
    "driver": _kill_driver,
    "server": _kill_server,
    "walsender": _end_walsender,
}
