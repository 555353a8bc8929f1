"""A pipeline into `files` under load that is injured, gets up again and is judged in the end."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from penstock.demo.compare import compare, read_key, read_source
from penstock.demo.embedded_postgres import EmbeddedPostgres
from penstock.destination.files import fold
from penstock.destination.files.manifest import read_manifest
from penstock.destination.registry import make_destination
from penstock.lsn import Frontier
from penstock.spark.session import checkpoint_parent, checkpoint_prefix
from tests.crash.delivery import delivered_changes, expect_equal, expect_recorded, leftovers
from tests.crash.penstock_run import PenstockRun
from tests.crash.witness import call_witness, hear_witness
from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.workload import TABLES, Workload, create_tables


class InjuredPipeline:
    """Server, load, pipeline and witness. Leaving the block ends everything that was started."""

    def __init__(self, server: EmbeddedPostgres, folder: Path, seed: int) -> None:
        self.server = server
        self.url = server.create_database("shop")
        create_tables(self.url)
        self.pipeline = PipelineUnderTest(self.url, folder)
        self.files = self.pipeline.folder / "files"
        self.pipeline.configure(
            destination={"type": "files", "path": str(self.files), "format": "ndjson"},
            batch={"max_age": "200ms"},
            # Small and quickly gone, so that segments roll inside transactions, and whatever
            # removes one too early is found out.
            segment_bytes="64 KiB",
            segment_age="20ms",
            grace="0s",
        )
        self.publication = self.pipeline.subscribe().publication
        call_witness(self.url)
        self.load = Workload(self.url, seed)
        self.run: PenstockRun | None = None
        self._runs: list[PenstockRun] = []

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
        for checkpoint in self.checkpoints():
            shutil.rmtree(checkpoint)
        try:
            self.load.stop()
        except BaseException as failure:
            if error is None:
                raise
            error.add_note(f"the load failed: {failure!r}")
        if error is not None and self._runs:
            error.add_note(f"the last penstock run said:\n{self._runs[-1].output[-5000:]}")

    def start(self, *arguments: str, **environment: str) -> PenstockRun:
        """Start `penstock run`; ``environment`` is added to ours."""
        run = PenstockRun(self.pipeline.file, *arguments, environment=environment)
        self._runs.append(run)
        self.run = run
        return run

    def catch_up(self, environment: Mapping[str, str] | None = None) -> None:
        """`penstock run --until-caught-up`, which must end well and leave nothing behind."""
        self.start("--until-caught-up", **(environment or {})).wait_done()

    def frontier(self) -> Frontier:
        """What the destination holds."""
        manifest = read_manifest(self.files, self.pipeline.name)
        return (manifest and manifest.frontier) or Frontier(0, 0)

    def checkpoints(self) -> list[Path]:
        """Spark's folders that are there: of a query that runs, or of one that was killed."""
        parent = Path(checkpoint_parent() or tempfile.gettempdir())
        return list(parent.glob(f"{checkpoint_prefix(self.pipeline.log.root.path)}*"))

    def wait_delivering(self, run: PenstockRun) -> None:
        """Wait until something is delivered that is committed from now on."""
        committed = self.pipeline.wal_end()

        def delivered() -> bool:
            run.expect_running()
            self.load.check()
            return self.frontier().commit_lsn > committed

        wait_until(delivered, "new changes are delivered", 120)

    def wait_load(self, transactions: int) -> None:
        """Let that many more transactions commit."""
        target = self.load.count + transactions
        wait_until(lambda: self.load.count >= target, f"{transactions} transactions more")

    def check_confirmed(self) -> None:
        """Postgres must never be told to forget what the destination lacks."""
        confirmed = self.pipeline.confirmed  # first: the destination only grows
        assert confirmed <= max(self.frontier().end_lsn, self.pipeline.subscribe().start_lsn)

    def check_all(self) -> None:
        """The verdict, once nothing runs any more: files and source agree in everything."""
        self.check_confirmed()
        assert self.checkpoints() == [], "a run removes its own, and what killed ones left"
        # What failed tasks left there belongs to nobody; whoever opens next removes it.
        config = self.pipeline.config
        destination = make_destination("files", config.destination_options, config.name)
        destination.open()
        destination.close()
        assert leftovers(self.files, self.pipeline.name) == []
        with psycopg.connect(self.url, autocommit=True) as conn:
            for table in TABLES:
                folded = fold(self.files, self.pipeline.name, "public", table)
                verdict = compare(table, read_key(conn, table), read_source(conn, table), folded)
                assert verdict.equal, verdict.differences
        delivered = delivered_changes(self.files, self.pipeline.name, TABLES)
        expect_equal(delivered, hear_witness(self.url, self.publication))
        expect_recorded(delivered, self.load.committed, self.load.in_doubt)
