"""The `postgres` destination's part of the pipeline file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from penstock.config.connection_url import ConnectionUrl
from penstock.config.table_patterns import PatternError, split_name
from penstock.destination.contract import DestinationOptions


def _table(value: str) -> str:
    try:
        split_name(value)
    except ValueError as error:
        why = error.why if isinstance(error, PatternError) else "it has more than two parts"
        raise PydanticCustomError(
            "table_name",
            "Input should be a table's name such as shop.orders; {why}",
            {"why": why},
        ) from None
    return value


TableText = Annotated[str, AfterValidator(_table)]


class PostgresOptions(DestinationOptions):
    """Where rows go, under which names, and what is done with a row that is refused."""

    url: ConnectionUrl
    mode: Literal["merge", "append"] = "merge"
    # BaseModel has an attribute called schema, so the field needs another name than the key.
    target_schema: str | dict[str, str] | None = Field(default=None, alias="schema")
    tables: dict[TableText, TableText] = Field(default_factory=dict)
    on_conflict: Literal["update", "error"] = "update"
    disable_triggers: bool = True
    dead_letter: bool = False
