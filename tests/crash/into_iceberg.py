"""A pipeline into `iceberg` under load, judged row by row by DuckDB's reader of Iceberg tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.destination.iceberg.destination import IcebergDestination
from penstock.destination.iceberg.options import IcebergOptions
from penstock.embedded.postgres import EmbeddedPostgres
from tests.crash.catalogue_faults import through
from tests.crash.injured_pipeline import SMALL_SEGMENTS
from tests.crash.into_lake import IntoLake, copy_of
from tests.crash.passed_failpoints import passed_failpoints
from tests.lake_rows import IcebergReader
from tests.tcp_proxy import TcpProxy
from tests.workload_tables import TABLES


class IntoIceberg(IntoLake):
    """With a catalogue in a file, or in a server of its own behind a proxy."""

    failpoints = passed_failpoints("iceberg")

    def __init__(
        self,
        server: EmbeddedPostgres,
        folder: Path,
        seed: int,
        catalogue: EmbeddedPostgres | None = None,
        network: TcpProxy | None = None,
        *,
        copied: Sequence[str] = (),
    ) -> None:
        """``copied`` are tables that are full already, in place of the load's own."""
        super().__init__(server, folder, seed)
        self._tables = copied or [*TABLES]
        root = self.pipeline.folder / "iceberg"
        # The load writes infinity, which no type of Iceberg holds.
        options: dict[str, Any] = {
            "warehouse": str(root / "lake"),
            "deletes": "equality" if seed % 2 else "position",
            "unfit": "null",
            "maintenance": {"every": "5s", "keep_snapshots": "1m"},
        }
        if catalogue is None or network is None:
            options["catalog_file"] = str(root / "catalog.db")
        else:
            self.catalogue, self.catalogue_network = catalogue, network
            options["catalog"] = through(network, catalogue.create_database("lake"))
        self._options = IcebergOptions.model_validate(options)
        self._destination = IcebergDestination(self._options, self.pipeline.name)
        self.pipeline.configure(
            destination={"type": "iceberg", **options},
            batch={"max_age": "1s"},
            **copy_of(copied),
            **SMALL_SEGMENTS,
        )
        self.rewrite()
        if not copied:
            self.pipeline.subscribe()

    def check_tables(self) -> int:
        reader = IcebergReader(self._options)
        try:
            return sum(reader.expect_same(self.url, table, unfit=True) for table in self._tables)
        finally:
            reader.close()
