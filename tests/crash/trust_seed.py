"""One seed of chaos in which servers, files, disks and the clock are not what they were."""

from __future__ import annotations

from pathlib import Path

from penstock.embedded.postgres import EmbeddedPostgres
from tests.crash.chaos_seed import Say, SeedReport, Supervisor, bring
from tests.crash.fault_schedule import plan_faults
from tests.crash.into_trusted import IntoTrusted
from tests.crash.trust_faults import TRUST_FAULTS


def run_trust_seed(
    report: SeedReport,
    count: int,
    servers: tuple[EmbeddedPostgres, EmbeddedPostgres],
    folder: Path,
    say: Say = print,
) -> None:
    """Bring ``count`` faults over a pipeline that has to notice them.

    Fails unless it goes on after each, or says what happened and goes on once what it says is
    done, and both databases hold the same rows in the end.
    """
    source, target = servers
    with IntoTrusted(source, target, folder, int(report.seed)) as injured:
        supervisor = Supervisor(injured)
        injured.load.start()
        injured.start()
        supervisor.wait_recovered()
        injured.wait_ready()
        injured.reader.judging = True
        for number, fault in enumerate(plan_faults(int(report.seed), count, TRUST_FAULTS)):
            line = bring(fault, injured, supervisor, TRUST_FAULTS)
            report.faults.append(line)
            say(f"  {number + 1:3} {line}")
        injured.settle()
        injured.verify()
        injured.run.stop()
        report.judged(injured)
