"""The `delta` destination's part of the pipeline file."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from penstock.config.models import StorageOption
from penstock.config.quantities import Duration
from penstock.destination.contract import DestinationOptions
from penstock.destination.families.staged_merge.stage_options import StageOptions
from penstock.destination.families.staged_merge.unfit_policy import Unfit

PATH_OPTIONS = ("access_key_id", "secret_access_key", "session_token", "region", "endpoint")
"""What delta-rs and the client of the executors are both told."""


def _place(value: str) -> str:
    scheme, is_url, rest = value.partition("://")
    is_place = scheme == "s3" and all(rest.rstrip("/").partition("/")) and not {*"%?#"} & {*rest}
    if is_url and not is_place:
        raise PydanticCustomError(
            "folder",
            "Input should be a folder, or a place such as s3://bucket/prefix, without %, ? and #",
        )
    return value.rstrip("/") if is_url else value


Place = Annotated[str, Field(min_length=1), AfterValidator(_place)]


class DeltaMaintenance(DestinationOptions):
    """How often small files are put together, and how long old ones stay for their readers."""

    every: Duration | Literal["never"] = 600.0
    keep_files: Duration = 7 * 86400.0


class DeltaOptions(StageOptions):
    """``path`` is a folder that the driver and all executors see, or a place in S3. Without keys in
    ``path_options`` the environment's count.
    """

    path: Place
    path_options: dict[str, StorageOption] = Field(default_factory=dict)
    mode: Literal["merge", "append"] = "merge"
    unfit: Unfit = "refuse"
    maintenance: DeltaMaintenance = DeltaMaintenance()

    @model_validator(mode="after")
    def _options_of_the_store(self) -> Self:
        given = self.path_options.keys()
        if given - set(PATH_OPTIONS) or (given and "://" not in self.path):
            raise PydanticCustomError(
                "path_options",
                "`path_options` are for a `path` in S3: {names}",
                {"names": ", ".join(PATH_OPTIONS)},
            )
        return self

    @property
    def revealed_path_options(self) -> dict[str, str]:
        """The options as they are. Never log them."""
        return {name: value.get_secret_value() for name, value in self.path_options.items()}
