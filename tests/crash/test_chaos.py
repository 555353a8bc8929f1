"""One short seed of chaos; `make chaos` runs many long ones. docs/testing.md says how."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.chaos_seed import SeedReport, run_seed
from tests.crash.fault_schedule import plan_faults
from tests.crash.faults import FAULTS
from tests.crash.into_postgres import SERVER_SETTINGS
from tests.fix_postgres import FreshServer

pytestmark = [pytest.mark.newest_postgres]

SEED = "2"
KILLS = 5


@pytest.mark.slow
def test_a_short_seed(fresh_server: FreshServer, tmp_path: Path) -> None:
    servers = fresh_server(**SERVER_SETTINGS), fresh_server(**SERVER_SETTINGS)
    report = SeedReport(SEED)
    run_seed(report, KILLS, servers, tmp_path)
    assert len(report.faults) == KILLS
    assert report.rows > 0


def test_a_seed_brings_the_same_faults_again() -> None:
    assert plan_faults(7, 10) == plan_faults(7, 10)
    assert plan_faults(7, 10) != plan_faults(8, 10)


def test_a_few_seeds_bring_every_fault() -> None:
    seeds = -(-2 * len(FAULTS) // 10)
    kinds = {fault.kind for seed in range(1, 1 + seeds) for fault in plan_faults(seed, 10)}
    assert kinds == set(FAULTS)
