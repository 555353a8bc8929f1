"""Labels of PostgreSQL Anonymizer as rules, with their arguments."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.model.table_definition import ColumnDefinition, TableDefinition, TypeName
from penstock.transform.anonymizer_labels import labelled_rule
from penstock.transform.suggestions import ColumnHints, suggest
from penstock.transform.transformers.registry import transformer_class

FUNCTIONS: dict[str, dict[str, Any]] = {
    "partial(2,'***',2)": {"use": "mask", "keep_first": 2, "keep_last": 2, "character": "*"},
    "partial(phone, 1, $$xx$$, 3)": {
        "use": "mask", "keep_first": 1, "keep_last": 3, "character": "x",
    },
    "partial(phone, 0, $a$-?-$a$, 4)": {"use": "mask", "keep_first": 0, "keep_last": 4},
    "random_string(12)": {"use": "string", "random": True, "min_length": 12, "max_length": 12},
    "random_int_between(-5, 17)": {"use": "integer", "random": True, "min": -5, "max": 17},
    "random_date_between('1990-01-01'::timestamptz, '2000-12-31')": {
        "use": "date", "random": True, "min": "1990-01-01", "max": "2000-12-31",
    },
    "random_date_between('1990-01-01', now())": {"use": "date", "random": True},
    "random_in(ARRAY['red', 'it''s'])": {
        "use": "choice", "choices": ["red", "it's"], "random": True,
    },
    "random_phone('0033')": {"use": "phone_number", "random": True, "format": "0033#########"},
    "noise(salary, 0.33)": {"use": "noise", "ratio": 0.33},
    "dnoise(born, interval '2 years 3 days')": {"use": "time_noise", "days": 733},
    "dummy_last_name_locale('fr_FR')": {"use": "last_name", "locale": "fr"},
    "pseudo_email(column2, 'salt 5')": {"use": "email"},
    "hash(name)": {"use": "hash"},
}  # fmt: skip


@pytest.mark.parametrize(("function", "rule"), FUNCTIONS.items())
def test_a_function_becomes_a_rule_with_its_arguments(function: str, rule: dict[str, Any]) -> None:
    found, _name = labelled_rule(f"MASKED WITH FUNCTION anon.{function}")
    assert found == rule
    options = {key: value for key, value in rule.items() if key != "use"}
    transformer_class(rule["use"]).options_model.model_validate(options)


@pytest.mark.parametrize(
    ("label", "rule"),
    [
        ("MASKED WITH VALUE 'it''s'", {"use": "literal", "value": "it's"}),
        ("MASKED WITH VALUE NULL", {"use": "null"}),
        ("MASKED WITH VALUE $$NULL$$", {"use": "literal", "value": "NULL"}),
        ("MASKED WITH VALUE $x$CONFIDENTIAL\n$x$", {"use": "literal", "value": "CONFIDENTIAL\n"}),
        ("MASKED WITH VALUE -1.5", {"use": "literal", "value": "-1.5"}),
        ("NOT MASKED", "keep"),
        ("MASKED WITH FUNCTION anon.image_blur(face, 5.0)", None),
    ],
)
def test_other_labels(label: str, rule: object) -> None:
    assert labelled_rule(label)[0] == rule


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (
            "anon.image_blur(face, 5.0)",
            {"use": "anonymizer", "function": "image_blur", "arguments": ["{value}", 5.0]},
        ),
        (
            "odd(face, 'it''s'::text, -3)",
            {"use": "anonymizer", "function": "odd", "arguments": ["{value}", "it's", -3],
             "random": True},
        ),
        (
            "image_blur(face, $$a'b$$)",
            {"use": "anonymizer", "function": "image_blur", "arguments": ["{value}", "a'b"]},
        ),
        ("odd()", {"use": "anonymizer", "function": "odd", "arguments": [], "random": True}),
        ("odd(name)", {"use": "null"}),
        ("odd(lower(face))", {"use": "null"}),
        ("mine.odd(face)", {"use": "null"}),
        ("anon.another(face)", {"use": "null"}),
        ("anon.hash(face)", {"use": "hash"}),
    ],
)  # fmt: skip
def test_functions_that_only_the_source_has(call: str, rule: dict[str, Any]) -> None:
    column = ColumnDefinition(1, "face", TypeName("pg_catalog", "text"))
    table = TableDefinition(1, "public", "people", "d", (column,))
    functions = {"image_blur": False, "odd": True, "hash": False}
    hints = {"face": ColumnHints(label=f"MASKED WITH FUNCTION {call}", functions=functions)}
    found = suggest(table, hints)["face"]
    assert found.rule == rule
    assert ("where the source has it" in found.why) == (rule["use"] == "anonymizer")


def test_what_no_rule_does_becomes_null() -> None:
    column = ColumnDefinition(1, "face", TypeName("pg_catalog", "bytea"))
    table = TableDefinition(1, "public", "people", "d", (column,))
    hints = {"face": ColumnHints(label="MASKED WITH FUNCTION anon.image_blur(face, 5.0)")}
    assert suggest(table, hints)["face"].rule == {"use": "null"}
