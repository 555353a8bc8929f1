"""The transformer anonymizer without a database: options, types, whose functions they are."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from penstock.config import load_pipeline
from penstock.config.models import PipelineConfig
from penstock.config.transform_config import ColumnRule, TransformConfig
from penstock.model.errors import ConfigError, PenstockError, SourceUnavailable, TableRefused
from penstock.model.lsn import NOTHING
from penstock.model.pg_types import builtin_type
from penstock.model.table_definition import ColumnDefinition, TypeName
from penstock.model.table_rows import TableRows
from penstock.model.table_schema import ColumnSchema, TableSchema
from penstock.transform.anonymizer_functions import (
    AnonymizerFunctions,
    Known,
    MaskingCall,
    statement,
)
from penstock.transform.rules import Rules
from penstock.transform.transform import Transform
from penstock.transform.transformers.anonymizer import postgres_type
from penstock.transform.transformers.column_facts import ColumnFacts, text_facts
from penstock.transform.transformers.contract import UnfitError, ValueRefusedError

URL = "postgresql://penstock:hunter2@db.example/shop"
RULE = {"use": "anonymizer", "function": "partial_email"}


def written(folder: Path, rule: dict[str, Any], **parts: Any) -> Path:
    content: dict[str, Any] = {
        "name": "shop",
        "source": {"url": URL},
        "destination": {"type": "stdout"},
        **parts,
    }
    content["transform"] = {
        "rules": [{"table": "public.users", "columns": {"email": rule}, "keep": ["*"]}],
        **parts.get("transform", {}),
    }
    file = folder / "shop.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def url_of(config: PipelineConfig) -> str | None:
    assert config.transform is not None
    asked = config.transform.anonymizer
    return None if asked is None else asked.url.reveal()


def test_the_database_is_the_source_unless_the_file_names_one(tmp_path: Path) -> None:
    config = load_pipeline(written(tmp_path, RULE))
    assert url_of(config) == URL
    assert "hunter2" not in repr(config)
    assert "hunter2" not in config.model_dump_json()
    other = URL.replace("shop", "masks")
    named = written(tmp_path, RULE, transform={"anonymizer": {"url": other}})
    assert url_of(load_pipeline(named)) == other
    assert url_of(load_pipeline(written(tmp_path, {"use": "redact"}))) is None


def test_topics_have_no_functions(tmp_path: Path) -> None:
    topics = {"type": "kafka", "brokers": "localhost:1", "topics": ["a"], "schema_topic": "b"}
    parts: dict[str, Any] = {"source": topics, "store": {"url": URL}}
    with pytest.raises(ConfigError, match=r"transform\.anonymizer\.url names the one"):
        load_pipeline(written(tmp_path, RULE, **parts))
    named = written(tmp_path, RULE, **parts, transform={"anonymizer": {"url": URL}})
    assert url_of(load_pipeline(named)) == URL


def test_a_wrong_url_is_not_shown(tmp_path: Path) -> None:
    wrong = {"anonymizer": {"url": "postgresql://penstock:hunt/er2@x/y"}}
    with pytest.raises(ConfigError, match=r"transform\.anonymizer\.url") as caught:
        load_pipeline(written(tmp_path, RULE, transform=wrong))
    assert "er2" not in str(caught.value)


def rules(**said: Any) -> Rules:
    columns = {"email": {"use": "anonymizer", **said}}
    rule = {"table": "users", "columns": columns, "keep": ["*"]}
    return Rules(TransformConfig.model_validate({"anonymizer": {"url": URL}, "rules": [rule]}))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({}, "function"),
        ({"function": "anon.hash"}, "function"),
        ({"function": 'hash"; DROP TABLE x; --'}, "function"),
        ({"function": "hash", "arguments": ["x{value}"]}, "argument {value} stands by itself"),
        ({"function": "hash", "arguments": [["{value}"]]}, "arguments"),
        ({"function": "hash", "salt": 1}, "salt"),
    ],
)
def test_options_that_are_refused(said: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        rules(**said)


def test_it_is_no_part_of_another_rule() -> None:
    rule = ColumnRule.model_validate({"use": "array", "each": RULE})
    facts = ColumnFacts("c", "array", "text[]", element=text_facts("c"))
    with pytest.raises(UnfitError, match="whole columns"):
        rules(function="hash").bind(rule, facts, "users.tags")


TYPES = [
    ("text", "", 25, -1, "text"),
    ("character varying", "(20)", 1043, 24, "character varying(20)"),
    ("character", "(3)", 1042, 7, "character(3)"),
    ("smallint", "", 21, -1, "smallint"),
    ("integer", "", 23, -1, "integer"),
    ("bigint", "", 20, -1, "bigint"),
    ("numeric", "", 1700, -1, "numeric"),
    ("numeric", "(10,2)", 1700, (10 << 16 | 2) + 4, "numeric(10, 2)"),
    ("real", "", 700, -1, "real"),
    ("double precision", "", 701, -1, "double precision"),
    ("boolean", "", 16, -1, "boolean"),
    ("date", "", 1082, -1, "date"),
    ("time", "", 1083, -1, "time without time zone"),
    ("timestamp", "", 1114, -1, "timestamp without time zone"),
    ("timestamp with time zone", "", 1184, -1, "timestamp with time zone"),
    ("uuid", "", 2950, -1, "uuid"),
    ("inet", "", 869, -1, "inet"),
    ("cidr", "", 650, -1, "cidr"),
    ("json", "", 114, -1, "json"),
    ("jsonb", "", 3802, -1, "jsonb"),
    ("bytea", "", 17, -1, "bytea"),
    ("point", "", 600, -1, "point"),
    ("xml", "", 142, -1, None),
    ("interval", "", 1186, -1, None),
]


@pytest.mark.parametrize(("name", "modifier", "oid", "typmod", "kind"), TYPES)
def test_driver_and_executors_ask_for_the_same_type(
    name: str, modifier: str, oid: int, typmod: int, kind: str | None
) -> None:
    told = ColumnDefinition(1, "c", TypeName("pg_catalog", name, modifier))
    found = builtin_type(oid)
    assert found is not None
    assert postgres_type(ColumnFacts.of_definition(told, ())) == kind
    assert postgres_type(ColumnFacts.of_column(ColumnSchema("c", found, typmod))) == kind


def test_the_statement_binds_and_quotes() -> None:
    call = MaskingCall("odd", ("{value}", "it's", 2), "text", "text")
    assert statement('a"n', call).as_string() == (
        'SELECT CAST("a""n"."odd"(CAST(given.value AS text), %s, %s) AS text)'
        " FROM pg_catalog.unnest(%s::text[]) WITH ORDINALITY AS given (value, place)"
        " ORDER BY given.place"
    )
    drawn = MaskingCall("fake_city", (), "text", "text", random=True)
    assert "%s::bigint" in statement("anon", drawn).as_string()
    assert "text[]" not in statement("anon", drawn).as_string()


EMAIL = builtin_type(25)
assert EMAIL is not None
USERS = TableSchema(1, "public", "users", "d", (ColumnSchema("email", EMAIL, -1),))


def masked(
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception | None,
    values: list[str | None],
    **said: Any,
) -> list[str | None]:
    """What becomes of rows where the database answers so."""
    asked: list[list[str]] = []

    def applied(_self: object, _call: MaskingCall, given: list[str]) -> list[str]:
        asked.append(given)
        if failure is not None and PLANTED in given:
            raise failure
        return [text.upper() for text in given]

    monkeypatch.setattr(AnonymizerFunctions, "known", lambda *_: Known("anon", "mark"))
    monkeypatch.setattr(AnonymizerFunctions, "applied", applied)
    columns = {"email": {**RULE, **said}}
    rule = {"table": "users", "columns": columns, "keep": ["*"]}
    config = TransformConfig.model_validate({"anonymizer": {"url": URL}, "rules": [rule]})
    transform = pickle.loads(pickle.dumps(Transform(config)))  # noqa: S301
    rows = TableRows(USERS, (pa.array(values, pa.string()),), len(values), NOTHING)
    made: list[str | None] = transform.apply_rows(rows).columns[0].to_pylist()
    if failure is None:
        assert asked == [list(dict.fromkeys(value for value in values if value is not None))]
    return made


PLANTED = "anna@shop.de"


def test_each_value_is_sent_once_and_nulls_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    found = masked(monkeypatch, None, ["b", None, "a", "b", "b"])
    assert found == ["B", None, "A", "B", "B"]


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (SourceUnavailable("away"), SourceUnavailable),
        (UnfitError("another salt"), TableRefused),
    ],
)
@pytest.mark.parametrize("errors", ["refuse", "null"])
def test_what_no_value_is_to_blame_for_makes_no_nulls(
    monkeypatch: pytest.MonkeyPatch, failure: Exception, kind: type[PenstockError], errors: str
) -> None:
    with pytest.raises(kind):
        masked(monkeypatch, failure, ["x", PLANTED], errors=errors)


def test_a_refused_value(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = ValueRefusedError("anon.f refused a value with SQLSTATE 22P02")
    assert masked(monkeypatch, refused, ["x", PLANTED], errors="null") == ["X", None]
    with pytest.raises(TableRefused, match="22P02") as caught:
        masked(monkeypatch, refused, ["x", PLANTED])
    assert PLANTED not in str(caught.value)


@pytest.mark.parametrize("refused", [{700: PLANTED}, dict.fromkeys(range(0, 1000, 2), PLANTED)])
def test_one_refused_value_of_many_costs_few_calls(
    monkeypatch: pytest.MonkeyPatch, refused: dict[int, str]
) -> None:
    asked: list[int] = []

    def applied(_self: object, _call: MaskingCall, given: list[str]) -> list[str]:
        asked.append(len(given))
        if PLANTED in given:
            raise ValueRefusedError("anon.f refused a value with SQLSTATE 22P02")
        return given

    monkeypatch.setattr(AnonymizerFunctions, "known", lambda *_: Known("anon", "mark"))
    monkeypatch.setattr(AnonymizerFunctions, "applied", applied)
    values = [refused.get(number, str(number)) for number in range(1000)]
    table = {"table": "users", "columns": {"email": {**RULE, "errors": "null"}}, "keep": ["*"]}
    config = TransformConfig.model_validate({"anonymizer": {"url": URL}, "rules": [table]})
    rows = TableRows(USERS, (pa.array(values, pa.string()),), len(values), NOTHING)
    made = Transform(config).apply_rows(rows).columns[0].to_pylist()
    assert made == [None if value == PLANTED else value for value in values]
    assert len(asked) < 25


def test_calls_with_arguments_of_other_types_are_others() -> None:
    """For Python 1, 1.0 and true are the same."""
    calls = [MaskingCall("f", ("{value}", each), "text", "text") for each in (1, 1.0, True)]
    assert len(set(calls)) == 3
