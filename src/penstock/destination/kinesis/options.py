"""The `kinesis` destination's part of the pipeline file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from penstock.config.quantities import Duration
from penstock.destination.contract import DestinationOptions
from penstock.destination.encode.debezium_options import DebeziumOptions
from penstock.destination.queue.lanes import LaneOptions
from penstock.destination.queue.names import NameRule, names_tables
from penstock.destination.queue.oversize import OversizeOption

STREAMS = NameRule("kinesis", "stream", 128)


def _endpoint(value: str) -> str:
    # Unless somebody says otherwise, nothing goes over the network in the clear.
    return value if "://" in value else f"https://{value}"


def _without_tables(value: str) -> str:
    if names_tables(value):
        raise PydanticCustomError(
            "other_stream", "Input should not name a table: what goes there belongs to none"
        )
    return value


StreamText = Annotated[str, STREAMS.validator]


class StreamOptions(DestinationOptions):
    """How streams are made that are not there. Without ``shards`` they are on demand."""

    create: bool = True
    shards: int | None = Field(default=None, ge=1)


class KinesisOptions(DestinationOptions):
    """Where records go, and how. Credentials are found by boto3, as everywhere on AWS."""

    region: str | None = None
    endpoint_url: Annotated[str, AfterValidator(_endpoint)] | None = None
    stream: StreamText = "{pipeline}"
    other_stream: Annotated[StreamText, AfterValidator(_without_tables)] = "{pipeline}"
    format: Literal["penstock", "debezium"] = "penstock"
    debezium: DebeziumOptions = DebeziumOptions()
    lanes: LaneOptions = LaneOptions()
    aggregate: bool = False
    streams: StreamOptions = StreamOptions()
    oversize: OversizeOption = "error"
    delivery_timeout: Duration = 60.0
