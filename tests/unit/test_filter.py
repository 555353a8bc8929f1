"""What a filter lets pass of changes, events and copied rows."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.filter_config import OPERATIONS, FilterConfig
from penstock.decode.changes import ChangeSet
from penstock.decode.row_values import RowValues
from penstock.decode.text_image import TextImage
from penstock.model.errors import ConfigError
from penstock.model.lsn import NOTHING
from penstock.model.table_definition import ColumnDefinition, TableDefinition, TypeName
from penstock.model.table_rows import TableRows
from penstock.model.table_schema import TableSchema
from penstock.testing.change_builder import UNSET, ChangeBuilder, Column, table
from penstock.transform.filter import Filter

KEY, NAME, SIZE = Column("id", "int4", key=True), Column("name", "text"), Column("size", "int4")
# The first three share a layout, so that their rows are decoded together.
USERS = table("users", KEY, NAME, SIZE)
ORDERS = table("orders", KEY, NAME, SIZE)
AUDIT = table("log", KEY, NAME, SIZE, schema="audit")
NOTES = table("notes", KEY, NAME)
TABLES = (USERS, ORDERS, AUDIT, NOTES)


def make(**config: Any) -> Filter:
    return Filter(FilterConfig.model_validate(config))


def names(table: TableSchema) -> list[str]:
    return [column.name for column in table.columns]


def sample() -> ChangeSet:
    """A bit of everything; ids count the rows."""
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(USERS, "1", "ann", "10")
        builder.insert(AUDIT, "2", "x", "20")
        builder.insert(ORDERS, "3", "pen", "30")
        builder.update(USERS, "1", "bob", "40")
        builder.message("app", b"hello")
        builder.truncate(ORDERS, AUDIT, cascade=True)
        builder.truncate(AUDIT)
        builder.delete(USERS, key=("1", None, None))
        builder.insert(NOTES, "4", "note")
    return builder.cut()


def told(changes: ChangeSet) -> list[tuple[Any, ...]]:
    """Ordinal, kind and table of everything, in order."""
    found: list[tuple[Any, ...]] = []
    for part in changes.tables:
        ops = zip(part.ordinal.tolist(), part.op.tobytes().decode(), strict=True)
        found += [(ordinal, op, part.table.qualified_name) for ordinal, op in ops]
    for event in changes.truncates:
        names = ",".join(table.qualified_name for table in event.tables)
        found.append((event.stamp.position.ordinal, "T", names))
    found += [(event.stamp.position.ordinal, "M", event.prefix) for event in changes.messages]
    return sorted(found)


EVERYTHING: list[tuple[int, str, str]] = [
    (0, "I", "public.users"),
    (1, "I", "audit.log"),
    (2, "I", "public.orders"),
    (3, "U", "public.users"),
    (4, "M", "app"),
    (5, "T", "public.orders,audit.log"),
    (6, "T", "audit.log"),
    (7, "D", "public.users"),
    (8, "I", "public.notes"),
]


def without(*ordinals: int) -> list[tuple[Any, ...]]:
    return [event for event in EVERYTHING if event[0] not in ordinals]


def test_an_empty_filter_lets_everything_pass_as_it_is() -> None:
    changes, filtering = sample(), make()
    passed = filtering.apply(changes)
    assert told(passed) == EVERYTHING
    assert passed.tables == changes.tables
    assert filtering.filtered == {}


def test_excluded_tables_go_from_rows_and_truncates() -> None:
    filtering = make(tables={"exclude": ["audit.*"]})
    passed = filtering.apply(sample())
    assert told(passed) == [
        event if event[0] != 5 else (5, "T", "public.orders") for event in without(1, 6)
    ]
    assert passed.truncates[0].cascade
    # The row and its part of both truncates, of which one still tells something.
    assert filtering.filtered == {("audit.log", "table"): 3}


def test_only_included_tables_pass() -> None:
    filtering = make(tables={"include": ["orders", "*.log"], "exclude": ["audit.*"]})
    assert told(filtering.apply(sample())) == [
        (2, "I", "public.orders"),
        (4, "M", "app"),
        (5, "T", "public.orders"),
    ]


@pytest.mark.parametrize(
    ("operation", "gone"),
    [
        ("insert", (0, 1, 2, 8)),
        ("update", (3,)),
        ("delete", (7,)),
        ("truncate", (5, 6)),
        ("message", (4,)),
        ("read", ()),
        ("schema", ()),
    ],
)
def test_operations_pass_or_not(operation: str, gone: tuple[int, ...]) -> None:
    filtering = make(operations={"exclude": [operation]})
    assert told(filtering.apply(sample())) == without(*gone)
    # A truncate counts for each of its tables.
    gone_tables = [name for at, _, names in EVERYTHING if at in gone for name in names.split(",")]
    assert filtering.filtered == Counter(
        ("" if operation == "message" else name, "operation") for name in gone_tables
    )
    only = make(operations={"include": [operation]})
    assert told(only.apply(sample())) == [event for event in EVERYTHING if event[0] in gone]


def test_rows_pass_by_their_condition() -> None:
    filtering = make(rows={"users": "size > 15", "public.orders": "name = 'pen'"})
    passed = filtering.apply(sample())
    # The deleted user's size is not known.
    assert told(passed) == without(0)
    assert filtering.filtered == {("public.users", "row"): 1}
    (users,) = (part for part in passed.tables if part.table.name == "users")
    assert users.new_text(1).to_pylist() == ["bob"]
    assert users.old_text(0).to_pylist() == ["1"]


def test_columns_pass_or_not_and_conditions_may_use_those_that_do_not() -> None:
    filtering = make(
        columns={"public.users": {"exclude": ["size"]}, "orders": {"include": ["size", "id"]}},
        rows={"public.users": "size > 15"},
    )
    parts = {part.table.name: part for part in filtering.apply(sample()).tables}
    users, orders, log = parts["users"], parts["orders"], parts["log"]
    assert [column.name for column in users.table.columns] == ["id", "name"]
    assert users.table.oid == USERS.oid
    assert users.new_text(1).to_pylist() == ["bob"]
    # In the table's order, whatever the list's.
    assert [column.name for column in orders.table.columns] == ["id", "size"]
    assert orders.new_typed(1).values.to_pylist() == [30]
    assert len(log.table.columns) == 3
    assert filtering.filtered == {("public.users", "row"): 1}


def test_nothing_of_what_is_filtered_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also not beside rows of tables that share their layout."""
    gathered: list[str | None] = []
    gather = TextImage._gather

    def spy(self: TextImage, column: int) -> pa.Array:
        texts = gather(self, column)
        gathered.extend(texts.to_pylist())
        return texts

    monkeypatch.setattr(TextImage, "_gather", spy)
    tables = make(tables={"exclude": ["audit.*", "orders"]}).apply(sample())
    operations = make(operations={"exclude": ["update"]}).apply(sample())
    columns = make(columns={"users": {"include": ["id"]}}).apply(sample())
    assert gathered == []

    for part in tables.tables:
        for column in range(len(part.table.columns)):
            part.new_text(column)
    assert sorted(filter(None, gathered)) == ["1", "1", "10", "4", "40", "ann", "bob", "note"]
    gathered.clear()
    for part in operations.tables:
        part.new_text(1)
    assert sorted(filter(None, gathered)) == ["ann", "note", "pen", "x"]
    gathered.clear()
    columns.tables[0].new_text(0)
    assert sorted(filter(None, gathered)) == ["1", "1"]


