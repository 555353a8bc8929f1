"""The `kinesis` destination's part of the pipeline file."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from penstock.config.quantities import Duration
from penstock.destination.contract import DestinationOptions
from penstock.destination.families.queue.names import NameRule
from penstock.destination.families.queue.options import (
    FormatOptions,
    LaneOptions,
    OversizeOption,
)

STREAMS = NameRule("kinesis", "stream", 128)


def _endpoint(value: str) -> str:
    # Unless somebody says otherwise, nothing goes over the network in the clear.
    return value if "://" in value else f"https://{value}"


class StreamOptions(DestinationOptions):
    """How streams are made that are not there. Without ``shards`` they are on demand."""

    create: bool = True
    shards: int | None = Field(default=None, ge=1)


class KinesisOptions(FormatOptions):
    """Where records go, and how. Credentials are found by boto3, as everywhere on AWS."""

    region: str | None = None
    endpoint_url: Annotated[str, AfterValidator(_endpoint)] | None = None
    stream: Annotated[str, STREAMS.of_tables] = "{pipeline}"
    other_stream: Annotated[str, STREAMS.of_pipeline] = "{pipeline}"
    lanes: LaneOptions = LaneOptions()
    aggregate: bool = False
    streams: StreamOptions = StreamOptions()
    oversize: OversizeOption = "error"
    delivery_timeout: Duration = 60.0

    @model_validator(mode="after")
    def _versions_have_a_place(self) -> Self:
        if self.version is not None and self.format != "penstock":
            # Where other queues have headers, a stream has nothing.
            raise PydanticCustomError(
                "version",
                "`version` needs format penstock: {format} has no place for a version",
                {"format": self.format},
            )
        return self
