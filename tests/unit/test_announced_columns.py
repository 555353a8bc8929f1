"""Tables as the stream announces them, against the definitions that targets were made for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.destination.families.target import Target
from penstock.model.errors import TableChanged
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import ColumnDefinition, TableDefinition, TypeName
from penstock.model.table_schema import ColumnSchema, PgType, TableSchema

INT, TEXT, VARCHAR = PgType(23, "int4"), PgType(25, "text"), PgType(1043, "varchar")


def column(number: int, name: str, kind: PgType, typmod: int | None = -1) -> ColumnDefinition:
    type_name = TypeName("pg_catalog", kind.name)
    return ColumnDefinition(number, name, type_name, type_oid=kind.oid, typmod=typmod)


HELD = TableDefinition(
    7,
    "public",
    "items",
    "d",
    (column(1, "id", INT), column(2, "a", TEXT), column(3, "b", TEXT), column(4, "c", VARCHAR, 14)),
    primary_key=("id",),
)
SENT = TableSchema(
    7,
    "public",
    "items",
    "d",
    (
        ColumnSchema("id", INT, -1, is_key=True),
        ColumnSchema("a", TEXT),
        ColumnSchema("b", TEXT),
        ColumnSchema("c", VARCHAR, 14),
    ),
)


def sent(*places: int, **columns: ColumnSchema) -> TableSchema:
    """The columns at these places, some of them others."""
    found = [SENT.columns[place] for place in places or range(4)]
    return replace(SENT, columns=tuple(columns.get(c.name, c) for c in found))


def refused(table: TableSchema, held: TableDefinition = HELD) -> str:
    with pytest.raises(TableChanged) as caught:
        Target.of(held).places(table, 0x99)
    assert caught.value.commit_lsn == 0x99
    return caught.value.message


def test_what_was_expected_passes() -> None:
    assert Target.of(HELD).places(SENT) == [0, 1, 2, 3]
    whole = replace(SENT, replica_identity="f", columns=sent(id=ColumnSchema("id", INT)).columns)
    assert Target.of(HELD).places(whole) == [0, 1, 2, 3]


def test_columns_that_were_swapped_or_made_anew_come_in_another_order() -> None:
    assert "its columns come as id, b, a, c" in refused(sent(0, 2, 1, 3))
    assert "its columns come as id, a, c, b" in refused(sent(0, 1, 3, 2))


def test_another_type_or_modifier() -> None:
    assert "of another type: a" in refused(sent(a=ColumnSchema("a", INT)))
    assert "of another type: c" in refused(sent(c=ColumnSchema("c", VARCHAR, 24)))


def test_rows_that_are_found_by_other_columns() -> None:
    other = sent(id=ColumnSchema("id", INT), a=ColumnSchema("a", TEXT, is_key=True))
    assert "its rows are identified by a" in refused(other)


def test_names_count_first() -> None:
    assert "columns gone: b" in refused(sent(0, 1, 3))


def test_what_is_not_known_is_not_compared() -> None:
    """Definitions that an older version stored have no modifiers; those of tests no types."""
    old = replace(HELD, columns=(*HELD.columns[:3], column(4, "c", VARCHAR, None)))
    assert Target.of(old).places(sent(c=ColumnSchema("c", VARCHAR, 24))) == [0, 1, 2, 3]
    bare = replace(HELD, columns=tuple(replace(c, type_oid=0) for c in HELD.columns))
    assert Target.of(bare).places(sent(0, 2, 1, 3)) == [0, 2, 1, 3]


def test_columns_that_are_left_out_do_not_count() -> None:
    columns = (*HELD.columns[:2], replace(HELD.columns[2], ignored=True), HELD.columns[3])
    other = sent(b=ColumnSchema("b", INT))
    assert Target.of(replace(HELD, columns=columns)).places(other) == [0, 1, 3]


def test_a_target_is_the_same_whatever_types_are_announced() -> None:
    """Types of its columns are for ``alter`` to follow, by the schema change."""
    target = Target.of(HELD)
    assert Target.from_text(target.to_text()) == target
    assert Target.from_text(target.to_text()).announced == ()


@pytest.mark.parametrize(
    ("added", "may_rewrite"),
    [
        (column(5, "d", TEXT), False),
        (replace(column(5, "d", TEXT), default="'x'", missing="{x}"), False),
        (replace(column(5, "d", TEXT), default="random()"), True),
        (replace(column(5, "d", INT), identity="d"), True),
        (replace(column(5, "d", TEXT), generated="a"), True),
    ],
)
def test_whether_a_new_column_may_have_rewritten_rows(
    added: ColumnDefinition, *, may_rewrite: bool
) -> None:
    after = replace(HELD, columns=(*HELD.columns, added))
    assert TableChange(HELD, after).may_rewrite() is may_rewrite


def test_whether_a_change_may_have_rewritten_rows() -> None:
    swapped = replace(
        HELD,
        columns=(
            HELD.columns[0],
            replace(HELD.columns[1], name="b"),
            replace(HELD.columns[2], name="a"),
            HELD.columns[3],
        ),
    )
    assert not TableChange(HELD, swapped).may_rewrite()
    other = replace(HELD, columns=(*HELD.columns[:3], column(4, "c", INT)))
    assert TableChange(HELD, other).may_rewrite()
    assert not TableChange(HELD, None).may_rewrite()