def test_a_condition_decodes_its_own_columns_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[int] = set()
    gather = TextImage._gather

    def spy(self: TextImage, column: int) -> pa.Array:
        asked.add(column)
        return gather(self, column)

    monkeypatch.setattr(TextImage, "_gather", spy)
    make(tables={"exclude": ["audit.*"]}, rows={"users": "size > 15"}).apply(sample())
    assert asked == {2}


@given(
    st.lists(
        st.tuples(st.sampled_from(range(4)), st.sampled_from("IUDTM"), st.integers(0, 3)),
        max_size=20,
    ),
    st.sets(st.sampled_from(["users", "orders", "notes", "audit.log"])),
    st.sets(st.sampled_from(OPERATIONS)),
    st.integers(0, 3),
)
def test_what_passes_is_what_a_person_would_let_pass(
    events: list[tuple[int, str, int]], tables: set[str], operations: set[str], least: int
) -> None:
    names = {"I": "insert", "U": "update", "D": "delete", "T": "truncate", "M": "message"}
    builder = ChangeBuilder()
    expected, ids = [], []
    with builder.transaction():
        for ordinal, (number, kind, key) in enumerate(events):
            of = TABLES[number]
            name = of.name if of.schema == "public" else f"{of.schema}.{of.name}"
            row = (str(key), str(ordinal), "5")[: len(of.columns)]
            if kind == "I":
                builder.insert(of, *row)
            elif kind == "U":
                builder.update(of, *row)
            elif kind == "D":
                builder.delete(of, key=(str(key), None, None)[: len(of.columns)])
            elif kind == "T":
                builder.truncate(of)
            else:
                builder.message("app", b"")
            meets = kind in "TM" or of is not USERS or key >= least
            if names[kind] in operations and (kind == "M" or name not in tables) and meets:
                told_of = "app" if kind == "M" else f"{of.schema}.{of.name}"
                expected.append((ordinal, kind, told_of))
                ids += [(ordinal, str(key))] if kind in "IU" else []
    changes = builder.cut()
    filtering = make(
        tables={"exclude": sorted(tables)},
        operations={"include": sorted(operations)},
        rows={"users": f"id >= {least}"},
    )
    passed = filtering.apply(changes)
    assert told(passed) == expected
    assert filtering.filtered.total() == len(changes) - len(passed)
    found = []
    for part in passed.tables:
        assert len(part)
        rows = part.ordinal[part.new_rows].tolist()
        found += list(zip(rows, part.new_text(0).to_pylist(), strict=True))
        assert part.new_text(1).to_pylist() == [str(row) for row in rows]
    assert sorted(found) == ids


