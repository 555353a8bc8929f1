"""One seed of chaos over a pipeline into Iceberg tables."""

from __future__ import annotations

from pathlib import Path

from penstock.embedded.postgres import EmbeddedPostgres
from tests.crash.chaos_seed import Say, SeedReport
from tests.crash.into_iceberg import IntoIceberg
from tests.crash.queue_seed import PROCESS_FAULTS, run_queue_seed


def run_into(
    report: SeedReport, count: int, server: EmbeddedPostgres, folder: Path, say: Say = print
) -> None:
    """Bring ``count`` faults over a pipeline from the server into Iceberg tables. Fails unless
    every row is there in the end as at the source, and no other.
    """
    with IntoIceberg(server, folder, int(report.seed)) as injured:
        run_queue_seed(report, count, injured, PROCESS_FAULTS, say)
