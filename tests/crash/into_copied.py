"""A pipeline into `postgres` that starts with full tables: under load, copies beside the stream."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.errors import PenstockError
from tests.crash.chunk_reads import ROLE, ChunkReads, CopyState, copy_states, create_reading_role
from tests.crash.copied_tables import COPIED, Writers, fill_tables
from tests.crash.fault_schedule import PlannedFault
from tests.crash.into_postgres import IntoPostgres
from tests.crash.passed_failpoints import passed_failpoints
from tests.crash.penstock_run import PATIENCE
from tests.crash.row_texts import expect_same_rows, row_texts
from tests.fix_pipeline import wait_until
from tests.workload import Workload, run_transactions
from tests.workload_steps import STEPS, truncate, truncate_between_rows

# Many small chunks, one at a time, so that there is always a copy in the middle of which to strike.
COPY: dict[str, Any] = {"chunk_bytes": "256KiB", "parallelism": 1}
LARGE = ("crates", "days", "slips")
BALANCED = ("left_balance", "right_balance")
_FIRST_TRANSACTIONS = 150
_PAUSE_SECONDS = 0.2
# A TRUNCATE begins the copy of a table anew: so many of them, and none would ever end. The writers
# have some.
KEEPING_STEPS = {
    step: weight for step, weight in STEPS.items() if step not in (truncate, truncate_between_rows)
}


class IntoCopied(IntoPostgres):
    """The load's own tables, and large ones beside them with writers of their own."""

    failpoints = passed_failpoints("postgres", copies=True)

    def __init__(
        self,
        server: EmbeddedPostgres,
        target: EmbeddedPostgres,
        folder: Path,
        seed: int,
        *,
        tables: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(server, target, folder, seed, copy=COPY, tables=tables)
        self.load = Workload(self.url, seed, pause=_PAUSE_SECONDS, steps=KEEPING_STEPS)
        create_reading_role(self.url)
        url = self.pipeline.config.source.url.reveal()
        self.rewrite(url=url.replace("//postgres@", f"//{ROLE}@"))
        run_transactions(self.url, seed, _FIRST_TRANSACTIONS)
        fill_tables(self.url)
        self.writers = Writers(self.url, seed)
        self.reads = ChunkReads(server.log_path, self.url, self.pipeline.name)
        # Tables that are copied join one after another.
        self.reader.judging = False
        self._last_fault = ""

    def __enter__(self) -> Self:
        super().__enter__()
        self.writers.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.writers.__exit__(kind, error, trace)
        finally:
            super().__exit__(kind, error, trace)

    # -- how far it is ---------------------------------------------------------------------------

    def phases(self) -> dict[str, str]:
        """Each table with its phase; none before there is a store."""
        with psycopg.connect(self.url, autocommit=True) as conn:
            try:
                rows = conn.execute(
                    """SELECT DISTINCT ON (table_oid) c.relname, state ->> 'phase'
                         FROM penstock.table_state s JOIN pg_class c ON c.oid = s.table_oid
                        WHERE pipeline = %s ORDER BY table_oid, step DESC""",
                    [self.pipeline.name],
                ).fetchall()
            except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
                return {}
        return dict(rows)

    def copy_states(self) -> dict[str, CopyState]:
        return copy_states(self.url, self.pipeline.name)

    def chunks_done(self, *tables: str) -> int:
        states = self.copy_states()
        return sum(len(states[table].done) for table in tables if table in states)

    def wait_ready(self, *tables: str) -> None:
        """Wait until the tables, or all that there are, are like all others."""

        def ready() -> bool:
            self.check_alive()
            phases = self.phases()
            wanted = tables or phases
            assert "errored" not in phases.values(), self._errors(phases)
            return bool(phases) and all(phases.get(table) == "ready" for table in wanted)

        wait_until(ready, f"{', '.join(tables) or 'all tables'} are ready", PATIENCE)

    def check_alive(self) -> None:
        """Fail where something that should run does not. A failpoint may lie on the way of a run
        that has recovered: then it is started again.
        """
        if self.run.ended_at_failpoint:
            self.run.wait_gone()
            self.start()
        self.run.expect_running()
        self.load.check()
        self.writers.check()

    def _errors(self, phases: Mapping[str, str]) -> str:
        """Why tables were set aside; what both sides hold of them goes into files."""
        for table in (table for table, phase in phases.items() if phase == "errored"):
            for side, url in (("source", self.url), ("destination", self.target_url)):
                rows = sorted(row_texts(url, table).elements())
                file = self.pipeline.folder / f"errored {table} {side}.txt"
                file.write_text("\n".join(rows) + "\n")
        return self.command("tables", "list")

    def command(self, *arguments: str) -> str:
        """What ``penstock GROUP COMMAND FILE …`` says; it may refuse."""
        group, name, *rest = arguments
        result = CliRunner().invoke(app, [group, name, str(self.pipeline.file), *rest])
        if isinstance(result.exception, PenstockError):
            return result.exception.message
        assert result.exit_code == 0, result.exception
        return result.output

    # -- faults and judgement --------------------------------------------------------------------

    def wait_moment(self, fault: PlannedFault) -> None:
        """In the middle of a copy: where none is under way any more, there will be one."""
        self.writers.check()
        # A driver that was frozen may read what it had in hand, before it notices.
        self.reads.mark(judge=self._last_fault != "stale driver")
        self._last_fault = fault.kind
        self._judge_when_ready()
        self.wait_load(1 + fault.after // 4)
        if fault.in_peace:
            self._wait_copied(fault.amount)

    def _wait_copied(self, part: float) -> None:
        """Wait until that part is done of what is left of a copy. One that ended begins anew."""
        goals: dict[str, float] = {}
        asked: set[str] = set()

        def copied() -> bool:
            self.check_alive()
            now = self.copy_states().get("crates")
            if now is None:
                return False
            done = len(now.done)
            if done < now.chunks:
                # At the latest with the last but one: after the last there is no copy any more.
                return done >= goals.setdefault(now.copy_id, done + part * (now.chunks - 1 - done))
            phases = self.phases()
            if phases.get("crates") == "ready" and now.copy_id not in asked:
                asked.add(now.copy_id)
                anew = [table for table in LARGE if phases.get(table) == "ready"]
                said = self.command("tables", "resync", *anew)
                assert "is to be copied anew" in said, said
            return False

        wait_until(copied, f"{part:.0%} of a copy are done", PATIENCE)

    def _judge_when_ready(self) -> None:
        phases = self.phases()
        if all(phases.get(table) == "ready" for table in BALANCED):
            self.reader.judging = True

    def settle(self) -> None:
        self.wait_ready(*BALANCED)
        self._judge_when_ready()
        for _ in range(3):
            # Its reader has to see several states to tell anything.
            self.wait_load(5)
            self.wait_delivering()
        # Nobody truncates a table any more, which would begin its copy anew.
        self.writers.stop()
        self.load.stop()
        self.wait_ready()
        self.wait_delivered()

    def check_all(self) -> int:
        self.reads.mark(judge=self._last_fault != "stale driver")
        assert not self.reads.again, f"copied, and read again: {self.reads.again}"
        rows = super().check_all()
        return rows + expect_same_rows(self.url, self.target_url, COPIED)