def test_a_filter_can_be_pickled_and_counts_anew() -> None:
    filtering = make(tables={"exclude": ["audit.*"]}, rows={"users": "size > 15"})
    filtering.apply(sample())
    copy: Filter = pickle.loads(pickle.dumps(filtering))  # noqa: S301
    assert copy.filtered == {}
    assert told(copy.apply(sample())) == told(filtering.apply(sample()))
    assert (copy.filtered.total(), filtering.filtered.total()) == (4, 8)


def test_who_gets_a_filter_need_not_load_sqlglot() -> None:
    """Executors get it pickled, and loading sqlglot takes longer than most batches."""
    pickled = pickle.dumps(make(rows={"users": "size > 15"})).hex()
    code = "import pickle, sys; pickle.loads(bytes.fromhex(sys.argv[1])); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, pickled], capture_output=True, text=True, check=True
    )
    modules = done.stdout.split()
    assert "penstock.transform.row_condition_evaluation" in modules
    assert "sqlglot" not in modules


# -- copied rows and schema events --------------------------------------------------------------


def schema_of(name: str) -> TableSchema:
    return next(part.table for part in sample().tables if part.table.name == name)


def copied(name: str = "users") -> TableRows:
    columns = (["1", "2"], ["ann", "bob"], ["10", None])
    arrays = tuple(pa.array(column, pa.string()) for column in columns)
    return TableRows(schema_of(name), arrays, 2, NOTHING)


def test_copied_rows_are_filtered_likewise() -> None:
    filtering = make(rows={"users": "size > 5"}, columns={"users": {"exclude": ["size"]}})
    rows = filtering.apply_rows(copied())
    assert rows is not None
    assert (len(rows), [column.to_pylist() for column in rows.columns]) == (1, [["1"], ["ann"]])
    assert [column.name for column in rows.table.columns] == ["id", "name"]
    assert filtering.filtered == {("public.users", "row"): 1}
    assert make().apply_rows(copied()) == copied()


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"tables": {"exclude": ["users"]}}, "table"),
        ({"operations": {"exclude": ["read"]}}, "operation"),
        ({"rows": {"users": "size > 10"}}, "row"),
    ],
)
def test_where_no_copied_row_passes_there_are_none(config: dict[str, Any], reason: str) -> None:
    filtering = make(**config)
    assert filtering.apply_rows(copied()) is None
    assert filtering.take_filtered() == {("public.users", reason): 2}
    assert filtering.filtered == {}


def test_schema_events_pass_unless_they_are_excluded() -> None:
    filtering = make(tables={"exclude": ["audit.*"]}, operations={"include": ["schema"]})
    assert filtering.passes_schema_event("public", "users")
    assert not filtering.passes_schema_event("audit", "log")
    silent = make(operations={"exclude": ["schema"]})
    assert not silent.passes_schema_event("public", "users")
    assert silent.passes_table("public", "users")


# -- what does not suit a table -----------------------------------------------------------------


@pytest.mark.parametrize("rule", [{"exclude": ["name", "id"]}, {"include": ["name"]}])
def test_a_key_cannot_stay_out(rule: dict[str, list[str]]) -> None:
    filtering = make(columns={"users": rule})
    with pytest.raises(ConfigError, match=r"column id of public\.users .* belongs to the key"):
        filtering.passing_columns(schema_of("users"))
    with pytest.raises(ConfigError, match=r"column id of public\.users"):
        filtering.apply(sample())
    filtering.passing_columns(schema_of("orders"))


def test_under_full_identity_only_a_key_that_is_named_has_to_stay() -> None:
    users = schema_of("users")
    columns = tuple(replace(column, is_key=True) for column in users.columns)
    full = replace(users, replica_identity="f", columns=columns)
    filtering = make(columns={"users": {"exclude": ["id"]}})
    assert names(filtering.passing_columns(full)) == ["name", "size"]
    kind = TypeName("pg_catalog", "integer")
    definitions = tuple(
        ColumnDefinition(number, column.name, kind) for number, column in enumerate(columns, 1)
    )
    keyed = TableDefinition(1, "public", "users", "f", definitions, primary_key=("id",))
    with pytest.raises(ConfigError, match=r"column id of public\.users"):
        filtering.definition(keyed)
    keyless = filtering.definition(replace(keyed, primary_key=()))
    assert [column.ignored for column in keyless.columns] == [True, False, False]


