"""A pipeline under load that is injured, gets up again and is judged in the end."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import psycopg
import yaml

from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.lsn import Frontier
from tests.crash.fault_schedule import PlannedFault
from tests.crash.penstock_run import PATIENCE, PenstockRun
from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.workload import Workload
from tests.workload_tables import INSERT_ONLY, create_tables

# Small and quickly gone, so that segments roll inside transactions, and whatever removes one too
# early is found out.
SMALL_SEGMENTS: dict[str, Any] = {"segment_bytes": "64 KiB", "segment_age": "20ms", "grace": "0s"}
SHORT_BATCHES: dict[str, Any] = {"max_age": "200ms"}


class InjuredPipeline(ABC):
    """Server, load and pipeline. Leaving the block ends everything that was started."""

    failpoints: ClassVar[tuple[str, ...]] = ()
    """Those that it passes."""

    def __init__(self, server: EmbeddedPostgres, folder: Path, seed: int) -> None:
        self.server = server
        self.url = server.create_database("shop")
        create_tables(self.url)
        self.pipeline = PipelineUnderTest(self.url, folder)
        self.load = Workload(self.url, seed)
        self._runs: list[PenstockRun] = []
        self._failpoints: list[Path] = []

    @abstractmethod
    def frontier(self) -> Frontier:
        """What the destination holds."""

    @abstractmethod
    def check_all(self) -> int:
        """The verdict, once nothing runs any more: destination and source agree in everything.

        Returns how many rows or changes were compared.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for run in self._runs:
            run.end()
        try:
            self.load.stop()
        except BaseException as failure:
            if error is None:
                raise
            error.add_note(f"the load failed: {failure!r}")
        if error is not None and self._runs:
            error.add_note(f"the last penstock run said:\n{self._runs[-1].output[-5000:]}")

    def rewrite(self, **source: str) -> None:
        """Change ``source`` of the pipeline file, and let it say which tables only grow."""
        content = yaml.safe_load(self.pipeline.file.read_text())
        content["source"] |= source
        content["source"]["tables"]["insert_only"] = list(INSERT_ONLY)
        self.pipeline.file.write_text(yaml.safe_dump(content))

    @property
    def run(self) -> PenstockRun:
        """The latest one."""
        return self._runs[-1]

    def start(self, *arguments: str, **environment: str) -> PenstockRun:
        """Start `penstock run`; ``environment`` is added to ours."""
        self._runs.append(PenstockRun(self.pipeline.file, *arguments, environment=environment))
        return self.run

    def start_to_fail(self, failpoint: str, passes: int) -> None:
        """Start a run in which a process dies at the failpoint, once, at that pass."""
        fired = self.pipeline.folder / f"fired-{uuid.uuid4().hex[:8]}"
        fired.mkdir()
        self._failpoints.append(fired / failpoint)
        action = f"{failpoint}=kill:{passes}"
        self.start(PENSTOCK_FAILPOINTS=action, PENSTOCK_FAILPOINT_DIR=str(fired))

    def disarm(self) -> None:
        """No failpoint fires any more: all have, as far as processes can see."""
        for mark in self._failpoints:
            mark.touch()

    def catch_up(self, environment: Mapping[str, str] | None = None) -> None:
        """`penstock run --until-caught-up`, which must end well and leave nothing behind."""
        self.start("--until-caught-up", **(environment or {})).wait_done()

    def wait_delivering(self) -> None:
        """Wait until something is delivered that is committed from now on."""
        committed = self.pipeline.wal_end()

        def delivered() -> bool:
            self.check_alive()
            return self.frontier().commit_lsn > committed

        wait_until(delivered, "new changes are delivered", PATIENCE)

    def wait_delivered(self) -> None:
        """The last fault is over. Wait until everything is delivered that was committed so far."""
        self.disarm()
        with psycopg.connect(self.url, autocommit=True) as conn:
            # One commit more, so that there is one behind all others.
            conn.execute("SELECT pg_logical_emit_message(true, 'the last one', '')")
        end = self.pipeline.wal_end()

        def delivered() -> bool:
            self.check_alive()
            return self.frontier().end_lsn >= end

        wait_until(delivered, "everything is delivered", PATIENCE)

    def start_again_at_failpoint(self) -> None:
        """One may lie on the way of a run that has recovered."""
        if self.run.ended_at_failpoint:
            self.run.wait_gone()
            self.start()

    def check_alive(self) -> None:
        """Fail where something that should run does not."""
        self.start_again_at_failpoint()
        self.run.expect_running()
        self.load.check()

    def is_locked(self) -> bool:
        """Whether a run has taken the pipeline's lock."""
        with psycopg.connect(self.url, autocommit=True) as conn:
            row = conn.execute(
                "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE granted"
                " AND locktype = 'advisory' AND application_name LIKE 'penstock % run'"
            ).fetchone()
        return row != (0,)

    def check_watchers(self) -> None:
        """Fail where somebody who works or looks beside the pipeline has met an error."""
        self.load.check()

    def wait_moment(self, fault: PlannedFault) -> None:
        """Wait until it is time for the fault."""
        self.wait_load(fault.after)

    def wait_load(self, transactions: int) -> None:
        """Let that many more transactions commit."""
        target = self.load.count + transactions
        wait_until(lambda: self.load.count >= target, f"{transactions} transactions more")

    def check_runs(self) -> None:
        """No run may have met an error that is nobody's fault but the program's."""
        for run in self._runs:
            run.expect_no_bug()

    def check_confirmed(self) -> None:
        """Postgres must never be told to forget what the destination lacks."""
        confirmed = self.pipeline.confirmed  # first: the destination only grows
        assert confirmed <= max(self.frontier().end_lsn, self.pipeline.subscribe().start_lsn)
