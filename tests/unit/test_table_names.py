"""Where tables go: one schema for all, some schemas, single tables."""

from __future__ import annotations

import pytest

from penstock.destination.postgres.targets.table_names import TableNames
from penstock.model.errors import ConfigError
from penstock.model.table_definition import TableDefinition, TypeDefinition


def table(schema: str, name: str, *types: str) -> TableDefinition:
    made = tuple(TypeDefinition(schema, kind, "enum") for kind in types)
    return TableDefinition(1, schema, name, "d", (), types=made)


def test_without_options_everything_keeps_its_name() -> None:
    names = TableNames()
    assert names.target("Shop", "Orders") == ("Shop", "Orders")
    assert names.schema("Shop") == "Shop"


def test_one_schema_for_all_or_a_mapping_of_schemas() -> None:
    assert TableNames("w").target("shop", "orders") == ("w", "orders")
    some = TableNames({"shop": "w"})
    assert [some.schema(name) for name in ("shop", "hr")] == ["w", "hr"]
    assert TableNames("w").schema("pg_catalog") == "pg_catalog"


def test_a_line_for_one_table_comes_before_its_schema() -> None:
    names = TableNames(
        {"shop": "w", "public": "p"},
        {
            "shop.orders": "x.sales",
            "shop.items": "things",
            "users": "people",
            '"A.b"."c d"': '"E f"."g.h"',
            "shop.stay": "public.stay",
            "shop.dots": '"a.b"',
        },
    )
    assert names.target("shop", "orders") == ("x", "sales")
    assert names.target("shop", "items") == ("w", "things")
    assert names.target("public", "users") == ("p", "people")
    assert names.target("A.b", "c d") == ("E f", "g.h")
    assert names.target("shop", "stay") == ("public", "stay")
    assert names.target("shop", "dots") == ("w", "a.b")
    assert names.target("shop", "users") == ("w", "users")


@pytest.mark.parametrize("text", ["a.b.c", "", 'a."b', "a b"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"destination\.tables"):
        TableNames(tables={text: "x"})
    with pytest.raises(ConfigError, match=r"destination\.tables"):
        TableNames(tables={"x": text})


def test_a_table_may_be_named_once() -> None:
    with pytest.raises(ConfigError, match="twice"):
        TableNames(tables={"orders": "a", "public.orders": "b"})


def test_a_mapping_is_checked_against_the_tables_that_are_followed() -> None:
    names = TableNames("w", {"shop.gone": "x", "shop.log": "penstock.log"})
    tables = [table("shop", "a", "mood"), table("hr", "a", "mood"), table("shop", "log")]
    with pytest.raises(ConfigError) as caught:
        names.check(tables)
    assert caught.value.message.splitlines()[1:] == [
        "- destination.tables names 'shop.gone', which this pipeline does not follow",
        "- the tables hr.a and shop.a would both become w.a",
        "- the types hr.mood and shop.mood would both become w.mood",
        "- shop.log would lie in the schema penstock, which is Penstock's own",
    ]


def test_a_mapping_that_works_out_passes() -> None:
    names = TableNames({"shop": "w"}, {"hr.a": "w.b"})
    names.check([table("shop", "a", "mood"), table("hr", "a", "mood")])