def test_columns_that_are_not_there() -> None:
    with pytest.raises(ConfigError, match=r"public\.users has no column nmae; it has id, name"):
        make(columns={"users": {"include": ["id", "nmae"]}}).passing_columns(schema_of("users"))
    lenient = make(columns={"users": {"exclude": ["nmae", "size"]}})
    assert names(lenient.passing_columns(schema_of("users"))) == ["id", "name"]
    assert lenient.passing_columns(schema_of("orders")) == schema_of("orders")


def test_a_condition_that_does_not_suit_is_named() -> None:
    filtering = make(rows={"users": "size > 1 AND weight > 1"})
    with pytest.raises(ConfigError, match=r"public\.users.*at character 14: .*no column weight"):
        filtering.passing_columns(schema_of("users"))
    with pytest.raises(ConfigError, match="weight"):
        filtering.apply(sample())


# -- destinations that hold rows

WHOLE = table("whole", KEY, NAME, SIZE, identity="f")
Row = tuple[str, str, str | None]


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[Row | None, Row | None, bool]]:
    """Rows before and after each change, as a table with a key allows them; whether an update
    leaves its name unset, as one that is stored out of line is where it does not change.
    """
    rows: dict[str, Row] = {}
    steps: list[tuple[Row | None, Row | None, bool]] = []
    sizes = st.sampled_from(["1", "20", "30", None])
    for _ in range(draw(st.integers(1, 25))):
        key = draw(st.sampled_from("abcd"))
        new = (str(ord(key)), draw(st.sampled_from(["x", "y"])), draw(sizes))
        old = rows.get(new[0])
        unset = False
        if old is None:
            rows[new[0]] = new
        elif draw(st.booleans()):
            other = draw(st.sampled_from("abcdef"))
            if str(ord(other)) not in rows or str(ord(other)) == old[0]:
                new = (str(ord(other)), *new[1:])
            unset = draw(st.booleans())
            new = (new[0], old[1] if unset else new[1], new[2])
            del rows[old[0]]
            rows[new[0]] = new
        else:
            del rows[old[0]]
            steps.append((old, None, False))
            continue
        steps.append((old, new, unset))
    return steps


@given(histories())
def test_who_holds_rows_holds_those_that_meet_the_condition(
    steps: list[tuple[Row | None, Row | None, bool]],
) -> None:
    """Each change is one that suits what is held: no row comes twice, and none goes that is not
    there. Rows that come are whole.
    """
    builder = ChangeBuilder()
    expected: dict[str, Row] = {}
    for old, new, unset in steps:
        with builder.transaction():
            if new is None:
                builder.delete(WHOLE, full=old)
            elif old is None:
                builder.insert(WHOLE, *new)
            else:
                builder.update(WHOLE, new[0], UNSET if unset else new[1], new[2], full=old)
        if old is not None:
            expected.pop(old[0], None)
        if new is not None and new[2] is not None and int(new[2]) > 10:
            expected[new[0]] = new
    config = FilterConfig.model_validate({"rows": {"whole": "size > 10"}})
    wanted = pickle.loads(pickle.dumps(Filter(config, holds_rows=True)))  # noqa: S301
    held: dict[str, Row] = {}
    for changes in wanted.apply(builder.cut()).tables:
        columns = range(3)
        values = [RowValues(changes).text(c).to_pylist() for c in columns]
        new_rows = dict(zip(changes.new_rows.tolist(), range(len(changes.new_rows)), strict=True))
        old_rows = dict(zip(changes.old_rows.tolist(), range(len(changes.old_rows)), strict=True))
        before = [changes.old_text(c).to_pylist() for c in columns]
        for number, op in enumerate(changes.op):
            assert (number in new_rows) == (chr(op) != "D")
            assert (number in old_rows) == (chr(op) != "I")
            if chr(op) != "I":
                gone = tuple(column[old_rows[number]] for column in before)
                assert held.pop(str(gone[0])) == gone
            if chr(op) != "D":
                row = tuple(column[number] for column in values)
                assert row[0] not in held
                held[str(row[0])] = row
    assert held == expected


def test_old_rows_that_came_without_their_columns_are_refused() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(USERS, "1", "ann", "10")
        builder.update(USERS, "1", "ann", "1")
    config = FilterConfig.model_validate({"rows": {"users": "size > 5"}})
    with pytest.raises(ConfigError, match="sends old rows whole"):
        Filter(config, holds_rows=True).apply(builder.cut())
