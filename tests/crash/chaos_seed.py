"""One seed of chaos: a load, faults one after another, and the judgement in the end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from penstock.embedded.postgres import EmbeddedPostgres
from tests.crash.fault_schedule import PlannedFault, plan_faults
from tests.crash.faults import COPY_FAULTS, FAULTS
from tests.crash.injured_pipeline import InjuredPipeline
from tests.crash.into_copied import IntoCopied
from tests.crash.into_postgres import IntoPostgres
from tests.crash.penstock_run import PATIENCE, PenstockRun
from tests.fix_pipeline import wait_until

Say = Callable[[str], None]
Injured = TypeVar("Injured", bound=InjuredPipeline)


class SeedInto(Protocol):
    """``run_into`` in NAME_seed.py: a seed of chaos over a pipeline into that destination."""

    def __call__(
        self, report: SeedReport, count: int, server: EmbeddedPostgres, folder: Path, say: Say
    ) -> None: ...


# A start that fails, because a fault came in the middle of it, is tried again: as often as this.
_STARTS = 8


@dataclass
class SeedReport:
    """What a seed did, as far as it came."""

    seed: str
    faults: list[str] = field(default_factory=list)
    transactions: int = 0
    polls: int = 0
    states: int = 0
    rows: int = 0
    chunk_reads: int = 0
    chunks_kept: int = 0

    def judged(self, injured: IntoPostgres) -> None:
        """Judge in the end, and note what there was to judge."""
        self.rows = injured.check_all()
        self.transactions = injured.load.count
        self.polls, self.states = injured.reader.polls, injured.reader.states
        if isinstance(injured, IntoCopied):
            self.chunk_reads, self.chunks_kept = injured.reads.reads, injured.reads.kept


def run_seed(
    report: SeedReport,
    count: int,
    servers: tuple[EmbeddedPostgres, EmbeddedPostgres],
    folder: Path,
    say: Say = print,
    *,
    copies: bool = False,
) -> None:
    """Bring ``count`` faults over a pipeline from the first server to the second.

    With ``copies`` there are full tables before it starts, and each fault comes in the middle of a
    copy. Fails unless the pipeline gets up after each, nobody ever sees half a transaction, no
    chunk that is done is read again, and both databases hold the same rows in the end.
    """
    plan = plan_faults(int(report.seed), count, COPY_FAULTS if copies else FAULTS)
    schedule = [fault.to_json() for fault in plan]
    (folder / "schedule.json").write_text(json.dumps(schedule, indent=1) + "\n")
    source, target = servers
    kind = IntoCopied if copies else IntoPostgres
    with kind(source, target, folder, int(report.seed)) as injured:
        supervisor = Supervisor(injured)
        injured.load.start()
        injured.start()
        supervisor.wait_recovered()
        for number, fault in enumerate(plan):
            next_waits = number + 1 == len(plan) or plan[number + 1].in_peace
            line = bring(fault, injured, supervisor if next_waits else None, COPY_FAULTS)
            report.faults.append(line)
            say(f"  {number + 1:3} {line}")
        injured.settle()
        injured.verify()
        injured.run.stop()
        report.judged(injured)


def bring(
    fault: PlannedFault,
    injured: Injured,
    supervisor: Supervisor | None,
    faults: Mapping[str, Callable[[Injured, float], str]],
) -> str:
    """Let the fault come; with a supervisor wait until it is overcome. What to say of it."""
    injured.wait_moment(fault)
    began = time.monotonic()
    said = faults[fault.kind](injured, fault.amount)
    what = f"{fault.kind} ({said})" if said else fault.kind
    if supervisor is None:
        return f"{what}: the next one comes meanwhile"
    starts = supervisor.wait_recovered()
    again = f", started again {starts} times" if starts else ""
    return f"{what}: recovered in {time.monotonic() - began:.1f} s{again}"


class Supervisor:
    """Starts the command again where it may end: killed at a failpoint, or hit in its start-up.

    A run that has delivered must get over everything by itself.
    """

    def __init__(self, injured: InjuredPipeline) -> None:
        self._injured = injured
        self._has_delivered: PenstockRun | None = None
        self._starts = 0

    def wait_recovered(self) -> int:
        """Wait until something is delivered that is committed from now on; starts it took."""
        injured = self._injured
        committed = injured.pipeline.wal_end()
        self._starts = 0

        def delivered() -> bool:
            injured.check_watchers()
            if injured.run.exit_code is not None:
                self._start_again()
            return injured.frontier().commit_lsn > committed

        wait_until(delivered, "new changes are delivered", PATIENCE)
        self._has_delivered = injured.run
        injured.check_runs()
        injured.check_confirmed()
        return self._starts

    def _start_again(self) -> None:
        run = self._injured.run
        run.wait_gone()
        if not run.ended_at_failpoint and (run is self._has_delivered or self._starts == _STARTS):
            pytest.fail(f"penstock run ended with {run.exit_code}:\n{run.output[-3000:]}")
        self._starts += 1
        self._injured.start()
