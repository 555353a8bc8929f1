"""One seed of chaos over a pipeline into ClickHouse, whose engine dies and loses answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from penstock.embedded.postgres import EmbeddedPostgres
from tests.clickhouse_server import ClickHouseServer
from tests.crash.chaos_seed import Say, SeedReport
from tests.crash.into_clickhouse import STEADY, IntoClickHouse
from tests.crash.queue_seed import PROCESS_FAULTS, run_queue_seed
from tests.search_proxy import Faults

_LONGEST_SECONDS = 8.0
# Shorter than the engine is away: what is under way has to be given up as well.
_TIMEOUT = "5s"


def _killed(injured: IntoClickHouse, amount: float) -> str:
    injured.clickhouse.kill()
    time.sleep(amount * _LONGEST_SECONDS)
    injured.clickhouse.start()
    return "started again"


def _away(injured: IntoClickHouse, amount: float) -> str:
    return _for_a_while(injured, Faults(connections=1.0), amount)


def _busy(injured: IntoClickHouse, amount: float) -> str:
    return _for_a_while(injured, Faults(requests=0.7), amount)


def _deaf(injured: IntoClickHouse, amount: float) -> str:
    """What is asked for is done, and nobody hears of it."""
    return _for_a_while(injured, Faults(answers=0.7), amount)


def _for_a_while(injured: IntoClickHouse, faults: Faults, amount: float) -> str:
    seconds = amount * _LONGEST_SECONDS
    seed = int(amount * 1000)
    injured.proxy.set(faults, seed)
    time.sleep(seconds)
    injured.proxy.set(STEADY, seed)
    return f"for {seconds:.1f} s"


FAULTS: dict[str, Callable[[IntoClickHouse, float], str]] = {
    "engine killed": _killed,
    "engine away": _away,
    "engine refuses": _busy,
    "answers lost": _deaf,
    **PROCESS_FAULTS,
}


def run_into(
    report: SeedReport, count: int, server: EmbeddedPostgres, folder: Path, say: Say = print
) -> None:
    """Bring ``count`` faults over a pipeline from the server into ClickHouse. Fails unless readers
    see every row in the end as at the source, and no other.
    """
    with (
        ClickHouseServer() as clickhouse,
        IntoClickHouse(server, clickhouse, folder, int(report.seed), timeout=_TIMEOUT) as injured,
    ):
        run_queue_seed(report, count, injured, FAULTS, say)
