"""One seed of chaos in which tables change all the time, beside the load and the faults."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from penstock.embedded.postgres import EmbeddedPostgres
from tests.crash.changing_tables import ChangingTables, expect_same_tables
from tests.crash.chaos_seed import Say, SeedReport, Supervisor, bring
from tests.crash.copying_pipeline import KEEPING_STEPS
from tests.crash.fault_schedule import plan_faults
from tests.crash.faults import FAULTS
from tests.crash.into_postgres import IntoPostgres
from tests.crash.penstock_run import PATIENCE
from tests.crash.side_session import SideSession
from tests.fix_pipeline import wait_until
from tests.workload import Workload

_COPY: dict[str, Any] = {"chunk_bytes": "256KiB"}
_TABLES: dict[str, Any] = {"reconcile": "1s", "on_remove": "drop"}


class IntoChanged(IntoPostgres):
    """The load's own tables, and some that change."""

    def __init__(
        self, server: EmbeddedPostgres, target: EmbeddedPostgres, folder: Path, seed: int
    ) -> None:
        super().__init__(server, target, folder, seed, copy=_COPY, tables=_TABLES)
        self.reader.judging = False
        self.load = Workload(self.url, seed, pause=0.2, steps=KEEPING_STEPS)
        self.changing = self.make_changing(seed)

    def make_changing(self, seed: int) -> SideSession:
        """Makes its tables, and what changes them; before the pipeline starts."""
        return ChangingTables(self.url, seed)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.changing.stop()
        finally:
            super().__exit__(kind, error, trace)

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def settle(self) -> None:
        self.changing.stop()
        super().settle()
        self.wait_settled()
        self.wait_delivered()

    def wait_settled(self) -> None:
        wait_until(self._is_settled, "all tables are ready", PATIENCE)

    def _is_settled(self) -> bool:
        self.check_alive()
        with psycopg.connect(self.url, autocommit=True) as conn:
            states = conn.execute(
                "SELECT DISTINCT ON (table_oid) state FROM penstock.table_state"
                " WHERE pipeline = %s ORDER BY table_oid, step DESC",
                [self.pipeline.name],
            ).fetchall()
        errored = [state for (state,) in states if state["phase"] == "errored"]
        assert not errored, errored
        return all(state["phase"] == "ready" for (state,) in states)

    def check_all(self) -> int:
        return super().check_all() + expect_same_tables(self.url, self.target_url)


def run_schema_seed(
    report: SeedReport,
    count: int,
    servers: tuple[EmbeddedPostgres, EmbeddedPostgres],
    folder: Path,
    say: Say = print,
) -> None:
    """Bring ``count`` faults over a pipeline whose tables change.

    Fails unless both databases have the same tables and rows in the end.
    """
    run_changing_seed(IntoChanged, report, count, servers, folder, say)


def run_changing_seed(
    kind: type[IntoChanged],
    report: SeedReport,
    count: int,
    servers: tuple[EmbeddedPostgres, EmbeddedPostgres],
    folder: Path,
    say: Say,
) -> None:
    """A seed in which something changes tables beside the load."""
    source, target = servers
    with kind(source, target, folder, int(report.seed)) as injured:
        supervisor = Supervisor(injured)
        injured.load.start()
        injured.start()
        supervisor.wait_recovered()
        injured.wait_settled()
        injured.reader.judging = True
        injured.changing.start()
        for number, fault in enumerate(plan_faults(int(report.seed), count, FAULTS)):
            line = bring(fault, injured, supervisor, FAULTS)
            report.faults.append(line)
            say(f"  {number + 1:3} {line}")
        injured.settle()
        injured.verify()
        injured.run.stop()
        report.judged(injured)
        say(f"  {injured.changing.changes} transactions beside the load")
