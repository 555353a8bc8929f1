"""Keeps the current rows of every table, or every change, in Snowflake."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from penstock.destination.contract import Capabilities
from penstock.destination.families.warehouse.destination import WarehouseDestination
from penstock.destination.families.warehouse.loaded_files import CsvFiles
from penstock.destination.snowflake.dialect import SnowflakeDialect
from penstock.destination.snowflake.options import SnowflakeOptions
from penstock.destination.snowflake.session import SnowflakeSession
from penstock.destination.snowflake.sums import WORDS
from penstock.model.errors import DestinationError


class SnowflakeDestination(WarehouseDestination):
    """Rows and the position are one transaction; schema changes stand between two."""

    name = "snowflake"
    options_model = SnowflakeOptions
    capabilities = Capabilities(
        mode="merge", exactly_once=True, remembers=True, atomic=True, batch_age=300.0
    )
    failpoints = ("snowflake.merged", "snowflake.committed", "snowflake.copy_loaded")
    options: SnowflakeOptions
    sum_words = WORDS

    @cached_property
    def dialect(self) -> SnowflakeDialect:
        place = f"@{self.options.external_stage}/{self.pipeline}"
        return SnowflakeDialect(place, self.pipeline)

    @cached_property
    def session(self) -> SnowflakeSession:
        return SnowflakeSession(self.options, self.pipeline)

    def loaded_files(self) -> CsvFiles:
        return CsvFiles(bucket=self.bucket)

    def look(self) -> Sequence[str]:
        """By commands that need no warehouse. What the stage points to is compared."""
        found = self.session.rows(f"DESCRIBE STAGE {self.options.external_stage}")
        urls = " ".join(str(value) for row in found for value in row)
        if self.options.stage not in urls:
            raise DestinationError(
                f"destination snowflake: {self.options.external_stage} does not point to "
                f"{self.options.stage}",
                remedy="name the external stage whose URL is `stage`, or make it: CREATE STAGE … "
                f"URL = '{self.options.stage}/' STORAGE_INTEGRATION = …",
            )
        return ()
