"""A pipeline into `delta` under load, judged row by row by DuckDB's own reader of Delta tables."""

from __future__ import annotations

from pathlib import Path

from penstock.destination.delta.destination import DeltaDestination
from penstock.destination.delta.options import DeltaOptions
from penstock.embedded.postgres import EmbeddedPostgres
from tests.crash.injured_pipeline import SMALL_SEGMENTS
from tests.crash.into_lake import IntoLake
from tests.crash.passed_failpoints import passed_failpoints
from tests.lake_rows import expect_same_in_delta
from tests.workload_tables import TABLES

_REFUSED = "journal"
"""It has no key, and its rows change."""


class IntoDelta(IntoLake):
    failpoints = passed_failpoints("delta")

    def __init__(self, server: EmbeddedPostgres, folder: Path, seed: int) -> None:
        super().__init__(server, folder, seed)
        self.root = self.pipeline.folder / "delta"
        # The load writes infinity, which no type of Delta holds.
        options = {"path": str(self.root), "unfit": "null", "maintenance": {"every": "5s"}}
        self._destination = DeltaDestination(
            DeltaOptions.model_validate(options), self.pipeline.name
        )
        self.pipeline.configure(
            destination={"type": "delta", **options},
            batch={"max_age": "1s"},
            exclude=(f"public.{_REFUSED}",),
            **SMALL_SEGMENTS,
        )
        self.rewrite()
        self.pipeline.subscribe()

    def check_tables(self) -> int:
        tables = [table for table in TABLES if table != _REFUSED]
        return sum(expect_same_in_delta(self.url, self.root, table, unfit=True) for table in tables)
