"""What warehouses have in common in the pipeline file. Read without Arrow."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from penstock.config.models import StorageOption
from penstock.destination.contract import DestinationOptions
from penstock.destination.families.staged_merge.unfit_policy import Unfit


def _bucket(value: str) -> str:
    scheme, found, rest = value.partition("://")
    if not found or scheme not in ("s3", "gs", "az") or not rest.strip("/"):
        raise PydanticCustomError("stage", "Input should be a bucket, such as s3://bucket/prefix")
    return value.rstrip("/")


Stage = Annotated[str, Field(min_length=1), AfterValidator(_bucket)]


class WarehouseOptions(DestinationOptions):
    """``stage`` is a place in an object store that driver and executors write to, with the options
    of its client, and that the warehouse reads. ``mode`` says whether tables hold the source's rows
    or every change of them.
    """

    stage: Stage
    stage_options: dict[str, StorageOption] = Field(default_factory=dict)
    mode: Literal["merge", "append"] = "merge"
    unfit: Unfit = "refuse"

    @property
    def revealed_stage_options(self) -> dict[str, str]:
        """The options as they are. Never log them."""
        return {name: value.get_secret_value() for name, value in self.stage_options.items()}
