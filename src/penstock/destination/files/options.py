"""What the pipeline file says of ``files``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from penstock.config.models import StorageOption
from penstock.config.quantities import Size
from penstock.destination.contract import DestinationOptions

Format = Literal["parquet", "ndjson", "bifrost"]
Compression = Literal["zstd", "snappy", "none", "gzip"]
_TEMPLATE = "{pipeline}/{year}/{month}/{day}/{hour}/{time}_{first}"
_PLACES = ("pipeline", "year", "month", "day", "hour", "time", "first")


def _template(value: str) -> str:
    try:
        value.format(**dict.fromkeys(_PLACES, "x"))
    except (LookupError, AttributeError, TypeError, ValueError):
        is_known = False
    else:
        is_known = "{first}" in value and "{pipeline}" in value and not value.startswith(("/", "_"))
    if not is_known:
        raise PydanticCustomError(
            "template",
            "Input should be a relative name with {needed} in it, in which {others} stand for what "
            "they say, too",
            {
                "needed": "{pipeline} and {first}",
                "others": "{year}, {month}, {day}, {hour}, {time}",
            },
        )
    return value


class FilesOptions(DestinationOptions):
    """``path`` is a folder that driver and executors all see, or a place in an object store
    (``s3://bucket/prefix``), whose ``options`` these are.

    ``layout`` is a folder a table and day, or one stream of files for all tables, as pg-bifrost
    writes them: named by ``template``, with about ``file_bytes`` of values each.
    """

    path: str = Field(min_length=1)
    options: dict[str, StorageOption] = Field(default_factory=dict)
    layout: Literal["tables", "bifrost"] = "tables"
    format: Format = "parquet"
    compression: Compression = "zstd"
    template: Annotated[str, AfterValidator(_template)] = _TEMPLATE
    file_bytes: Size = 64 * 2**20

    @property
    def revealed_options(self) -> dict[str, str]:
        """The options as they are. Never log them."""
        return {name: value.get_secret_value() for name, value in self.options.items()}

    @model_validator(mode="before")
    @classmethod
    def _as_bifrost_has_it(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("layout") == "bifrost":
            data = {"format": "bifrost", **data}
            if data["format"] != "parquet":
                data = {"compression": "gzip", **data}
        return data

    @model_validator(mode="after")
    def _fits_together(self) -> FilesOptions:
        given = self.model_fields_set
        if self.layout == "bifrost":
            if self.format != "parquet" and self.compression not in ("gzip", "none"):
                raise _refused("lines (format bifrost or ndjson) have compression gzip or none")
        elif self.format == "bifrost" or given & {"template", "file_bytes"}:
            raise _refused("format bifrost, template and file_bytes are of layout bifrost only")
        elif self.format == "ndjson" and "compression" in given:
            raise _refused("compression applies to the format parquet, and to layout bifrost, only")
        elif self.compression == "gzip":
            raise _refused("compression gzip is of layout bifrost only")
        return self


def _refused(message: str) -> PydanticCustomError:
    return PydanticCustomError("files_options", "{message}", {"message": message})
