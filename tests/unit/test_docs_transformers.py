"""docs/transformers.md: every example is run, and every transformer has one."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from penstock.config.transform_config import ColumnRule
from penstock.model.table_definition import ColumnDefinition, TypeName
from penstock.transform.transformers.column_facts import ColumnFacts
from penstock.transform.transformers.contract import Inputs
from penstock.transform.transformers.keys import Keys
from penstock.transform.transformers.registry import shipped_names, transformer_class
from tests.transformer_cases import ASKING

PAGE = Path(__file__).parents[2] / "docs" / "transformers.md"
KEY = b"an example, so never a key of yours"
ROW = re.compile(r"^\| `(\{use: .*?\})` \| ([^|`]+) \| `(.*?)` \| (`.*?`|NULL) \|", re.MULTILINE)


def facts(kind: str) -> ColumnFacts:
    """A column of a type as the page writes it."""
    name, _, rest = kind.partition("(")
    is_array = name.endswith("[]")
    schema = "public" if name == "hstore" else "pg_catalog"
    modifier = f"({rest}" if rest else ""
    spelled = TypeName(schema, name.removesuffix("[]"), modifier, is_array)
    return ColumnFacts.of_definition(ColumnDefinition(1, "column", spelled), ())


def transformed(rule: str, kind: str, before: str) -> str | None:
    """What a rule makes of a value."""
    # As the file has it, where some words are the rule's and not the transformer's.
    said = ColumnRule.model_validate(yaml.safe_load(rule))
    found = transformer_class(said.use)
    options = found.options_model.model_validate(said.options)
    made = found(options, Keys(KEY, said.domain), facts(kind))
    made.check()
    other = pa.array(["Other"])
    inputs = Inputs(
        dict.fromkeys(made.raw_inputs, other),
        dict.fromkeys(made.made_inputs, other),
    )
    after: str | None = made.apply(pa.array([before], pa.string()), inputs)[0].as_py()
    return after


def examples() -> list[tuple[str, str, str, str]]:
    return ROW.findall(PAGE.read_text()) if PAGE.exists() else []


@pytest.mark.parametrize("example", examples(), ids=lambda example: example[0])
def test_examples(example: tuple[str, str, str, str]) -> None:
    rule, kind, before, after = example
    made = transformed(rule.replace("¦", "|"), kind, before)
    assert ("NULL" if made is None else f"`{made}`") == after


def test_every_transformer_has_an_example() -> None:
    named = {yaml.safe_load(rule.replace("¦", "|"))["use"] for rule, *_ in examples()}
    assert named == set(shipped_names()) - ASKING
    assert all(f"use: {name}" in PAGE.read_text() for name in ASKING)
