"""The `ducklake` destination's part of the pipeline file."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from penstock.config.connection_url import ConnectionUrl
from penstock.config.quantities import Duration, Size
from penstock.destination.contract import DestinationOptions
from penstock.destination.families.staged_merge.stage_options import StageOptions
from penstock.destination.families.staged_merge.unfit_policy import Unfit

_GLOB = "*?[]{}"


def _folder(value: str) -> str:
    if "://" in value:
        raise PydanticCustomError("folder", "Input should be a folder: URLs are not taken yet")
    if any(sign in value for sign in _GLOB):
        raise PydanticCustomError(
            "folder", "Input should have none of *?[]{{}}, which DuckDB takes for a pattern"
        )
    return value


Folder = Annotated[str, Field(min_length=1), AfterValidator(_folder)]


class DuckLakeMaintenance(DestinationOptions):
    """How often small files are put together, and how long old snapshots can be read."""

    every: Duration | Literal["never"] = 600.0
    keep_snapshots: Duration = 7 * 86400.0


class DucklakeOptions(StageOptions):
    """The catalogue is a Postgres database or the file of a DuckDB one; ``data_path`` is a folder
    that the driver and all executors see.
    """

    catalog: ConnectionUrl | None = None
    catalog_file: Annotated[str, Field(min_length=1)] | None = None
    data_path: Folder
    mode: Literal["merge", "append"] = "merge"
    unfit: Unfit = "refuse"
    memory_limit: Size = 2**30
    maintenance: DuckLakeMaintenance = DuckLakeMaintenance()

    @model_validator(mode="after")
    def _one_catalogue(self) -> Self:
        if (self.catalog is None) == (self.catalog_file is None):
            raise PydanticCustomError(
                "catalog",
                "say `catalog`, the URL of a Postgres database, or `catalog_file`, and not both",
            )
        return self
