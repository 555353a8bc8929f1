"""What becomes of a change table when the source's table changes."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from penstock.destination.families.change_tables.definition import (
    OWN,
    change_table,
    changed,
    fitted,
    is_change_table,
)
from penstock.destination.families.target import Target
from penstock.model.errors import TableRefused
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import ColumnDefinition, TableDefinition, TypeName


def _table(*columns: tuple[int, str, str], name: str = "items") -> TableDefinition:
    return TableDefinition(
        oid=7,
        schema="public",
        name=name,
        replica_identity="d",
        columns=tuple(
            ColumnDefinition(number, column, TypeName("pg_catalog", kind))
            for number, column, kind in columns
        ),
        primary_key=("id",),
    )


ID = (1, "id", "bigint")
BEFORE = _table(ID, (2, "a", "integer"), (3, "b", "date"))


def _follow(*states: TableDefinition) -> Target:
    """The change table behind all of them. After each, a new driver finds that it fits."""
    _, target = change_table(states[0])
    for before, after in itertools.pairwise(states):
        change, later = changed(TableChange(before, after), target)
        assert change.before is not None
        assert sorted(column.name for column in change.before.columns) == sorted(target.columns)
        target = Target.from_text(later.to_text())
        assert change_table(after, target)[1] == target
        assert fitted(after, target)[1] == target
    return target


def _columns(target: Target) -> dict[str, str]:
    found = dict(zip(target.columns, target.types, strict=True))
    assert OWN.items() <= found.items()
    return {name: kind for name, kind in found.items() if name not in OWN}


def test_it_has_the_columns_of_its_table_and_no_key() -> None:
    definition, target = change_table(BEFORE)
    assert _columns(target) == {"id": "int8", "a": "int4", "b": "date"}
    assert target.key == ()
    assert target.source == Target.of(BEFORE)
    numbers = [column.attnum for column in definition.columns]
    assert len(set(numbers)) == len(numbers)
    assert is_change_table(target)
    assert not is_change_table(Target.of(BEFORE))


def test_what_is_dropped_stays_and_what_is_renamed_is_renamed() -> None:
    target = _follow(BEFORE, _table(ID, (3, "c", "date")), _table(ID, (3, "c", "date"), name="x"))
    assert _columns(target) == {"id": "int8", "c": "date", "a": "int4"}
    assert target.name == "x"


def test_a_column_of_the_same_name_and_type_is_the_one_that_was_dropped() -> None:
    target = _follow(BEFORE, _table(ID), _table(ID, (4, "a", "integer")))
    assert _columns(target) == {"id": "int8", "a": "int4", "b": "date"}


def test_of_another_type_it_takes_the_name() -> None:
    target = _follow(BEFORE, _table(ID), _table(ID, (4, "a", "text")), _table(ID))
    assert _columns(target) == {"id": "int8", "a": "text", "a_": "int4", "b": "date"}
    target = _follow(
        BEFORE, _table(ID), _table(ID, (4, "a", "text")), _table(ID), _table(ID, (5, "a", "date"))
    )
    assert _columns(target) == {
        "id": "int8",
        "a": "date",
        "b": "date",
        "a_": "int4",
        "a__": "text",
    }
    swapped = _follow(BEFORE, _table(ID, (4, "a", "date"), (5, "b", "integer")))
    assert _columns(swapped) == {
        "id": "int8",
        "a": "date",
        "b": "int4",
        "a_": "int4",
        "b_": "date",
    }


def test_a_table_that_changed_unseen_goes_by_names() -> None:
    _, there = change_table(BEFORE)
    change, target = fitted(_table(ID, (9, "a", "bigint"), (4, "new", "uuid")), there)
    assert _columns(target) == {"id": "int8", "a": "int8", "new": "uuid", "b": "date"}
    pairs = {(old and old.name, new and new.name) for old, new in change.columns}
    assert {("a", "a"), ("b", "b"), (None, "new")} <= pairs


def test_our_own_names_are_refused() -> None:
    with pytest.raises(TableRefused, match="needs for itself: _Old"):
        change_table(
            replace(BEFORE, columns=(*BEFORE.columns, _table((4, "_Old", "text")).columns[0]))
        )
