"""Statements of the `clickhouse` destination, as texts: no engine is asked."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.destination.clickhouse.names import RowsTable, quoted, short_name
from penstock.destination.clickhouse.tables import (
    alter_in_place,
    copy_rows,
    create_table,
    create_view,
)
from penstock.destination.clickhouse.types import TYPES, held, key_literals, literal_of, text_of
from penstock.destination.families.target import Target
from penstock.model.errors import TableRefused
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import ColumnDefinition, TableDefinition, TypeName

AT = RowsTable("shop", "orders", 1)
NEXT = RowsTable("shop", "orders", 2)


def column(number: int, name: str, kind: str, modifier: str = "") -> ColumnDefinition:
    return ColumnDefinition(number, name, TypeName("pg_catalog", kind, modifier))


ORDERS = TableDefinition(
    oid=1,
    schema="shop",
    name="orders",
    replica_identity="d",
    columns=(
        column(1, "id", "bigint"),
        column(2, "note", "text"),
        column(3, "price", "numeric", "(10,2)"),
    ),
    primary_key=("id",),
)


def with_columns(*columns: ColumnDefinition, **more: object) -> TableDefinition:
    return replace(ORDERS, columns=columns, **more)  # type: ignore[arg-type]


def in_place(after: TableDefinition) -> str | None:
    change = TableChange(ORDERS, after)
    return alter_in_place(change, Target.of(ORDERS), Target.of(after), AT)


def test_a_table_and_its_view() -> None:
    target = Target.of(ORDERS)
    assert create_table(target, AT, "it's ours") == (
        "CREATE TABLE IF NOT EXISTS `shop`.`orders.g1` (`id` Int64, `note` Nullable(String), "
        "`price` Nullable(Decimal(10, 2)), _version UInt128, _deleted UInt8) "
        "ENGINE = ReplacingMergeTree(_version, _deleted) ORDER BY (`id`) "
        "SETTINGS fsync_after_insert = 1, fsync_part_directory = 1 COMMENT 'it\\'s ours'"
    )
    assert create_view(target, AT, "`shop`.`orders`", "ours") == (
        "CREATE OR REPLACE VIEW `shop`.`orders` AS SELECT `id`, `note`, `price` "
        "FROM `shop`.`orders.g1` FINAL COMMENT 'ours'"
    )


def test_without_a_key_rows_have_a_column_of_ours() -> None:
    sql = create_table(Target.of(replace(ORDERS, primary_key=())), AT, "")
    assert "`_row` String" in sql
    assert "ORDER BY (`_row`)" in sql


def test_a_column_that_has_our_name_is_refused() -> None:
    table = with_columns(*ORDERS.columns, column(4, "_version", "text"))
    with pytest.raises(TableRefused, match="_version has a name"):
        create_table(Target.of(table), AT, "")


def test_columns_that_come_go_and_are_renamed_change_in_place() -> None:
    key, note, _ = ORDERS.columns
    new = replace(column(4, "more", "integer"), missing="{7}")
    assert in_place(with_columns(key, replace(note, name="text"), new)) == (
        "ALTER TABLE `shop`.`orders.g1` RENAME COLUMN IF EXISTS `note` TO `text`, "
        "DROP COLUMN IF EXISTS `price`, "
        "ADD COLUMN IF NOT EXISTS `more` Nullable(Int32) DEFAULT CAST('7' AS Int32)"
    )
    assert in_place(ORDERS) == ""


@pytest.mark.parametrize(
    "columns",
    [
        (column(1, "number", "bigint"), *ORDERS.columns[1:]),
        (*ORDERS.columns[:2], column(3, "price", "numeric")),
        (ORDERS.columns[0], column(2, "price", "text"), column(3, "note", "numeric", "(10,2)")),
        (ORDERS.columns[0], ORDERS.columns[2], column(4, "note", "text")),
    ],
    ids=["the key renamed", "another type", "names exchanged", "a name again"],
)
def test_what_needs_another_table(columns: tuple[ColumnDefinition, ...]) -> None:
    after = with_columns(*columns, primary_key=(columns[0].name,))
    assert in_place(after) is None


def test_rows_are_carried_over_with_their_versions() -> None:
    key, note, price = ORDERS.columns
    wide = replace(price, type=TypeName("pg_catalog", "numeric"))
    after = with_columns(
        replace(key, name="number"), note, wide, column(4, "more", "text"), primary_key=("number",)
    )
    change = TableChange(ORDERS, after)
    assert copy_rows(change, Target.of(ORDERS), Target.of(after), AT, NEXT) == (
        "INSERT INTO `shop`.`orders.g2` (`number`, `note`, `price`, `more`, _version, _deleted) "
        "SELECT `id`, `note`, toDecimalString(`price`, 2), NULL, _version, _deleted "
        "FROM `shop`.`orders.g1`"
    )


def test_floats_of_a_key_are_texts() -> None:
    table = with_columns(column(1, "id", "double precision"), column(2, "x", "double precision"))
    assert held(Target.of(table)).types == ("text", "float8")


def test_names_that_are_too_long_stay_different() -> None:
    long, other = "表" * 21, "表" * 20 + "字"
    assert short_name("orders") == "orders"
    assert short_name("x" * 90) == "x" * 90
    assert short_name(long) != short_name(other)
    assert len(short_name(long)) < 21
    assert quoted("a`b\\") == "`a\\`b\\\\`"


def test_values_in_statements() -> None:
    texts = pa.array(["it's", "back\\slash"])
    assert key_literals(texts, "text").to_pylist() == ["'it\\'s'", "'back\\\\slash'"]
    assert key_literals(pa.array(["t", "f"]), "bool").to_pylist() == ["true", "false"]
    assert key_literals(pa.array(["\\x00ff"]), "bytea").to_pylist() == ["unhex('00ff')"]
    stamp = pa.array(["2024-02-29 12:00:00.5+00"])
    assert key_literals(stamp, "timestamptz").to_pylist() == ["'2024-02-29 12:00:00.5'"]
    assert literal_of("{1,NULL}", "int4[]") == "CAST('[1,null]' AS String)"
    assert literal_of("\\x00ff", "bytea") == "unhex('00ff')"
    assert text_of("c", "timestamptz").endswith("'+00')")


def test_arrays_are_json_and_stay_so() -> None:
    texts = pa.array(["{1,NULL}", "{{1,2},{3,4}}", "[1,null]", "[2:3]={1,2}", None, "{}"])
    values, unfit = TYPES.fit(texts, "int4[]", nearest=False)
    assert values.to_pylist() == ["[1,null]", "[[1,2],[3,4]]", "[1,null]", None, None, "[]"]
    assert unfit is not None
    assert unfit.tolist() == [False, False, False, True, False, False]
