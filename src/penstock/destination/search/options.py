"""The `search` destination's part of the pipeline file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from penstock.config.quantities import Duration, Size
from penstock.config.server_url import server_url
from penstock.destination.contract import DestinationOptions
from penstock.destination.families.queue.names import NameRule

_INDEXES = NameRule("search", "index", 255)

# Set by Penstock itself: its guarantees rest on them.
_OWN = frozenset({"gc_deletes", "refresh_interval", "number_of_replicas", "number_of_shards"})


def _settings(value: dict[str, Any]) -> dict[str, Any]:
    for name in value:
        plain = name.removeprefix("index.")
        if plain in _OWN:
            raise PydanticCustomError(
                "settings",
                "{name} is not to be set here: {plain} is an option of its own, or Penstock's",
                {"name": name, "plain": plain},
            )
    return value


class SearchOptions(DestinationOptions):
    """Where documents go, and how."""

    url: Annotated[str, server_url("https://search:9200")]
    user: str | None = None
    password: SecretStr | None = None
    api_key: SecretStr | None = None
    ca_file: Path | None = None
    index: Annotated[str, _INDEXES.of_tables] = "{pipeline}.{schema}.{table}"
    ledger_index: Annotated[str, _INDEXES.of_pipeline] = "penstock.ledger"
    dead_letter_index: Annotated[str, _INDEXES.of_pipeline] = "penstock.dead_letters"
    shards: int = Field(default=1, ge=1)
    replicas: int = Field(default=1, ge=0)
    refresh: Duration = 1.0
    gc_deletes: Duration = 3600.0
    settings: Annotated[dict[str, Any], AfterValidator(_settings)] = Field(default_factory=dict)
    mappings: Mapping[str, Mapping[str, dict[str, Any]]] = Field(default_factory=dict)
    json_as: Literal["flat", "object", "stored"] = Field(default="flat", alias="json")
    refused: Literal["dead_letters", "table"] = "dead_letters"
    bulk_size: Size = 5 * 1024 * 1024
    requests: int = Field(default=4, ge=1, le=64)
    timeout: Duration = 60.0

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        if (self.user is None) != (self.password is None):
            raise PydanticCustomError("user", "user and password go together")
        if self.user is not None and self.api_key is not None:
            raise PydanticCustomError("api_key", "either api_key, or user and password")
        return self
