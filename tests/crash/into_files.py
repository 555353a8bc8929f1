"""A pipeline into `files` under load, judged change by change."""

from __future__ import annotations

from pathlib import Path

import psycopg

from penstock.destination.files.folding import fold
from penstock.destination.files.manifest import read_manifest
from penstock.destination.registry import make_destination
from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.lsn import Frontier
from tests.crash.delivery import delivered_changes, expect_equal, expect_recorded, leftovers
from tests.crash.injured_pipeline import SHORT_BATCHES, SMALL_SEGMENTS, InjuredPipeline
from tests.crash.witness import call_witness, hear_witness
from tests.folded_compare import compare, read_key, read_source
from tests.workload_tables import TABLES


class IntoFiles(InjuredPipeline):
    """With a second slot as witness of every single change."""

    def __init__(self, server: EmbeddedPostgres, folder: Path, seed: int) -> None:
        super().__init__(server, folder, seed)
        self.files = self.pipeline.folder / "files"
        self.pipeline.configure(
            destination={"type": "files", "path": str(self.files), "format": "ndjson"},
            batch=SHORT_BATCHES,
            **SMALL_SEGMENTS,
        )
        self.rewrite()
        self.publications = self.pipeline.subscribe().publications
        call_witness(self.url)

    def frontier(self) -> Frontier:
        manifest = read_manifest(self.files, self.pipeline.name)
        return (manifest and manifest.frontier) or Frontier(0, 0)

    def check_all(self) -> int:
        self.check_confirmed()
        self.check_runs()
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
        expect_equal(delivered, hear_witness(self.url, *self.publications))
        expect_recorded(delivered, self.load.committed, self.load.in_doubt)
        return len(delivered)
