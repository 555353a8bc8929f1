"""What the pipeline file says of ``files``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from penstock.config.models import StorageOption
from penstock.destination.contract import DestinationOptions

Format = Literal["parquet", "ndjson"]
Compression = Literal["zstd", "snappy", "none"]


class FilesOptions(DestinationOptions):
    """``path`` is a folder that driver and executors all see, or a place in an object store
    (``s3://bucket/prefix``), whose ``options`` these are.
    """

    path: str = Field(min_length=1)
    options: dict[str, StorageOption] = Field(default_factory=dict)
    format: Format = "parquet"
    compression: Compression = "zstd"

    @property
    def revealed_options(self) -> dict[str, str]:
        """The options as they are. Never log them."""
        return {name: value.get_secret_value() for name, value in self.options.items()}

    @model_validator(mode="after")
    def _compression_is_of_parquet(self) -> FilesOptions:
        if self.format == "ndjson" and "compression" in self.model_fields_set:
            raise PydanticCustomError(
                "ndjson_compression", "compression applies to the format parquet only"
            )
        return self
