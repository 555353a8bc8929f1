"""One seed of chaos over a pipeline into Delta tables, to which somebody else commits as well."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from penstock.embedded.postgres import EmbeddedPostgres
from tests.crash.chaos_seed import Say, SeedReport
from tests.crash.into_delta import IntoDelta
from tests.crash.queue_seed import PROCESS_FAULTS, run_queue_seed

_LONGEST_SECONDS = 5.0


def _foreign_commits(injured: IntoDelta, amount: float) -> str:
    """Somebody else commits to all tables, as fast as it can: commits of the pipeline are
    refused.
    """
    end, commits = time.monotonic() + amount * _LONGEST_SECONDS, 0
    folders = [path.parent for path in injured.root.glob("*/*/_delta_log")]
    while time.monotonic() < end:
        for folder in folders:
            with suppress(DeltaError):
                DeltaTable(str(folder)).alter.set_table_properties(
                    {"someone.else": str(commits)}, raise_if_not_exists=False
                )
                commits += 1
    return f"{commits} commits"


FAULTS: dict[str, Callable[[Any, float], str]] = {
    "foreign commits": _foreign_commits,
    **PROCESS_FAULTS,
}


def run_into(
    report: SeedReport, count: int, server: EmbeddedPostgres, folder: Path, say: Say = print
) -> None:
    """Bring ``count`` faults over a pipeline from the server into Delta tables. Fails unless every
    row is there in the end as at the source, and no other.
    """
    with IntoDelta(server, folder, int(report.seed)) as injured:
        run_queue_seed(report, count, injured, FAULTS, say)
