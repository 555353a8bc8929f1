"""Keeps the current rows of every table, or every change, in BigQuery."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import pyarrow as pa

from penstock.destination.bigquery.dialect import BigQueryDialect, relation_of
from penstock.destination.bigquery.ledger import BigQueryLedger
from penstock.destination.bigquery.options import BigQueryOptions
from penstock.destination.bigquery.session import BigQuerySession
from penstock.destination.bigquery.sums import WORDS
from penstock.destination.contract import Capabilities
from penstock.destination.families.kept_tables import Key
from penstock.destination.families.staged_merge.joined_rows import MergedRows
from penstock.destination.families.staged_merge.receipt import Mark
from penstock.destination.families.warehouse.destination import WarehouseDestination
from penstock.destination.families.warehouse.ledger import SCHEMA
from penstock.destination.families.warehouse.loaded_files import LoadedFiles, ParquetFiles
from penstock.model.errors import DestinationError


class BigQueryDestination(WarehouseDestination):
    """Rows and the position are one script; schema changes stand between two."""

    name = "bigquery"
    options_model = BigQueryOptions
    capabilities = Capabilities(
        mode="merge", exactly_once=True, remembers=True, atomic=True, batch_age=60.0
    )
    failpoints = ("bigquery.merged", "bigquery.committed", "bigquery.copy_loaded")
    options: BigQueryOptions
    sum_words = WORDS

    @cached_property
    def dialect(self) -> BigQueryDialect:
        return BigQueryDialect(self.options.location)

    @cached_property
    def session(self) -> BigQuerySession:
        return BigQuerySession(self.options, self.pipeline, self.bucket.path)

    @cached_property
    def ledger(self) -> BigQueryLedger:
        return BigQueryLedger(self.session, self.dialect, self.pipeline, self._put)

    def loaded_files(self) -> LoadedFiles:
        return ParquetFiles(bucket=self.bucket)

    def look(self) -> Sequence[str]:
        """Have BigQuery read a file of the stage, which it can where the bucket is near enough."""
        location = self.session.dataset_location(SCHEMA)
        if location is not None and location.lower() != self.options.location.lower():
            raise DestinationError(
                f"destination bigquery: dataset {SCHEMA} is in {location}, not in "
                f"{self.options.location}",
                remedy=f"say location: {location}, or take another project",
            )
        files, probe = self.loaded_files(), pa.table({"probe": ["x"]})
        name = files.put([probe], probe.schema)
        try:
            self.session.using(relation_of(name), name)
            self.session.rows(f"SELECT probe FROM {relation_of(name)}")  # noqa: S608 (our own name)
        finally:
            files.remove([name])
        return ()

    def apply(self, rows: MergedRows, at: Mark) -> Sequence[Key]:
        """In another script where this one is full: what it holds is committed first, with marks of
        how far it goes. Slices of one batch stay together: they have one mark, and no key of one is
        in another.
        """
        is_next_slice = self._applied.get(rows.target.oid) == at
        if not is_next_slice and self.session.is_full(rows.target.oid):
            with self._changing_tables():
                pass
            self.ledger.write(self._driver, {})
        return super().apply(rows, at)
