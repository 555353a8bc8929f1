"""What warehouses have in common in the pipeline file. Read without Arrow."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from penstock.destination.families.staged_merge.stage_options import StageOptions, is_bucket
from penstock.destination.families.staged_merge.unfit_policy import Unfit


def _bucket(value: str) -> str:
    if not is_bucket(value):
        raise PydanticCustomError("stage", "Input should be a bucket, such as s3://bucket/prefix")
    return value.rstrip("/")


Stage = Annotated[str, Field(min_length=1), AfterValidator(_bucket)]


class WarehouseOptions(StageOptions):
    """``stage`` is a place in an object store that driver and executors write to, with the options
    of its client, and that the warehouse reads. ``mode`` says whether tables hold the source's rows
    or every change of them.
    """

    stage: Stage
    mode: Literal["merge", "append"] = "merge"
    unfit: Unfit = "refuse"
