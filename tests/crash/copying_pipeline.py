"""A pipeline into `postgres` that copies tables: which of them are ready, and what it says."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.model.errors import PenstockError
from tests.crash.chunk_reads import CopyState, copy_states
from tests.crash.into_postgres import LEAST_STATES, IntoPostgres
from tests.crash.passed_failpoints import passed_failpoints
from tests.crash.penstock_run import PATIENCE
from tests.crash.row_texts import row_texts
from tests.fix_pipeline import wait_until
from tests.workload_steps import STEPS, truncate, truncate_between_rows

BALANCED = ("left_balance", "right_balance")
# A TRUNCATE begins the copy of a table anew: so many of them, and none would ever end.
KEEPING_STEPS = {
    step: weight for step, weight in STEPS.items() if step not in (truncate, truncate_between_rows)
}


def table_phases(url: str, pipeline: str) -> dict[str, str]:
    """Each table with its phase; none before there is a store."""
    with psycopg.connect(url, autocommit=True) as conn:
        try:
            rows = conn.execute(
                """SELECT DISTINCT ON (table_oid) c.relname, state ->> 'phase'
                     FROM penstock.table_state s JOIN pg_class c ON c.oid = s.table_oid
                    WHERE pipeline = %s ORDER BY table_oid, step DESC""",
                [pipeline],
            ).fetchall()
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            return {}
    return dict(rows)


class CopyingPipeline(IntoPostgres):
    """What all seeds share in which tables are copied under load."""

    failpoints = passed_failpoints("postgres", copies=True)

    def phases(self) -> dict[str, str]:
        return table_phases(self.url, self.pipeline.name)

    def copy_states(self) -> dict[str, CopyState]:
        return copy_states(self.url, self.pipeline.name)

    def wait_ready(self, *tables: str) -> None:
        """Wait until the tables, or all that there are, are like all others."""

        def ready() -> bool:
            self.check_alive()
            phases = self.phases()
            wanted = tables or phases
            assert "errored" not in phases.values(), self._errors(phases)
            return bool(phases) and all(phases.get(table) == "ready" for table in wanted)

        wait_until(ready, f"{', '.join(tables) or 'all tables'} are ready", PATIENCE)

    def judge_when_ready(self) -> None:
        phases = self.phases()
        if all(phases.get(table) == "ready" for table in BALANCED):
            self.reader.judging = True

    def wait_judged(self) -> None:
        """Let the reader see several states while the load goes on: it tells nothing else."""
        self.wait_ready(*BALANCED)
        self.judge_when_ready()

        def seen() -> bool:
            self.check_alive()
            self.reader.check()
            return self.reader.states >= LEAST_STATES

        wait_until(seen, "the reader has seen enough to tell", PATIENCE)

    def command(self, *arguments: str) -> str:
        """What ``penstock GROUP COMMAND FILE …`` says; it may refuse."""
        group, name, *rest = arguments
        result = CliRunner().invoke(app, [group, name, str(self.pipeline.file), *rest])
        if isinstance(result.exception, PenstockError):
            return result.exception.message
        assert result.exit_code == 0, result.exception
        return result.output

    def _errors(self, phases: Mapping[str, str]) -> str:
        """Why tables were set aside; what both sides hold of them goes into files."""
        for table in (table for table, phase in phases.items() if phase == "errored"):
            for side, url in (("source", self.url), ("destination", self.target_url)):
                rows = sorted(row_texts(url, table).elements())
                file = self.pipeline.folder / f"errored {table} {side}.txt"
                file.write_text("\n".join(rows) + "\n")
        return self.command("tables", "list")
