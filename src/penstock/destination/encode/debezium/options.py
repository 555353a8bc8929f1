"""What can be chosen about Debezium's format. The names of Debezium's own settings are in
docs/debezium_format.md.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

UNAVAILABLE = "__debezium_unavailable_value"


class DebeziumOptions(BaseModel):
    """``server`` is what Debezium calls topic.prefix, ``database`` the source's name; for both, the
    pipeline's name stands in.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    server: str = ""
    database: str = ""
    schemas: bool = False
    decimals: Literal["precise", "string", "double"] = "precise"
    times: Literal["adaptive", "adaptive_time_microseconds", "connect"] = "adaptive"
    intervals: Literal["numeric", "string"] = "numeric"
    binary: Literal["bytes", "base64", "base64-url-safe", "hex"] = "bytes"
    tombstones: bool = True
    transaction: bool = False
    unavailable: str = UNAVAILABLE

    def of(self, pipeline: str) -> DebeziumOptions:
        """With the names that were left out."""
        names = {"server": self.server or pipeline, "database": self.database or pipeline}
        return self.model_copy(update=names)
