"""The `iceberg` destination's part of the pipeline file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from penstock.config.connection_url import ConnectionUrl
from penstock.config.quantities import Duration, Size
from penstock.destination.contract import DestinationOptions
from penstock.destination.families.staged_merge.stage_options import StageOptions
from penstock.destination.families.staged_merge.unfit_policy import Unfit

Deletes = Literal["equality", "position"]
PARTITIONING = re.compile(
    r"(?:(?P<by>year|month|day|hour|(?:bucket|truncate)(?=\(\d))\((?:(?P<width>[1-9]\d*), *)?)?"
    r"(?P<column>[^()]+)(?(by)\))"
)
"""day(column), bucket(16, column), or a column."""


def _url(value: str) -> str:
    if not value.startswith(("http://", "https://")):
        raise PydanticCustomError("url", "Input should be a URL such as https://catalog:8181")
    return value.rstrip("/")


def _partitioning(value: str) -> str:
    found = PARTITIONING.fullmatch(value)
    if found is None or (found["by"] in ("bucket", "truncate")) != (found["width"] is not None):
        raise PydanticCustomError(
            "partition",
            "Input should be year(column), month(column), day(column), hour(column), "
            "bucket(16, column), truncate(4, column) or a column",
        )
    return value


Partitioning = Annotated[str, AfterValidator(_partitioning)]


class IcebergMaintenance(DestinationOptions):
    """How often small files are put together, and how long old snapshots can be read. Files that
    are smaller than ``small_files`` are put together.
    """

    every: Duration | Literal["never"] = 600.0
    keep_snapshots: Duration = 6 * 3600.0
    small_files: Size = 32 * 2**20


class IcebergOptions(StageOptions):
    """The catalogue is a Postgres database or a SQLite file, as Iceberg's JDBC catalogue has them,
    or a REST service. ``warehouse`` is a folder or a URL that driver and executors see, of a REST
    service the warehouse's name. ``properties`` go to pyiceberg as they are. ``partition`` says by
    what new tables are partitioned, by their names at the source.
    """

    catalog: ConnectionUrl | None = None
    catalog_file: Annotated[str, Field(min_length=1)] | None = None
    rest: Annotated[str, AfterValidator(_url)] | None = None
    catalog_name: Annotated[str, Field(min_length=1)] = "penstock"
    warehouse: Annotated[str, Field(min_length=1)] | None = None
    properties: dict[str, SecretStr] = Field(default_factory=dict)
    deletes: Deletes = "equality"
    partition: dict[str, list[Partitioning]] = Field(default_factory=dict)
    mode: Literal["merge", "append"] = "merge"
    unfit: Unfit = "refuse"
    maintenance: IcebergMaintenance = IcebergMaintenance()

    @model_validator(mode="after")
    def _one_catalogue(self) -> Self:
        if [self.catalog, self.catalog_file, self.rest].count(None) != 2:
            raise PydanticCustomError(
                "catalog",
                "say one of `catalog`, the URL of a Postgres database, `catalog_file`, a SQLite "
                "file, and `rest`, the URL of a REST catalogue",
            )
        if self.rest is None and self.warehouse is None:
            raise PydanticCustomError("warehouse", "say `warehouse`: where the tables' files go")
        if self.stage is None and self.local_warehouse is None:
            raise PydanticCustomError(
                "stage",
                "say `stage`: a place in an object store, or a folder that the driver and all "
                "executors see",
            )
        return self

    @property
    def local_warehouse(self) -> Path | None:
        """The folder of the warehouse, None where it is somewhere else."""
        if self.rest is not None or self.warehouse is None or "://" in self.warehouse:
            return None
        return Path(self.warehouse).absolute()
