"""What is sent to Redshift, as text: it runs on no server here."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from penstock.destination.families.target import Target
from penstock.destination.families.warehouse.dialect import WarehouseFile
from penstock.destination.redshift.dialect import RedshiftDialect
from penstock.destination.redshift.options import RedshiftOptions
from tests.redshift_lint import complaints

ORDERS = Target(
    7, "Sales", "Orders", ("id", "Code", "at"), (0, 1), (), ("int8", "text", "timestamptz")
)


def _options(**options: Any) -> RedshiftOptions:
    return RedshiftOptions.model_validate(
        {
            "url": "postgresql://loader@cluster:5439/shop",
            "stage": "s3://bucket/stage",
            "iam_role": "arn:aws:iam::123456789012:role/loader",
            **options,
        }
    )


def _dialect(**options: Any) -> RedshiftDialect:
    return RedshiftDialect(_options(**options), "s3://bucket/stage/shop")


def test_blanks_at_the_end_of_a_key_count() -> None:
    """To Redshift 'a' = 'a ', and to Postgres these are two rows."""
    assert _dialect().same("text", "t.k", "r.k") == (
        "t.k = r.k AND OCTET_LENGTH(t.k) = OCTET_LENGTH(r.k)"
    )
    assert _dialect().same("int8", "t.k", "r.k") == "t.k = r.k"


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("it's", "'it''s'"),
        ("a\\b", "'a' || CHR(92) || 'b'"),
        ("\\'", "'' || CHR(92) || ''''"),
        ("", "''"),
    ],
)
def test_a_literal_means_the_same_whatever_a_backslash_does(text: str, literal: str) -> None:
    assert _dialect().literal(text) == literal


def test_tables_lie_as_the_file_says() -> None:
    tables = [
        {
            "match": "Sales.O*",
            "distribution": "key",
            "distribution_key": "Code",
            "sort_key": ["at"],
        },
        {"match": "*", "distribution": "all", "sort_key": ["no such"]},
    ]
    made = _dialect(tables=tables).create_table(ORDERS, "t")
    assert made == (
        'CREATE TABLE t ("id" BIGINT, "code" VARCHAR(65535), "at" TIMESTAMPTZ)'
        ' DISTSTYLE KEY DISTKEY ("code") SORTKEY ("at")'
    )
    assert _dialect(tables=tables[1:]).create_table(ORDERS, "t").endswith(") DISTSTYLE ALL")
    assert _dialect().create_table(ORDERS, "t").endswith("TIMESTAMPTZ)")


def test_files_are_named_by_a_manifest_and_null_by_the_file() -> None:
    statement = _dialect(region="eu-west-1").load_file(ORDERS, WarehouseFile("00ff.csv.gz", ()))
    assert statement == (
        'COPY "sales"."orders" ("id", "code", "at") FROM'
        " 's3://bucket/stage/shop/00ff.csv.gz.manifest'"
        " IAM_ROLE 'arn:aws:iam::123456789012:role/loader' REGION 'eu-west-1' MANIFEST GZIP CSV"
        " NULL AS '00ff' DATEFORMAT 'auto' TIMEFORMAT 'auto' COMPUPDATE OFF STATUPDATE OFF"
    )
    assert "IAM_ROLE default" in str(
        _dialect(iam_role="default").load_file(ORDERS, WarehouseFile("a", ()))
    )


@pytest.mark.parametrize(
    "options",
    [
        {"stage": "gs://bucket"},
        {"stage": "/folder"},
        {"iam_role": "loader"},
        {"iam_role": "x' OR 'y"},
        {"region": "eu-west-1'"},
        {"tables": [{"match": "*", "distribution": "odd"}]},
    ],
)
def test_options_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        _options(**options)


@pytest.mark.parametrize(
    "statement",
    [
        "TRUNCATE t",
        "MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE",
        "ALTER TABLE t ALTER COLUMN a TYPE VARCHAR(20)",
        "ALTER TABLE t ADD COLUMN a INTEGER, ADD COLUMN b INTEGER",
        "INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING",
        "DELETE FROM t x USING s WHERE x.a = s.a",
        "DELETE FROM t USING s r WHERE t.a = r.a",
        "CREATE TABLE t (a TEXT)",
        "CREATE TABLE t (a JSONB)",
        "SELECT 1 WHERE a IS NOT DISTINCT FROM b",
        "SELECT 'a\\b'",
        'SELECT "Name" FROM t',
        "SELECT 1; SELECT 2",
    ],
)
def test_the_deny_list_finds(statement: str) -> None:
    assert complaints(statement, in_transaction=True)


def test_the_deny_list_reads_neither_names_nor_values() -> None:
    assert not complaints(
        """INSERT INTO "truncate"."merge" ("text") SELECT 'TRUNCATE; it''s JSONB' FROM t""",
        in_transaction=True,
    )
