"""The `delta` destination's part of the pipeline file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from penstock.config.quantities import Duration
from penstock.destination.contract import DestinationOptions
from penstock.destination.families.staged_merge.stage_options import StageOptions
from penstock.destination.families.staged_merge.unfit_policy import Unfit


def _folder(value: str) -> str:
    if "://" in value:
        raise PydanticCustomError("folder", "Input should be a folder: URLs are not taken yet")
    return value


Folder = Annotated[str, Field(min_length=1), AfterValidator(_folder)]


class DeltaMaintenance(DestinationOptions):
    """How often small files are put together, and how long old ones stay for their readers."""

    every: Duration | Literal["never"] = 600.0
    keep_files: Duration = 7 * 86400.0


class DeltaOptions(StageOptions):
    """``path`` is a folder that the driver and all executors see."""

    path: Folder
    mode: Literal["merge", "append"] = "merge"
    unfit: Unfit = "refuse"
    maintenance: DeltaMaintenance = DeltaMaintenance()
