"""The part ``filter`` of the pipeline file: which tables, operations, columns and rows pass."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from penstock.config.table_patterns import (
    PatternError,
    TablePatterns,
    parse_pattern,
    split_name,
)

Operation = Literal["insert", "update", "delete", "truncate", "message", "read", "schema"]
"""``read``: rows that are copied; ``schema``: events that tell of schema changes."""

OPERATIONS: tuple[Operation, ...] = (
    "insert", "update", "delete", "truncate", "message", "read", "schema",
)  # fmt: skip


def _pattern(value: str) -> str:
    try:
        parse_pattern(value)
    except PatternError as error:
        raise PydanticCustomError(
            "table_pattern",
            "Input should be a table pattern such as shop.orders or shop.*; {why}",
            {"why": error.why},
        ) from None
    return value


def _one_table(text: str, otherwise: str) -> tuple[str, str]:
    """Schema and name of the one table that a key names; ``otherwise`` is said of a wildcard."""
    try:
        pattern = parse_pattern(text)
    except PatternError as error:
        raise PydanticCustomError(
            "table_name",
            "{table} is not a table such as shop.orders: {why}",
            {"table": text, "why": error.why},
        ) from None
    if pattern.has_wildcard:
        raise PydanticCustomError(
            "table_name",
            "{table} has a wildcard; {otherwise}",
            {"table": text, "otherwise": otherwise},
        )
    return split_name(text)


def one_table_each(tables: Iterable[str], otherwise: str, twice: str) -> None:
    """Every key names one table, and no two the same, of which ``twice`` is said."""
    names: dict[tuple[str, str], str] = {}
    for text in tables:
        name = _one_table(text, otherwise)
        if name in names:
            raise PydanticCustomError(
                "table_twice",
                "{first} and {second} are the same table; {twice}",
                {"first": names[name], "second": text, "twice": twice},
            )
        names[name] = text


def _conditions(value: dict[str, str]) -> dict[str, str]:
    # Late: sqlglot takes its time, and most files have no conditions.
    from penstock.config.row_condition_syntax import parse_condition
    from penstock.config.row_condition_tree import SUPPORTED, ConditionError

    one_table_each(value, "name one table", "write one entry")
    for table, text in value.items():
        try:
            parse_condition(text)
        except ConditionError as error:
            raise PydanticCustomError(
                "row_condition",
                "the condition of {table} is wrong at character {at}: {why}. "
                "Conditions are made of {supported}",
                {"table": table, "at": error.at, "why": error.why, "supported": SUPPORTED},
            ) from None
    return value


PatternText = Annotated[str, AfterValidator(_pattern)]


class _Model(BaseModel):
    # hide_input_in_errors: as in models.py, load.py decides what may be shown.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class _OneList(_Model):
    """``include`` or ``exclude``, not both: what would be said by both is said by one."""

    @model_validator(mode="after")
    def _not_both(self) -> _OneList:
        if None not in (getattr(self, "include", None), getattr(self, "exclude", None)):
            raise PydanticCustomError("both_lists", "write include or exclude, not both")
        return self


class FilterTablesConfig(_Model):
    """Every table that ``include`` matches and ``exclude`` does not."""

    include: list[PatternText] = Field(default=["*.*"], min_length=1)
    exclude: list[PatternText] = []

    @property
    def patterns(self) -> TablePatterns:
        return TablePatterns(self.include, self.exclude)


class FilterOperationsConfig(_OneList):
    """Which kinds of events pass; all without either list."""

    include: list[Operation] | None = None
    exclude: list[Operation] | None = None

    @property
    def passing(self) -> frozenset[Operation]:
        if self.include is not None:
            return frozenset(self.include)
        return frozenset(OPERATIONS) - frozenset(self.exclude or ())


class FilterColumnsConfig(_OneList):
    """Which columns of one table pass."""

    include: list[str] | None = Field(default=None, min_length=1)
    exclude: list[str] | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _one(self) -> FilterColumnsConfig:
        if self.include is None and self.exclude is None:
            raise PydanticCustomError("no_list", "write include or exclude with names of columns")
        return self


def _columns(value: dict[str, FilterColumnsConfig]) -> dict[str, FilterColumnsConfig]:
    one_table_each(value, "name one table", "write one entry")
    return value


class FilterConfig(_Model):
    """What passes from the source to the destination. ``columns`` and ``rows`` are by table:
    ``schema.table``, or ``table`` in ``public``. A row passes where its SQL condition is not known
    to be false.
    """

    tables: FilterTablesConfig = FilterTablesConfig()
    operations: FilterOperationsConfig = FilterOperationsConfig()
    columns: Annotated[dict[str, FilterColumnsConfig], AfterValidator(_columns)] = {}
    rows: Annotated[dict[str, str], AfterValidator(_conditions)] = {}
