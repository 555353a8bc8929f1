"""The `ducklake` destination's part of the pipeline file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from penstock.config.connection_url import ConnectionUrl
from penstock.config.models import StorageOption
from penstock.config.quantities import Duration, Size
from penstock.destination.contract import DestinationOptions
from penstock.destination.families.staged_merge.stage_options import StageOptions
from penstock.destination.families.staged_merge.unfit_policy import Unfit

_GLOB = "*?[]{}"
DATA_OPTIONS = ("access_key_id", "secret_access_key", "session_token", "region", "endpoint")
"""What DuckDB and the client of the executors are both told."""


def _data_path(value: str) -> str:
    scheme, is_url, rest = value.partition("://")
    if is_url and (scheme != "s3" or not all(rest.rstrip("/").partition("/"))):
        raise PydanticCustomError(
            "data_path", "Input should be a folder, or a place such as s3://bucket/prefix"
        )
    if any(sign in value for sign in _GLOB):
        raise PydanticCustomError(
            "folder", "Input should have none of *?[]{{}}, which DuckDB takes for a pattern"
        )
    return value.rstrip("/") if is_url else value


DataPath = Annotated[str, Field(min_length=1), AfterValidator(_data_path)]


class DuckLakeMaintenance(DestinationOptions):
    """How often small files are put together, and how long old snapshots can be read."""

    every: Duration | Literal["never"] = 600.0
    keep_snapshots: Duration = 7 * 86400.0


class DucklakeOptions(StageOptions):
    """The catalogue is a Postgres database or the file of a DuckDB one; ``data_path`` is a folder
    that the driver and all executors see, or a place in S3, with its keys in ``data_options``.
    """

    catalog: ConnectionUrl | None = None
    catalog_file: Annotated[str, Field(min_length=1)] | None = None
    data_path: DataPath
    data_options: dict[str, StorageOption] = Field(default_factory=dict)
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

    @model_validator(mode="after")
    def _keys_of_the_store(self) -> Self:
        given = self.data_options.keys()
        if given - set(DATA_OPTIONS) or (given and not self.is_in_bucket):
            raise PydanticCustomError(
                "data_options",
                "`data_options` are for a `data_path` in S3: {names}",
                {"names": ", ".join(DATA_OPTIONS)},
            )
        if self.is_in_bucket and not given >= {"access_key_id", "secret_access_key"}:
            raise PydanticCustomError(
                "data_options",
                "say access_key_id and secret_access_key: DuckDB takes none from the environment",
            )
        return self

    @property
    def is_in_bucket(self) -> bool:
        """Whether ``data_path`` is in an object store."""
        return "://" in self.data_path

    @property
    def data_place(self) -> str:
        """``data_path`` as DuckDB is told of it."""
        return self.data_path if self.is_in_bucket else str(Path(self.data_path).absolute())

    @property
    def revealed_data_options(self) -> dict[str, str]:
        """The options as they are. Never log them."""
        return {name: value.get_secret_value() for name, value in self.data_options.items()}
