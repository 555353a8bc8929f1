"""A pipeline into `delta` under load, judged row by row by DuckDB's own reader of Delta tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.destination.delta.destination import DeltaDestination
from penstock.destination.delta.options import DeltaOptions
from penstock.embedded.postgres import EmbeddedPostgres
from tests.crash.injured_pipeline import SMALL_SEGMENTS
from tests.crash.into_lake import IntoLake, copy_of
from tests.crash.passed_failpoints import passed_failpoints
from tests.lake_rows import expect_same_in_delta
from tests.workload_tables import TABLES

_REFUSED = "journal"
"""It has no key, and its rows change."""


class IntoDelta(IntoLake):
    failpoints = passed_failpoints("delta")

    def __init__(
        self, server: EmbeddedPostgres, folder: Path, seed: int, *, copied: Sequence[str] = ()
    ) -> None:
        """``copied`` are tables that are full already, in place of the load's own."""
        super().__init__(server, folder, seed)
        self._tables = copied or [table for table in TABLES if table != _REFUSED]
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
            **copy_of(copied),
            **SMALL_SEGMENTS,
        )
        self.rewrite()
        if not copied:
            self.pipeline.subscribe()

    def check_tables(self) -> int:
        return sum(
            expect_same_in_delta(self.url, self.root, table, unfit=True) for table in self._tables
        )
