"""The `bigquery` destination's part of the pipeline file."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from penstock.config.quantities import Size
from penstock.destination.families.warehouse.options import Stage, WarehouseOptions

# What a statement is billed for at least, a table that it names.
_LEAST = 10 * 2**20


def _on_gcs(value: str) -> str:
    if not value.startswith("gs://"):
        raise PydanticCustomError(
            "stage", "Input should be a bucket on Cloud Storage: gs://bucket/prefix"
        )
    return value


def _bound(value: int) -> int:
    if value < _LEAST:
        raise PydanticCustomError(
            "maximum_bytes_billed", "Input should be 10MiB or more: no statement is billed for less"
        )
    return value


class BigQueryOptions(WarehouseOptions):
    """``stage`` is on Cloud Storage, where datasets of ``location`` can read it.
    ``credentials_file`` is a key of a service account; without it Google's own ways to find
    credentials count. ``maximum_bytes_billed`` bounds what one statement may cost.
    """

    project: Annotated[str, Field(pattern=r"^[a-z0-9.:-]{1,100}$")]
    location: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,40}$")]
    stage: Annotated[Stage, AfterValidator(_on_gcs)]
    credentials_file: str | None = None
    maximum_bytes_billed: Annotated[Size, AfterValidator(_bound)] | None = None
