"""What a schema change did: steps that lead from one definition to the other, and their words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.model.schema_change import TableChange
from penstock.model.table_definition import (
    ColumnDefinition,
    ConstraintDefinition,
    IndexDefinition,
    TableDefinition,
    TypeDefinition,
    TypeName,
)
from penstock.model.type_change import LabelChange, attribute_changes, label_changes

INT, BIGINT, TEXT = (TypeName("pg_catalog", name) for name in ("integer", "bigint", "text"))
MOOD = TypeName("public", "mood")
ID = ColumnDefinition(1, "id", INT, not_null=True)
LABEL = ColumnDefinition(2, "label", TEXT)
BY_LABEL = IndexDefinition("by_label", False, "USING btree (lower(label), id)", oid=100)
CHECK = ConstraintDefinition("full", "check", "CHECK ((label <> ''::text))", oid=101)
FOREIGN = ConstraintDefinition(
    *("up", "foreign", "FOREIGN KEY (id) REFERENCES public.o(id)"), (), ("public", "o"), 102
)
ENUM = TypeDefinition("public", "mood", "enum", ("sad", "calm"), oid=200)
TABLE = TableDefinition(
    oid=10,
    schema="public",
    name="t",
    replica_identity="d",
    columns=(ID, LABEL, ColumnDefinition(3, "m", MOOD, default="'sad'::public.mood")),
    primary_key=("id",),
    types=(ENUM,),
    indexes=(BY_LABEL,),
    constraints=(CHECK, FOREIGN),
)


def with_column(column: ColumnDefinition) -> TableDefinition:
    others = [old for old in TABLE.columns if old.attnum != column.attnum]
    ordered = sorted([*others, column], key=lambda other: other.attnum)
    return replace(TABLE, columns=tuple(ordered))


def with_type(**changes: Any) -> TableDefinition:
    return replace(TABLE, types=(replace(ENUM, **changes),))


def renamed_column() -> TableDefinition:
    """As the server shows a table whose column was renamed: in all texts."""
    return replace(
        with_column(replace(LABEL, name="Title")),
        indexes=(replace(BY_LABEL, definition='USING btree (lower("Title"), id)'),),
        constraints=(replace(CHECK, definition="CHECK ((\"Title\" <> ''::text))"), FOREIGN),
    )


def renamed_type() -> TableDefinition:
    column = replace(TABLE.columns[2], type=TypeName("s", "Mo"), default="'sad'::s.\"Mo\"")
    return replace(with_column(column), types=(replace(ENUM, schema="s", name="Mo"),))


CASES: list[tuple[TableDefinition | None, TableDefinition | None, list[str]]] = [
    (None, TABLE, ["table public.t created"]),
    (TABLE, None, ["table public.t dropped"]),
    (TABLE, TABLE, []),
    (TABLE, replace(TABLE, schema="s"), ["table public.t renamed to s.t"]),
    (
        TABLE,
        with_column(ColumnDefinition(4, "price", INT, default="7")),
        ["column price integer added (default 7)"],
    ),
    (with_column(ColumnDefinition(4, "price", INT)), TABLE, ["column price dropped"]),
    (TABLE, renamed_column(), ["column label renamed to Title"]),
    (TABLE, with_column(replace(ID, type=BIGINT)), ["column id: integer -> bigint"]),
    (
        TABLE,
        with_column(replace(LABEL, collation=("pg_catalog", "C"))),
        ["column label: text -> text collate C"],
    ),
    (TABLE, with_column(replace(LABEL, default="'a'")), ["column label: default 'a'"]),
    (TABLE, with_column(replace(LABEL, not_null=True)), ["column label: not null"]),
    (TABLE, with_column(replace(ID, identity="a")), ["column id: identity none -> always"]),
    (
        TABLE,
        with_column(replace(ID, sequence="public.q", default="nextval('public.q')")),
        ["column id: sequence none -> public.q"],
    ),
    (
        with_column(ColumnDefinition(4, "g", INT, generated="(id + 1)")),
        with_column(ColumnDefinition(4, "g", INT)),
        ["column g: no longer generated"],
    ),
    (TABLE, with_column(replace(LABEL, published=False)), ["column label: no longer published"]),
    (TABLE, replace(TABLE, primary_key=()), ["primary key dropped"]),
    (TABLE, replace(TABLE, primary_key=("id", "m")), ["primary key (id) -> (id, m)"]),
    (TABLE, replace(TABLE, indexes=()), ["index by_label dropped"]),
    (
        TABLE,
        replace(TABLE, indexes=(replace(BY_LABEL, name="x"),)),
        ["index by_label renamed to x"],
    ),
    (
        TABLE,
        replace(TABLE, constraints=(CHECK,)),
        ["constraint up dropped"],
    ),
    (
        TABLE,
        replace(
            TABLE,
            constraints=(CHECK, replace(FOREIGN, definition=FOREIGN.definition + " NOT VALID")),
        ),
        [
            f"constraint up: {FOREIGN.definition} -> {FOREIGN.definition} NOT VALID",
        ],
    ),
    (
        TABLE,
        with_type(labels=("sad", "calm", "wild")),
        ["type mood: value 'wild' added after 'calm'"],
    ),
    (TABLE, with_type(labels=("blue", "calm")), ["type mood: value 'sad' renamed to 'blue'"]),
    (TABLE, renamed_type(), ["type mood: renamed to s.Mo"]),
    (TABLE, replace(TABLE, replica_identity="f"), ["replica identity default -> full"]),
    (TABLE, replace(TABLE, unique_keys=(("id", "m"),)), ["unique keys: (id, m)"]),
    (TABLE, replace(TABLE, partitions=(5, 6)), ["partitions: 2 added, 0 gone"]),
]


@pytest.mark.parametrize(("before", "after", "said"), CASES)
def test_each_kind_of_change_in_words(
    before: TableDefinition | None, after: TableDefinition | None, said: list[str]
) -> None:
    change = TableChange(before, after)
    assert [step.text for step in change.differences()] == said
    assert change.oid == 10


def test_a_rewrite_is_a_difference_of_its_own() -> None:
    (step,) = TableChange(TABLE, TABLE, is_rewrite=True).differences()
    assert (step.kind, step.text) == ("rewrite", "rows rewritten")


def test_a_foreign_key_to_a_table_that_was_renamed_stays() -> None:
    moved = replace(
        FOREIGN,
        definition="FOREIGN KEY (id) REFERENCES s.other(key)",
        references=("s", "other"),
    )
    assert not TableChange(TABLE, replace(TABLE, constraints=(CHECK, moved))).differences()


def test_an_index_that_was_made_anew_is_the_same_only_if_its_text_is() -> None:
    same = replace(TABLE, indexes=(replace(BY_LABEL, oid=999),))
    assert not TableChange(TABLE, same).differences()
    other = replace(TABLE, indexes=(replace(BY_LABEL, oid=999, definition="USING hash (id)"),))
    assert [step.kind for step in TableChange(TABLE, other).differences()] == ["index"]
    # Its storage parameters may change while it lives.
    filled = replace(BY_LABEL, definition=BY_LABEL.definition + " WITH (fillfactor='70')")
    (step,) = TableChange(TABLE, replace(TABLE, indexes=(filled,))).differences()
    assert step.text.startswith("index by_label: USING btree")


def test_names_that_pass_from_one_to_another() -> None:
    a, b = replace(BY_LABEL, name="a", oid=1), replace(BY_LABEL, name="b", oid=2)
    swapped = replace(TABLE, indexes=(replace(a, name="b"), replace(b, name="a")))
    steps = TableChange(replace(TABLE, indexes=(a, b)), swapped).differences()
    assert [step.text for step in steps] == ["index b renamed to a", "index a renamed to b"]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("", "a", [LabelChange("a")]),
        ("b", "ab", [LabelChange("a", before="b")]),
        ("ab", "aXYb", [LabelChange("X", after="a"), LabelChange("Y", after="X")]),
        ("abc", "aBc", [LabelChange("B", renamed_from="b")]),
        ("abc", "aBXc", [LabelChange("B", renamed_from="b"), LabelChange("X", after="B")]),
        ("abc", "ac", None),
        ("abc", "acb", None),
    ],
)
def test_values_of_an_enum(before: str, after: str, expected: list[LabelChange] | None) -> None:
    assert label_changes(tuple(before), tuple(after)) == expected


def test_attributes_of_a_composite() -> None:
    before = (("a", INT), ("b", INT), ("c", TEXT), ("d", INT))
    after = (("a", BIGINT), ("B", INT), ("d", INT), ("e", TEXT))
    assert [change.text for change in attribute_changes(before, after)] == [
        "attribute c dropped",
        "attribute b renamed to B",
        "attribute a: integer -> bigint",
        "attribute e text added",
    ]
