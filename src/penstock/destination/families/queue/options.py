"""The options that all queues share.

Nothing here loads Arrow: every command reads a pipeline file, and most of them send nothing.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.config.models import StorageOption
from penstock.destination.contract import DestinationOptions
from penstock.destination.encode.bifrost.options import BifrostOptions
from penstock.destination.encode.debezium.options import DebeziumOptions
from penstock.destination.encode.penstock_options import PenstockOptions
from penstock.destination.families.queue.finders import IdentityName, VersionName

LaneBy = Literal["schema", "table", "key", "transaction"]


class LaneOptions(DestinationOptions):
    """``by`` says what keeps its order; ``count`` how many lanes are sent side by side."""

    by: LaneBy = "key"
    count: int = Field(default=4, ge=1, le=1024)


class ClaimCheckOptions(DestinationOptions):
    """``claim_check`` is a folder that executors and consumers see, or a place in an object store
    (``s3://bucket/prefix``), whose ``options`` these are.
    """

    claim_check: str = Field(min_length=1)
    options: dict[str, StorageOption] = Field(default_factory=dict)

    @property
    def revealed_options(self) -> dict[str, str]:
        """The options as they are. Never log them."""
        return {name: value.get_secret_value() for name, value in self.options.items()}


OversizeOption = Literal["error"] | ClaimCheckOptions


class FormatOptions(DestinationOptions):
    """``identity`` and ``version`` name finders of entry points (finders.py)."""

    format: Literal["penstock", "debezium", "bifrost", "cloudevents"] = "penstock"
    penstock: PenstockOptions = PenstockOptions()
    debezium: DebeziumOptions = DebeziumOptions()
    bifrost: BifrostOptions = BifrostOptions()
    identity: IdentityName | None = None
    version: VersionName | None = None
