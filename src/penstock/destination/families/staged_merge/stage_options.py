"""Where a stage is, in the pipeline file. Read without Arrow."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from penstock.config.models import StorageOption
from penstock.destination.contract import DestinationOptions


def is_bucket(value: str) -> bool:
    scheme, found, rest = value.partition("://")
    return bool(found) and scheme in ("s3", "gs", "az") and bool(rest.strip("/"))


def _place(value: str) -> str:
    if "://" not in value:
        return value
    if not is_bucket(value):
        raise PydanticCustomError(
            "stage", "Input should be a folder, or a bucket such as s3://bucket/prefix"
        )
    return value.rstrip("/")


Stage = Annotated[str, Field(min_length=1), AfterValidator(_place)]


class StageOptions(DestinationOptions):
    """``stage`` is a folder that the driver and all executors see, or a place in an object store,
    with the options of its client.
    """

    stage: Stage | None = None
    stage_options: dict[str, StorageOption] = Field(default_factory=dict)

    @property
    def revealed_stage_options(self) -> dict[str, str]:
        """The options as they are. Never log them."""
        return {name: value.get_secret_value() for name, value in self.stage_options.items()}
