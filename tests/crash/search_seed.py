"""One seed of chaos over a pipeline into a search server, which dies, rejects and loses answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from penstock.embedded.postgres import EmbeddedPostgres
from tests.crash.chaos_seed import Say, SeedReport
from tests.crash.into_search import STEADY, IntoSearch
from tests.crash.queue_seed import PROCESS_FAULTS, run_queue_seed
from tests.opensearch_server import OpenSearchServer
from tests.search_proxy import Faults

_LONGEST_SECONDS = 8.0
# Shorter than the server is away: what is under way has to be given up as well.
_TIMEOUT = "5s"


def _killed(injured: IntoSearch, amount: float) -> str:
    injured.search.kill()
    injured.search.start()
    return "started again"


def _away(injured: IntoSearch, amount: float) -> str:
    return _for_a_while(injured, Faults(connections=1.0), amount)


def _busy(injured: IntoSearch, amount: float) -> str:
    return _for_a_while(injured, Faults(requests=0.5, documents=0.9), amount)


def _deaf(injured: IntoSearch, amount: float) -> str:
    """What is asked for is done, and nobody hears of it."""
    return _for_a_while(injured, Faults(answers=0.9), amount)


def _small(injured: IntoSearch, amount: float) -> str:
    """A proxy before the server takes small requests alone, but any single row of the load: up to
    9,000 characters of two bytes and some more. A larger one would be refused for good.
    """
    return _for_a_while(injured, Faults(largest=32 * 1024), amount)


def _for_a_while(injured: IntoSearch, faults: Faults, amount: float) -> str:
    seconds = amount * _LONGEST_SECONDS
    seed = int(amount * 1000)
    injured.proxy.set(faults, seed)
    time.sleep(seconds)
    injured.proxy.set(STEADY, seed)
    return f"for {seconds:.1f} s"


FAULTS: dict[str, Callable[[IntoSearch, float], str]] = {
    "server killed": _killed,
    "server away": _away,
    "server busy": _busy,
    "answers lost": _deaf,
    "small requests only": _small,
    **PROCESS_FAULTS,
}


def run_into(
    report: SeedReport, count: int, server: EmbeddedPostgres, folder: Path, say: Say = print
) -> None:
    """Fails unless documents equal rows in the end."""
    with (
        OpenSearchServer() as search,
        IntoSearch(server, search, folder, int(report.seed), timeout=_TIMEOUT) as injured,
    ):
        run_queue_seed(report, count, injured, FAULTS, say)
