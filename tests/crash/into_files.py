"""A pipeline into `files` under load, judged change by change."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import psycopg
import pyarrow.parquet as pq

from penstock.destination.files.folding import fold
from penstock.destination.files.manifest import read_manifest
from penstock.destination.registry import make_destination
from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.lsn import Frontier
from tests.crash.delivery import delivered_changes, expect_equal, expect_recorded, leftovers
from tests.crash.injured_pipeline import SHORT_BATCHES, SMALL_SEGMENTS, InjuredPipeline
from tests.crash.passed_failpoints import passed_failpoints
from tests.crash.queue_judge import judge_events
from tests.crash.witness import call_witness, hear_witness
from tests.folded_compare import compare, read_key, read_source
from tests.queue_events import Event
from tests.workload_tables import TABLES


class IntoFiles(InjuredPipeline):
    """With a second slot as witness of every single change."""

    failpoints = passed_failpoints("files")
    options: ClassVar[dict[str, Any]] = {"format": "ndjson"}

    def __init__(self, server: EmbeddedPostgres, folder: Path, seed: int) -> None:
        super().__init__(server, folder, seed)
        self.files = self.pipeline.folder / "files"
        self.pipeline.configure(
            destination={"type": "files", "path": str(self.files), **self.options},
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
        return self.judge()

    def judge(self) -> int:
        """Fail unless every change is there, once and in order; how many there are."""
        with psycopg.connect(self.url, autocommit=True) as conn:
            for table in TABLES:
                folded = fold(self.files, self.pipeline.name, "public", table)
                verdict = compare(table, read_key(conn, table), read_source(conn, table), folded)
                assert verdict.equal, verdict.differences
        delivered = delivered_changes(self.files, self.pipeline.name, TABLES)
        expect_equal(delivered, hear_witness(self.url, *self.publications))
        expect_recorded(delivered, self.load.committed, self.load.in_doubt)
        return len(delivered)


class IntoMixedFiles(IntoFiles):
    """All tables in one stream of Parquet files (``layout: bifrost``)."""

    options: ClassVar[dict[str, Any]] = {
        "layout": "bifrost",
        "format": "parquet",
        # So that a batch has several.
        "file_bytes": "64KiB",
    }

    def judge(self) -> int:
        places: list[tuple[int, int]] = []
        events: list[Event] = []
        found = (self.files / self.pipeline.name).rglob("*.parquet")
        # Times of commits need not rise as positions do.
        for file in sorted(found, key=lambda file: file.stem.partition("_")[2]):
            for row in pq.ParquetFile(file).read().to_pylist():
                places.append((row["commit_lsn"], row["ordinal"]))
                events.append(json.loads(row["value"], parse_int=str, parse_float=str))
        # The two events of a row that leaves its key, and those of a TRUNCATE, share a position.
        assert all(before <= after for before, after in pairwise(places)), "not in order"
        told = {json.dumps(event, sort_keys=True) for event in events}
        assert len(told) == len(events), "an event is there twice"
        return judge_events(self, self.publications, events)
