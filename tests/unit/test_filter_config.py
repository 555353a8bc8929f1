"""The part ``filter`` of the pipeline file: what it may say, and what is wrong with the rest."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from penstock.config.filter_config import OPERATIONS, FilterConfig


def test_nothing_said_is_nothing_filtered() -> None:
    config = FilterConfig()
    assert config.tables.patterns.matches("any", "table")
    assert config.operations.passing == set(OPERATIONS)
    assert (config.columns, config.rows) == ({}, {})


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        ("t", ["public.t"]),
        ("public.t", ["public.t"]),
        ("s.*", ["s.t", "s.u"]),
        ("*.t", ["public.t", "s.t"]),
        ("*.*", ["public.t", "public.u", "s.t", "s.u"]),
    ],
)
def test_wildcards_of_tables(pattern: str, matching: list[str]) -> None:
    names = [("public", "t"), ("public", "u"), ("s", "t"), ("s", "u")]

    def found(value: dict[str, list[str]]) -> list[str]:
        patterns = FilterConfig.model_validate({"tables": value}).tables.patterns
        return [".".join(name) for name in names if patterns.matches(*name)]

    assert found({"include": [pattern]}) == matching
    assert found({"exclude": [pattern]}) == [
        name for name in map(".".join, names) if name not in matching
    ]


def test_operations_are_said_by_one_list() -> None:
    included = FilterConfig.model_validate({"operations": {"include": ["insert", "read"]}})
    assert included.operations.passing == {"insert", "read"}
    excluded = FilterConfig.model_validate({"operations": {"exclude": ["insert", "read"]}})
    assert excluded.operations.passing == set(OPERATIONS) - {"insert", "read"}
    nothing = FilterConfig.model_validate({"operations": {"include": []}})
    assert nothing.operations.passing == set()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"table": {}}, "Extra inputs"),
        ({"tables": {"include": []}}, "at least 1 item"),
        ({"tables": {"include": ["a.b.c"]}}, "more than two parts"),
        ({"operations": {"include": ["upsert"]}}, "Input should be 'insert'"),
        ({"operations": {"include": ["read"], "exclude": ["read"]}}, "not both"),
        ({"columns": {"t": {}}}, "write include or exclude with names of columns"),
        ({"columns": {"t": {"include": ["a"], "exclude": ["b"]}}}, "not both"),
        ({"columns": {"s.*": {"include": ["a"]}}}, r"s\.\* has a wildcard"),
        ({"columns": {"t": {"include": []}}}, "at least 1 item"),
        ({"rows": {"s.*": "a = 1"}}, r"s\.\* has a wildcard"),
        ({"rows": {"a.b.c": "a = 1"}}, "a.b.c is not a table"),
        ({"rows": {"t": "a = 1", "public.t": "b = 1"}}, "t and public.t are the same table"),
        (
            {"rows": {"public.orders": "total > 1 AND placed < now()"}},
            "condition of public.orders is wrong at character 24: .* not supported. Conditions are",
        ),
    ],
)
def test_what_is_wrong_is_named(value: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        FilterConfig.model_validate(value)


def test_it_is_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        FilterConfig().rows = {}


def test_the_examples_of_the_docs_are_right() -> None:
    page = (Path(__file__).parents[2] / "docs/filters.md").read_text()
    examples = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        FilterConfig.model_validate(yaml.safe_load(example)["filter"])
