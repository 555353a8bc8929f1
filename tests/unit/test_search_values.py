"""What values of Postgres become in documents, and which fields hold them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from penstock.destination.search.exact_json import read_exactly, write_exactly
from penstock.destination.search.mapping import index_body
from penstock.destination.search.names import field_name, table_index
from penstock.destination.search.options import SearchOptions
from penstock.destination.search.values import field_values
from penstock.model.errors import TableRefused
from penstock.model.pg_types import builtin_type
from penstock.model.table_definition import (
    ColumnDefinition,
    TableDefinition,
    TypeDefinition,
    TypeName,
)

OIDS = {
    "int8": 20, "float8": 701, "numeric": 1700, "bool": 16, "text": 25, "bytea": 17,
    "timestamp": 1114, "timestamptz": 1184, "date": 1082, "point": 600, "jsonb": 3802,
    "int4range": 3904, "numrange": 3906, "tstzrange": 3910, "daterange": 3912,
    "text[]": 1009, "timestamptz[]": 1185, "jsonb[]": 3807, "box[]": 1020,
}  # fmt: skip


@pytest.mark.parametrize(
    ("pg_type", "text", "value"),
    [
        ("int8", "9223372036854775807", 9223372036854775807),
        ("float8", "NaN", "NaN"),
        ("numeric", "12345678901234567890.10", "12345678901234567890.10"),
        ("bool", "t", True),
        ("text", 'a "b"\n', 'a "b"\n'),
        ("bytea", "\\x00ff", "\\x00ff"),
        ("timestamp", "2024-02-29 12:00:00.5", "2024-02-29T12:00:00.5"),
        ("timestamptz", "2024-02-29 12:00:00+00", "2024-02-29T12:00:00Z"),
        ("timestamptz", "infinity", "infinity"),
        ("date", "2024-02-29", "2024-02-29"),
        ("point", "(1.5,-2)", "POINT (1.5 -2)"),
        ("jsonb", '{"a": [1]}', {"a": [1]}),
        ("jsonb", "[1]", {"value": [1]}),
        ("jsonb", "null", {"value": None}),
        ("int4range", "[1,5)", {"gte": 1, "lt": 5}),
        ("int4range", "(,5]", {"lte": 5}),
        ("int4range", "(,)", {}),
        ("int4range", "empty", None),
        ("numrange", "(1.10,2)", {"gt": "1.10", "lt": "2"}),
        ("daterange", "[2024-01-01,infinity)", {"gte": "2024-01-01"}),
        (
            "tstzrange",
            '["2024-01-01 00:00:00+00","2024-01-02 00:00:00+00"]',
            {"gte": "2024-01-01T00:00:00Z", "lte": "2024-01-02T00:00:00Z"},
        ),
        ("text[]", '{a,"b c",NULL}', ["a", "b c", None]),
        ("text[]", "{{a,b},{c,d}}", [["a", "b"], ["c", "d"]]),
        ("timestamptz[]", '{"2024-02-29 12:00:00+00"}', ["2024-02-29T12:00:00Z"]),
        ("jsonb[]", '{"1","{\\"a\\": 1}"}', [{"value": 1}, {"a": 1}]),
        ("box[]", "{(1,1),(0,0)}", "{(1,1),(0,0)}"),
    ],
)
def test_values(pg_type: str, text: str, value: Any) -> None:
    found_type = builtin_type(OIDS[pg_type])
    assert found_type is not None
    found = field_values(pa.array([None, text]), found_type, flat_json=True)
    assert found[0].as_py() is None
    assert (None if found[1].as_py() is None else json.loads(found[1].as_py())) == value


def test_numbers_keep_their_digits() -> None:
    text = '{"a":[1.10,1e400,-3,-0,12345678901234567890.123456789],"b":"é\\""}'
    assert write_exactly(read_exactly(text)) == text


@pytest.mark.parametrize("number", ["9" * 5000, "1e99999999999999999999"])
def test_numbers_may_be_larger_than_any_of_python(number: str) -> None:
    assert write_exactly(read_exactly(f'{{"a":{number}}}')) == f'{{"a":{number}}}'


def test_half_of_a_surrogate_pair_stays_what_it_is() -> None:
    text = '{"\\udc00":"é\\ud800","b":[],"c":{},"d":[[],null]}'
    assert pa.array([write_exactly(read_exactly(text))])[0].as_py() == text


def test_documents_may_be_as_deep_as_servers_take_them() -> None:
    text = '{"a":[' * 400 + "1" + "]}" * 400
    assert write_exactly(read_exactly(text)) == text


def test_names_of_indexes_and_fields() -> None:
    options = SearchOptions(url="http://nowhere")
    assert table_index(options, "shop", "Sales", "Order Items") == "shop.sales.order_items"
    long = table_index(options, "shop", "public", "表" * 100)
    assert len(long.encode()) <= 200
    assert long != table_index(options, "shop", "public", "表" * 101)
    names = ["a.b", "../x", "a. .b", "_id", "plain"]
    assert [field_name(name) for name in names] == ["a.b", "__/x", "a_ _b", "_id_", "plain"]


def _table(*columns: ColumnDefinition, types: tuple[TypeDefinition, ...] = ()) -> TableDefinition:
    return TableDefinition(1, "public", "things", "d", columns, types=types)


def _column(name: str, kind: str, schema: str = "pg_catalog") -> ColumnDefinition:
    return ColumnDefinition(len(name), name, TypeName(schema, kind))


def test_fields_of_types() -> None:
    domain = TypeDefinition("public", "price", "domain", base=TypeName("pg_catalog", "numeric"))
    table = _table(
        _column("a", "timestamp with time zone"),
        _column("bb", "price", "public"),
        _column("ccc", "mood", "public"),
        _column("dddd", "jsonb"),
        _column("eeeee", "text"),
        types=(domain,),
    )
    options = SearchOptions(
        url="http://nowhere", mappings={"public.things": {"eeeee": {"type": "keyword"}}}
    )
    body = index_body(table, options, is_opensearch=True)
    kinds = {name: field.get("type") for name, field in body["mappings"]["properties"].items()}
    assert kinds.pop("_penstock") is None
    assert kinds == {
        "a": "date",
        "bb": "double",
        "ccc": "keyword",
        "dddd": "flat_object",
        "eeeee": "keyword",
    }
    other = index_body(table, options, is_opensearch=False)
    assert other["mappings"]["properties"]["dddd"]["type"] == "flattened"


def test_columns_that_would_be_one_field_are_refused() -> None:
    table = _table(_column("_id", "text"), _column("_id_", "text"))
    with pytest.raises(TableRefused, match="differ in what a field cannot have"):
        index_body(table, SearchOptions(url="http://nowhere"), is_opensearch=True)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"url": "nowhere:9200"}, "https://search:9200"),
        ({"url": "http://user:secret@nowhere"}, "destination.user"),
        ({"url": "http://nowhere", "user": "a"}, "go together"),
        (
            {"url": "http://nowhere", "user": "a", "password": "b", "api_key": "c"},
            "either api_key",
        ),
        ({"url": "http://nowhere", "settings": {"index.gc_deletes": "1s"}}, "gc_deletes"),
        ({"url": "http://nowhere", "index": "{schema"}, "index's name"),
    ],
)
def test_options_that_cannot_be_meant(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        SearchOptions.model_validate(options)


def test_secrets_are_not_shown() -> None:
    options = SearchOptions.model_validate(
        {"url": "https://nowhere", "user": "a", "password": "hidden"}
    )
    assert "hidden" not in f"{options!r} {options.model_dump_json()}"
