"""One seed of chaos over a pipeline into a DuckLake, whose catalogue crashes as well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from penstock.embedded.postgres import EmbeddedPostgres
from tests.crash.chaos_seed import Say, SeedReport
from tests.crash.into_ducklake import IntoDucklake
from tests.crash.queue_seed import PROCESS_FAULTS, run_queue_seed


def _crash_catalogue(injured: IntoDucklake, _amount: float) -> str:
    injured.catalogue.kill()
    injured.catalogue.start()
    return ""


FAULTS: dict[str, Callable[[IntoDucklake, float], str]] = {
    "catalogue crashed": _crash_catalogue,
    **PROCESS_FAULTS,
}


def run_into(
    report: SeedReport, count: int, server: EmbeddedPostgres, folder: Path, say: Say = print
) -> None:
    """Bring ``count`` faults over a pipeline from the server into a lake. Fails unless every row is
    there in the end as at the source, and no other.
    """
    with (
        EmbeddedPostgres() as catalogue,
        IntoDucklake(server, catalogue, folder, int(report.seed)) as injured,
    ):
        run_queue_seed(report, count, injured, FAULTS, say)
