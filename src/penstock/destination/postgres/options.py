"""The `postgres` destination's part of the pipeline file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from penstock.config.connection_url import ConnectionUrl
from penstock.config.quantities import DurationOrZero
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


ObjectKind = Literal[
    "access_methods",
    "casts",
    "collations",
    "comments",
    "conversions",
    "event_triggers",
    "extensions",
    "foreign_data",
    "functions",
    "languages",
    "materialized_views",
    "operators",
    "policies",
    "rules",
    "sequences",
    "statistics",
    "text_search",
    "transforms",
    "triggers",
    "types",
    "views",
]
"""What a person may leave out of a whole schema. Tables, with their indexes and constraints, and
schemas are never left out.
"""


class FullSchemaOptions(DestinationOptions):
    """What `schema: full` makes beside the tables.

    ``include`` are the kinds of objects, all unless it is given; ``exclude`` those of them that are
    left out. ``owner`` and ``privileges``: owners and grants are those of the source; ``roles``:
    roles that are missing are made, without passwords. ``create_database``: the database is made
    where it is missing. ``programs`` is the folder with pg_dump and pg_restore. ``compare`` is how
    often the source's schema is looked at again while a pipeline runs; 0: at its start alone.
    """

    include: list[ObjectKind] | None = None
    exclude: list[ObjectKind] = Field(default_factory=list)
    owner: bool = False
    privileges: bool = False
    roles: bool = False
    create_database: bool = False
    programs: str | None = None
    compare: DurationOrZero = 600.0

    def takes(self, kind: str) -> bool:
        """Whether objects of a kind are made."""
        return kind not in self.exclude and (self.include is None or kind in self.include)


class PostgresOptions(DestinationOptions):
    """Where rows go, under which names, and what is done with a row that is refused.

    ``schema`` is `tables` (what is followed is made, and no more), `full` (all that the source's
    database has), or which schema tables go to.
    """

    url: ConnectionUrl
    mode: Literal["merge", "append"] = "merge"
    # BaseModel has an attribute called schema, so the field needs another name than the key.
    schema_or_target: str | dict[str, str] | None = Field(default=None, alias="schema")
    full_schema: FullSchemaOptions | None = None
    tables: dict[TableText, TableText] = Field(default_factory=dict)
    on_conflict: Literal["update", "error"] = "update"
    disable_triggers: bool = True
    dead_letter: bool = False

    @property
    def target_schema(self) -> str | dict[str, str] | None:
        """Where tables go: one schema for all, or by the source's; None: as at the source."""
        return None if self.schema_or_target in ("full", "tables") else self.schema_or_target

    @property
    def whole(self) -> FullSchemaOptions | None:
        """How the whole schema is taken; None where tables alone are made."""
        if self.schema_or_target != "full":
            return None
        return self.full_schema or FullSchemaOptions()

    @model_validator(mode="after")
    def _whole_fits(self) -> PostgresOptions:
        if self.schema_or_target == "full":
            if self.mode != "merge":
                raise PydanticCustomError(
                    "full_schema", "schema: full needs mode: merge; histories are other tables"
                )
            if self.tables:
                raise PydanticCustomError(
                    "full_schema",
                    "schema: full keeps every name, since views and functions use them; tables "
                    "cannot be renamed",
                )
        elif self.full_schema is not None:
            raise PydanticCustomError("full_schema", "full_schema is for schema: full alone")
        return self
