"""One seed of chaos over a pipeline into files: its processes and the source die under load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from penstock.embedded.postgres import EmbeddedPostgres
from tests.crash.chaos_seed import Say, SeedReport
from tests.crash.injured_pipeline import InjuredPipeline
from tests.crash.into_files import IntoFiles, IntoMixedFiles
from tests.crash.process_faults import kill_driver
from tests.crash.queue_seed import PROCESS_FAULTS, run_queue_seed

FAULTS: dict[str, Callable[[InjuredPipeline, float], str]] = {
    **PROCESS_FAULTS,
    # Between a manifest and the last file that it moves, too: twice as often as elsewhere.
    "driver killed again": kill_driver,
}


def run_into(
    report: SeedReport, count: int, server: EmbeddedPostgres, folder: Path, say: Say = print
) -> None:
    """Odd seeds write a folder a table, even ones one stream of files for all tables."""
    seed = int(report.seed)
    kind = IntoFiles if seed % 2 else IntoMixedFiles
    with kind(server, folder, seed) as injured:
        run_queue_seed(report, count, injured, FAULTS, say)
