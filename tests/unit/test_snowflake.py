"""What is sent to Snowflake, as text: it runs on no server here."""

from __future__ import annotations

from typing import Any

import pytest
import sqlglot
from pydantic import ValidationError

from penstock.destination.families.target import Target
from penstock.destination.families.warehouse.dialect import WarehouseFile
from penstock.destination.snowflake.dialect import SnowflakeDialect
from penstock.destination.snowflake.options import SnowflakeOptions

ORDERS = Target(7, "sales", "Orders", ("id", "doc"), (0,), (), ("int8", "jsonb"))
DIALECT = SnowflakeDialect("@LAKE.PUBLIC.STAGE/shop", "shop")


def _options(**options: Any) -> SnowflakeOptions:
    given = {
        "account": "org-shop",
        "user": "LOADER",
        "password": "x",
        "warehouse": "LOADING",
        "database": "LAKE",
        "stage": "s3://bucket/stage",
        "external_stage": "LAKE.PUBLIC.STAGE",
    }
    return SnowflakeOptions.model_validate({**given, **options})


def test_names_are_as_nobody_quotes_them() -> None:
    assert DIALECT.table(ORDERS) == '"SALES"."ORDERS"'
    assert DIALECT.quoted('é"a') == '"é""A"'


@pytest.mark.parametrize("text", ["it's", "a\\b", "\\'", "", "\n", "é"])
def test_a_literal_is_read_as_what_it_is(text: str) -> None:
    (found,) = sqlglot.parse_one(f"SELECT {DIALECT.literal(text)}", read="snowflake").expressions
    assert found.this == text


def test_rows_are_staged_in_a_table_that_stays() -> None:
    (made,) = DIALECT.staging_table(ORDERS)
    assert made == (
        'CREATE OR REPLACE TRANSIENT TABLE "PENSTOCK"."SHOP$7" (c0 NUMBER(19,0), c1 VARCHAR,'
        " b0 NUMBER(19,0), m0 NUMBER(19,0), op VARCHAR, place NUMBER(19,0), row_ BOOLEAN)"
    )
    staged = DIALECT.staged(ORDERS, WarehouseFile("00ff.csv.gz", (("c0", "int8"), ("op", "op"))))
    (copied,) = staged.make
    assert copied.startswith(
        'COPY INTO "PENSTOCK"."SHOP$7" (c0, op) FROM @LAKE.PUBLIC.STAGE/shop/'
        " FILES = ('00ff.csv.gz') FILE_FORMAT = (TYPE = CSV "
    )
    assert staged.drop == ('DELETE FROM "PENSTOCK"."SHOP$7"',)


@pytest.mark.parametrize(
    ("before", "after", "is_widened"),
    [
        ("numeric(10,2)", "numeric(12,2)", True),
        ("numeric(12,2)", "numeric(10,2)", False),
        ("numeric(10,2)", "numeric(12,3)", False),
        ("int4", "int8", False),
    ],
)
def test_decimals_get_more_digits_in_place(before: str, after: str, is_widened: bool) -> None:
    assert (DIALECT.widened("t", "a", before, after) is not None) == is_widened


@pytest.mark.parametrize(
    "options",
    [
        {"private_key_file": "/key"},
        {"password": None},
        {"external_stage": "a.b.c.d"},
        {"external_stage": "x; DROP TABLE y"},
        {"warehouse": "a b"},
        {"stage": "/folder"},
    ],
)
def test_options_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        _options(**options)


def test_secrets_are_not_shown() -> None:
    assert "secret-1" not in repr(_options(password="secret-1"))
