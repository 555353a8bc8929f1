"""A pipeline into `postgres` that starts with full tables: under load, copies beside the stream."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.embedded.postgres import EmbeddedPostgres
from tests.crash.chunk_reads import ROLE, ChunkReads, create_reading_role
from tests.crash.copied_tables import COPIED, Writers, fill_tables
from tests.crash.copying_pipeline import KEEPING_STEPS, CopyingPipeline
from tests.crash.fault_schedule import PlannedFault
from tests.crash.penstock_run import PATIENCE
from tests.crash.row_texts import expect_same_rows
from tests.fix_pipeline import wait_until
from tests.workload import Workload, run_transactions

# Many small chunks, one at a time, so that there is always a copy in the middle of which to strike.
COPY: dict[str, Any] = {"chunk_bytes": "256KiB", "parallelism": 1}
LARGE = ("crates", "days", "slips")
_FIRST_TRANSACTIONS = 150
_PAUSE_SECONDS = 0.2


class IntoCopied(CopyingPipeline):
    """The load's own tables, and large ones beside them with writers of their own."""

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

    def chunks_done(self, *tables: str) -> int:
        states = self.copy_states()
        return sum(len(states[table].done) for table in tables if table in states)

    def check_alive(self) -> None:
        super().check_alive()
        self.writers.check()

    # -- faults and judgement --------------------------------------------------------------------

    def wait_moment(self, fault: PlannedFault) -> None:
        """In the middle of a copy: where none is under way any more, there will be one."""
        self.writers.check()
        # A driver that was frozen may read what it had in hand, before it notices.
        self.reads.mark(judge=self._last_fault != "stale driver")
        self._last_fault = fault.kind
        self.judge_when_ready()
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

    def settle(self) -> None:
        self.wait_judged()
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
