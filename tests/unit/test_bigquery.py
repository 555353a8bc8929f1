"""What is sent to BigQuery, as text: it runs on no server here."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
import sqlglot
from pydantic import ValidationError

from penstock.destination.bigquery.dialect import TYPES, BigQueryDialect
from penstock.destination.bigquery.options import BigQueryOptions
from penstock.destination.families.target import Target

ORDERS = Target(7, "sales", "Orders", ("id", "doc"), (0,), (), ("int8", "jsonb"))
DIALECT = BigQueryDialect("EU")


@pytest.mark.parametrize("text", ["it's", "a\\b", "\\'", "", "\n", "é", "`", '"'])
def test_a_literal_is_read_as_what_it_is_and_stays_on_its_line(text: str) -> None:
    literal = DIALECT.literal(text)
    (found,) = sqlglot.parse_one(f"SELECT {literal}", read="bigquery").expressions
    assert found.this.replace("\\`", "`") == text
    assert "\n" not in literal


@pytest.mark.parametrize(
    ("plain", "kind"),
    [
        ("int2", "INT64"),
        ("float4", "FLOAT64"),
        ("numeric(38,9)", "NUMERIC(38,9)"),
        ("numeric(29,0)", "NUMERIC(29)"),
        ("numeric(30,0)", "BIGNUMERIC(30)"),
        ("numeric(38,10)", "BIGNUMERIC(38,10)"),
        ("numeric", "STRING"),
        ("int4[]", "JSON"),
    ],
)
def test_types(plain: str, kind: str) -> None:
    assert DIALECT.sql_type(TYPES.held_as(plain)) == kind


def test_a_table_lies_by_its_key() -> None:
    assert DIALECT.create_table(ORDERS, DIALECT.table(ORDERS)) == (
        "CREATE TABLE IF NOT EXISTS `sales`.`Orders` (`id` INT64, `doc` JSON) CLUSTER BY `id`"
    )


@pytest.mark.parametrize(
    ("plain", "keys", "bounds"),
    [
        ("int8", ["10", "9", None], " AND penstock_kept.`id` BETWEEN 9 AND 10"),
        ("text", ["b", "a'"], " AND penstock_kept.`id` BETWEEN 'a\\'' AND 'b'"),
        ("text", ["b", "a" * 1000], ""),
        ("date", ["2026-01-02", "2025-12-31"],
         " AND penstock_kept.`id` BETWEEN DATE '2025-12-31' AND DATE '2026-01-02'"),
        ("float8", ["1", "2"], ""),
        ("int8", [None], ""),
    ],
)  # fmt: skip
def test_a_merge_reads_no_more_than_its_keys(
    plain: str, keys: list[str | None], bounds: str
) -> None:
    target = Target(7, "sales", "orders", ("id",), (0,), (), (plain,))
    assert DIALECT.bounds(target, pa.table({"b0": pa.array(keys, pa.string())})) == bounds


@pytest.mark.parametrize(
    ("document", "is_held"),
    [
        ("[1, 0.1, 18446744073709551615, -9223372036854775808, 1.5e300]", True),
        ('{"a": "12345678901234567890123"}', True),
        ("[18446744073709551616]", False),
        ("[0.12345678901234567890]", False),
        ("[1e400]", False),
    ],
)
def test_numbers_of_documents_are_kept_or_unfit(document: str, is_held: bool) -> None:
    values, unfit = TYPES.fit(pa.array([document]), "jsonb", nearest=False)
    assert (unfit is None) == is_held
    assert values.to_pylist() == [document if is_held else None]


@pytest.mark.parametrize(
    ("schema", "name", "columns"),
    [
        ("sa-les", "orders", ("id",)),
        ("sales", "or.ders", ("id",)),
        ("sales", "orders", ("i.d",)),
        ("sales", "orders", ("_table_x",)),
        ("sales", "orders", ("Id", "id")),
    ],
)
def test_names_that_cannot_be(schema: str, name: str, columns: tuple[str, ...]) -> None:
    target = Target(7, schema, name, columns, (0,), (), ("int8",) * len(columns))
    assert DIALECT.lacks(target) is not None
    assert DIALECT.lacks(ORDERS) is None


@pytest.mark.parametrize(
    "options",
    [
        {"stage": "s3://bucket/stage"},
        {"location": "EU`; x"},
        {"maximum_bytes_billed": "1MiB"},
        {"mode": "upsert"},
    ],
)
def test_options_that_cannot_be(options: dict[str, Any]) -> None:
    given = {"project": "shop", "location": "EU", "stage": "gs://bucket/stage"}
    assert BigQueryOptions.model_validate(given).maximum_bytes_billed is None
    with pytest.raises(ValidationError):
        BigQueryOptions.model_validate({**given, **options})
