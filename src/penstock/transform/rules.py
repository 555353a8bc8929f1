"""The rules of the pipeline file, bound to the columns of a table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from penstock.config.transform_config import ColumnRule, TableRule, TransformConfig
from penstock.model.errors import ConfigError
from penstock.model.table_definition import TableDefinition
from penstock.transform.anonymizer_functions import AnonymizerFunctions
from penstock.transform.row_condition import RowCondition
from penstock.transform.transformers.column_facts import ColumnFacts
from penstock.transform.transformers.contract import Transformer, UnfitError
from penstock.transform.transformers.keys import Keys, master_key
from penstock.transform.transformers.registry import transformer_class


@dataclass(frozen=True)
class BoundRule:
    """A rule at work on one column."""

    column: str
    rule: ColumnRule
    transformer: Transformer
    condition: RowCondition | None

    @property
    def inputs(self) -> tuple[str, ...]:
        """Other columns that it needs."""
        return (*self.transformer.raw_inputs, *self.transformer.made_inputs)

    @property
    def why_no_key(self) -> str | None:
        """Why it does not suit a column of a key; None where it does."""
        if self.transformer.is_random:
            return "it draws at random, so that rows would not be found again"
        if self.condition is not None:
            return "it has a condition, so that one key could become another row's"
        if self.inputs:
            return "it depends on other columns, which are not there when a row is deleted"
        if self.rule.errors == "null" or self.rule.nulls == "transform":
            return "errors: null and nulls: transform could make two keys one"
        if self.transformer.uniqueness != "kept":
            return (
                "different keys could become the same one; integer_key, uuid, token and encrypt "
                "keep them apart"
            )
        return None

    @property
    def signature(self) -> str:
        """The same for rules that give the same output for the same input, in any column."""
        said = {**self.rule.model_dump(mode="json"), "version": self.transformer.version}
        if self.transformer.limit is not None:
            said["length"] = self.transformer.limit
        if self.transformer.folds_case:
            said["folded"] = True
        return json.dumps([said, self.transformer.vocabulary], sort_keys=True, default=str)


class Rules:
    """What ``transform`` says. Can be pickled.

    ``problems`` of options are found when it is made: raises ConfigError.
    """

    def __init__(self, config: TransformConfig) -> None:
        self.config = config
        key = config.key
        self._keys = Keys(master_key(None if key is None else key.get_secret_value()))
        asked = config.anonymizer
        self._functions = AnonymizerFunctions(None if asked is None else asked.url)
        self._check_options()

    def __getstate__(self) -> dict[str, object]:
        return {"config": self.config, "_keys": self._keys, "_functions": self._functions}

    def _check_options(self) -> None:
        for place, table in enumerate(self.config.rules):
            for name, rule in table.columns.items():
                if not rule.keeps:
                    _options(rule, f"transform.rules[{place}].columns.{name}")

    @cached_property
    def _matchers(self) -> list[tuple[TableRule, Any]]:
        return [(rule, rule.patterns) for rule in self.config.rules]

    def of_table(self, schema: str, name: str) -> list[TableRule]:
        """The rules that match a table, the last first."""
        return [
            rule for rule, patterns in reversed(self._matchers) if patterns.matches(schema, name)
        ]

    def covers(self, schema: str, name: str) -> bool:
        """Whether a rule changes values of the table, or is strict about it."""
        return bool(self.of_table(schema, name))

    def is_strict(self, schema: str, name: str) -> bool:
        rules = self.of_table(schema, name)
        return any((rule.mode or self.config.mode) == "strict" for rule in rules)

    def rule(self, schema: str, name: str, column: str) -> ColumnRule | None:
        """The rule of a column, ``keep`` included; None where none names it."""
        for table in self.of_table(schema, name):
            if (found := table.rule(column)) is not None:
                return found
        return None

    def uncovered(self, schema: str, name: str, columns: Sequence[str]) -> list[str]:
        """Columns that strict mode asks a rule for."""
        if not self.is_strict(schema, name):
            return []
        return [column for column in columns if self.rule(schema, name, column) is None]

    def absent(self, schema: str, name: str, columns: Sequence[str]) -> list[str]:
        """Columns that rules for just this table change, and that it lacks: renamed, say."""
        return [
            column
            for rule in self.of_table(schema, name)
            if rule.names_one
            for column, said in rule.columns.items()
            if not said.keeps and not {"*", "?"} & set(column) and column not in columns
        ]

    def bind(self, rule: ColumnRule, facts: ColumnFacts, place: str) -> BoundRule:
        """A rule at work. Raises UnfitError where it does not suit the column, and ConfigError."""
        kind = transformer_class(rule.use)
        if kind.families is not None and facts.family not in kind.families:
            raise UnfitError(
                f"{rule.use} does not take {facts.type_name}; it takes "
                f"{', '.join(sorted(kind.families))}"
            )
        keys = Keys(self._keys.master, rule.domain)
        transformer = kind(_options(rule, place), keys, facts)
        transformer.asks(self._functions)
        transformer.check()
        if rule.nulls == "transform" and not transformer.takes_nulls:
            raise UnfitError(f"nulls: transform is not for {rule.use}, which needs a value")
        condition = None
        if rule.when is not None:
            condition = RowCondition.parse(rule.when, f"transform: {place}.when")
        return BoundRule(facts.name, rule, transformer, condition)

    def bound(
        self, schema: str, name: str, columns: Mapping[str, ColumnFacts]
    ) -> Iterator[tuple[str, BoundRule | UnfitError]]:
        """The rules of a table's columns, those that stay as they are left out."""
        for column, facts in columns.items():
            rule = self.rule(schema, name, column)
            if rule is None or rule.keeps:
                continue
            try:
                yield column, self.bind(rule, facts, f"{schema}.{name}.{column}")
            except UnfitError as error:
                yield column, error

    def fingerprint(self, table: TableDefinition) -> str:
        """Another one where the table's values would come out in another way; empty where none is
        changed.
        """
        found = {
            column: bound.signature
            for column, bound in self.bound(table.schema, table.name, facts_of(table))
            if isinstance(bound, BoundRule)
        }
        if not found:
            return ""
        text = json.dumps([self._keys.mark(), found], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]


def facts_of(table: TableDefinition) -> dict[str, ColumnFacts]:
    """What transformers want to know of a table's columns: those whose values come."""
    return {
        column.name: ColumnFacts.of_definition(column, table.types)
        for column in table.columns
        if column.is_delivered
    }


def _options(rule: ColumnRule, place: str) -> Any:
    kind = transformer_class(rule.use)
    try:
        return kind.options_model.model_validate(rule.options)
    except ValidationError as error:
        problems = error.errors(include_input=False, include_url=False)
        said = "; ".join(
            f"{'.'.join(map(str, p['loc'])) or 'options'}: {p['msg']}" for p in problems
        )
        names = ", ".join(kind.options_model.model_fields) or "none"
        raise ConfigError(
            f"{place}: {rule.use} does not take these options: {said}",
            remedy=f"Its options are {names}; docs/transformers.md describes them.",
        ) from None


def in_order(rules: Sequence[BoundRule], place: str) -> list[BoundRule]:
    """The rules, each after those whose output it needs. Raises UnfitError for a circle."""
    left = {rule.column: rule for rule in rules}
    done: list[BoundRule] = []
    while left:
        ready = [r for r in left.values() if not set(r.transformer.made_inputs) & left.keys()]
        if not ready:
            raise UnfitError(f"{place}: templates of {', '.join(left)} need each other")
        done += ready
        for rule in ready:
            del left[rule.column]
    return done
