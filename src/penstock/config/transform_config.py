"""The part ``transform`` of the pipeline file: which values change on the way, and into what.

Options of a transformer are checked where it is made (transform/rules.py): whose they are is known
there.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    model_validator,
)
from pydantic_core import PydanticCustomError

from penstock.config.connection_url import ConnectionUrl
from penstock.config.filter_config import PatternText
from penstock.config.table_patterns import TablePatterns

Mode = Literal["strict", "relaxed"]
KEEP = "keep"
ANONYMIZER = "anonymizer"
"""The transformer that calls functions of a database."""


def _condition(value: str | None) -> str | None:
    if value is None:
        return None
    # Late: sqlglot takes its time, and most files have no conditions.
    from penstock.config.row_condition_syntax import parse_condition
    from penstock.config.row_condition_tree import SUPPORTED, ConditionError

    try:
        parse_condition(value)
    except ConditionError as error:
        raise PydanticCustomError(
            "transform_condition",
            "the condition is wrong at character {at}: {why}. Conditions are made of {supported}",
            {"at": error.at, "why": error.why, "supported": SUPPORTED},
        ) from None
    return value


def _short(value: object) -> object:
    """``name: person_name`` is ``name: {use: person_name}``."""
    return {"use": value} if isinstance(value, str) else value


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


class _Model(BaseModel):
    # hide_input_in_errors: as in models.py, load.py decides what may be shown.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class ColumnRule(_Model):
    """What becomes of a column. ``use`` names the transformer, or is ``keep``; what is not named
    here are its options.

    Columns of the same ``domain`` and transformer have the same output for the same input. Rows of
    which ``when`` is known not to hold stay as they are. ``nulls: transform`` gives nulls a value,
    too, and ``errors: null`` makes a value null that the transformer does not take.
    """

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True)

    use: str = Field(min_length=1)
    domain: str = ""
    when: Annotated[str | None, AfterValidator(_condition)] = None
    nulls: Literal["keep", "transform"] = "keep"
    errors: Literal["refuse", "null"] = "refuse"

    @property
    def keeps(self) -> bool:
        return self.use == KEEP

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    @model_validator(mode="after")
    def _keep_is_alone(self) -> ColumnRule:
        if self.keeps and (self.options or self.when or self.domain):
            raise PydanticCustomError("keep_options", "keep takes no options")
        return self


Rule = Annotated[ColumnRule, BeforeValidator(_short)]
Names = Annotated[list[str], BeforeValidator(_listed)]


class TableRule(_Model):
    """The rules of the tables that a pattern matches. Columns may have ``*`` and ``?`` in their
    names; one that is named exactly comes first. ``keep`` lists those that stay as they are.
    """

    table: Annotated[list[PatternText], BeforeValidator(_listed)] = Field(min_length=1)
    mode: Mode | None = None
    columns: dict[str, Rule] = {}
    keep: Names = []

    @property
    def patterns(self) -> TablePatterns:
        return TablePatterns(self.table)

    @property
    def names_one(self) -> bool:
        """Whether it is about one table, named in full."""
        return not any(pattern.has_wildcard for pattern in self.patterns.include)

    def rule(self, column: str) -> ColumnRule | None:
        """What it says of a column; None for nothing."""
        if column in self.columns:
            return self.columns[column]
        if column in self.keep:
            return _KEPT
        for name, rule in self.columns.items():
            if _matches(name, column):
                return rule
        return _KEPT if any(_matches(name, column) for name in self.keep) else None


_KEPT = ColumnRule(use=KEEP)


def _matches(pattern: str, name: str) -> bool:
    if "*" not in pattern and "?" not in pattern:
        return pattern == name
    wild = {"*": ".*", "?": "."}
    form = "".join(wild.get(char) or re.escape(char) for char in pattern)
    return re.fullmatch(form, name, re.DOTALL) is not None


class AnonymizerConfig(_Model):
    """The database whose functions the transformer ``anonymizer`` calls: one with the extension
    ``anon``.
    """

    url: ConnectionUrl


class TransformConfig(_Model):
    """Rules for values, in order: of several for one column, the last counts.

    ``mode`` strict: every column of a table that a rule matches needs a rule of its own, or keep.
    ``messages``: whether logical messages are delivered beside rows that are transformed.
    ``anonymizer`` is None where no rule asks a database; it is the source where nobody says which.
    """

    key: SecretStr | None = None
    mode: Mode = "strict"
    messages: Literal["drop", "pass"] = "drop"
    anonymizer: AnonymizerConfig | None = None
    rules: list[TableRule] = Field(default=[], min_length=1)

    @property
    def asks_database(self) -> bool:
        """Whether a rule is one of ``anonymizer``."""
        return any(
            rule.use == ANONYMIZER for table in self.rules for rule in table.columns.values()
        )
