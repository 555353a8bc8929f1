"""Which changes and copied rows a condition lets through."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pyarrow as pa
import pytest

from penstock.decode.changes import TableChanges
from penstock.model.errors import ConfigError, DecodeError
from penstock.model.lsn import NOTHING
from penstock.model.pg_types import builtin_type
from penstock.model.table_rows import TableRows
from penstock.model.table_schema import ColumnSchema, PgType, TableSchema
from penstock.testing.change_builder import UNSET, ChangeBuilder, Column, Table, table
from penstock.transform.row_condition import RowCondition

COLUMNS = (
    Column("id", "int4", key=True),
    Column("total", "numeric"),
    Column("status", "text"),
)
ORDERS = table("orders", *COLUMNS)
FULL = table("orders_full", *COLUMNS, identity="f")

Write = Callable[[ChangeBuilder], None]


def changes_of(*writes: Write) -> TableChanges:
    builder = ChangeBuilder()
    with builder.transaction():
        for write in writes:
            write(builder)
    (changes,) = builder.cut().tables
    return changes


def passing(condition: str, *writes: Write) -> list[bool]:
    found: list[bool] = RowCondition.parse(condition).passing(changes_of(*writes)).tolist()
    return found


def insert(of: Table, *row: object) -> Write:
    return lambda builder: builder.insert(of, *row)  # type: ignore[arg-type]


def update(of: Table, *row: object, **old: object) -> Write:
    return lambda builder: builder.update(of, *row, **old)  # type: ignore[arg-type]


def delete(of: Table, **old: object) -> Write:
    return lambda builder: builder.delete(of, **old)  # type: ignore[arg-type]


CHEAP, DEAR = ("1", "50", "open"), ("1", "150.5", "open")


@pytest.mark.parametrize(
    ("write", "passes"),
    [
        (insert(ORDERS, *DEAR), True),
        (insert(ORDERS, *CHEAP), False),
        (insert(ORDERS, "1", None, "open"), False),
        # An update without an old row goes by the new one.
        (update(ORDERS, *DEAR), True),
        (update(ORDERS, *CHEAP), False),
        # A row that leaves the set is told of where that is known.
        (update(FULL, *CHEAP, full=DEAR), True),
        (update(FULL, *DEAR, full=CHEAP), True),
        (update(FULL, *CHEAP, full=CHEAP), False),
        (update(ORDERS, *CHEAP, key=("2", None, None)), False),
        # What was not sent is not known, unless the old row has it.
        (update(ORDERS, "1", UNSET, "open"), True),
        (update(ORDERS, "1", UNSET, "open", key=("2", None, None)), True),
        (update(FULL, "1", UNSET, "paid", full=DEAR), True),
        (update(FULL, "1", UNSET, "paid", full=CHEAP), False),
        # Deletes go by the old row, as far as it is known.
        (delete(ORDERS, key=("1", None, None)), True),
        (delete(FULL, full=DEAR), True),
        (delete(FULL, full=CHEAP), False),
        (delete(FULL, full=("1", None, "open")), False),
    ],
)
def test_changes_pass_unless_the_condition_is_known_not_to_hold(write: Write, passes: bool) -> None:
    assert passing("total > 100", write) == [passes]


def test_many_changes_are_decided_each_for_itself() -> None:
    """Changes with and without images of either kind lie between each other."""
    assert passing(
        "total > 100",
        update(FULL, "1", UNSET, "paid", full=CHEAP),
        insert(FULL, *DEAR),
        delete(FULL, full=CHEAP),
        update(FULL, "1", UNSET, "paid", full=DEAR),
        insert(FULL, *CHEAP),
        delete(FULL, full=DEAR),
        update(FULL, *CHEAP, full=DEAR),
    ) == [False, True, False, True, False, True, True]


def test_a_key_is_known_of_every_old_row() -> None:
    gone = [delete(ORDERS, key=(key, None, None)) for key in "12"]
    assert passing("id = 2", *gone) == [False, True]
    assert passing("id = 2", update(ORDERS, "3", "1", "x", key=("2", None, None))) == [True]


def test_what_is_known_can_decide_alone() -> None:
    unsent = update(ORDERS, "1", UNSET, "draft")
    assert passing("status <> 'draft' AND total > 100", unsent) == [False]
    assert passing("status = 'draft' AND total > 100", unsent) == [True]
    assert passing("status = 'draft' OR total > 100", unsent) == [True]
    assert passing("NOT (status = 'draft' OR total > 100)", unsent) == [False]
    assert passing("NULL > total", unsent) == [False]
    assert passing("coalesce(total, 0) > 100", unsent) == [True]


def test_only_columns_of_the_condition_are_decoded() -> None:
    bad = table("bad", Column("a", "int4"), Column("b", "int4"))
    write = insert(bad, "1", "one")
    assert passing("a = 1", write) == [True]
    with pytest.raises(DecodeError, match=r"^table public.bad, column b: "):
        passing("a = 1 AND b = 1", write)
    assert passing("b IS NOT NULL", write) == [True]


ODD = table(
    "odd",
    Column("d", "date"),
    Column("n", "numeric", typmod=(10 << 16 | 2) + 4),
    Column("u", "numeric"),
    Column("tm", "time"),
)


@pytest.mark.parametrize(
    ("row", "column", "literal"),
    [
        (("infinity", None, None, None), "d", "'2024-01-01'"),
        ((None, "NaN", None, None), "n", "5"),
        ((None, None, "NaN", None), "u", "5"),
        ((None, None, "-Infinity", None), "u", "5"),
        ((None, None, "1" * 39, None), "u", "5"),
        ((None, None, "0." + "1" * 39, None), "u", "5"),
        ((None, None, None, "24:00:00"), "tm", "'12:00'"),
    ],
)
def test_values_without_an_arrow_form_pass_comparisons(
    row: tuple[str | None, ...], column: str, literal: str
) -> None:
    write = insert(ODD, *row)
    for operator in ("<", ">=", "=", "<>"):
        assert passing(f"{column} {operator} {literal}", write) == [True]
    assert passing(f"{column} IS NULL", write) == [False]
    assert passing(f"{column} IS NOT NULL", write) == [True]


def test_long_numerics_are_exact() -> None:
    digits = "9" * 38
    assert passing(f"u = {digits}.{digits}", insert(ODD, None, None, f"{digits}.{digits}", None))
    rows = [insert(ODD, None, None, text, None) for text in (f"0.{digits}", f"-0.{digits}")]
    assert passing(f"u < 0.{digits[:-1]}8", *rows) == [False, True]
    # In arithmetic fewer digits are taken; beyond them nothing is decided.
    assert passing("u + 1 < 1", *rows) == [True, True]
    assert passing("u * u > 9", insert(ODD, None, None, "2.5", None)) == [False]


def rows_of(table: TableSchema, *columns: list[str | None]) -> TableRows:
    arrays = tuple(pa.array(column, pa.string()) for column in columns)
    return TableRows(table, arrays, len(columns[0]), NOTHING)


def described(*columns: tuple[str, PgType | int]) -> TableSchema:
    found = []
    for name, kind in columns:
        pg_type = builtin_type(kind) if isinstance(kind, int) else kind
        assert pg_type is not None
        found.append(ColumnSchema(name, pg_type))
    return TableSchema(1, "shop", "orders", "d", tuple(found))


def test_copied_rows_pass_by_their_values() -> None:
    table = described(("id", 23), ("status", 25))
    rows = rows_of(table, ["1", "2", "3"], ["open", None, "draft"])
    assert RowCondition.parse("status <> 'draft'").passing_rows(rows).tolist() == [
        True,
        False,
        False,
    ]
    bad = rows_of(table, ["one"], ["x"])
    with pytest.raises(DecodeError, match=r"^table shop.orders, column id: "):
        RowCondition.parse("id = 1").passing_rows(bad)


def test_domains_are_what_they_are_made_of() -> None:
    email = PgType(50_001, "email", "domain", builtin_type(25))
    rows = rows_of(described(("mail", email)), ["A@x", "b@y"])
    assert RowCondition.parse("lower(mail) LIKE 'a@%'").passing_rows(rows).tolist() == [True, False]


def test_no_rows_are_no_problem() -> None:
    rows = rows_of(described(("id", 23)), [])
    for condition in ("id = 1", "id IN (1, 2)", "true", "coalesce(id, 1) / 0 = 1", "1 IN (1, 2)"):
        assert RowCondition.parse(condition).passing_rows(rows).tolist() == []


def test_a_condition_can_be_pickled() -> None:
    condition = RowCondition.parse("total > 100")
    assert pickle.loads(pickle.dumps(condition)) == condition  # noqa: S301


# -- what does not suit a table -----------------------------------------------------------------

MOOD = PgType(50_000, "mood", "enum")
SUITED = described(
    *(("i", 23), ("n", 1700), ("f", 701), ("t", 25), ("b", 16), ("d", 1082), ("ts", 1114)),
    *(("tz", 1184), ("j", 3802), ("m", MOOD), ("g", 2950), ("many", 1007), ("y", 17)),
)


@pytest.mark.parametrize(
    ("condition", "at", "reason"),
    [
        ("b AND nope = 1", 7, "no column nope; it has i, n, f, t"),
        ("i", 1, "true or false is needed here, not an integer"),
        ("b AND i + 1", 7, "true or false is needed here"),
        ("i = t", 1, "an integer does not go together with a text"),
        ("i = 'one'", 5, "'one' is no integer"),
        ("i = 99999999999::int", 5, "'99999999999' is no integer"),
        ("i = 'NaN'::numeric", 5, "no number that a condition can hold"),
        ("d = '2024-02-30'", 5, "'2024-02-30' is no date such as 2024-12-31"),
        ("d < 'yesterday'", 5, "is no date"),
        ("ts < '2024-01-01 10:00+02'", 6, "is no timestamp"),
        ("tz < '2024-01-01 10:00+20'", 6, "is no timestamptz"),
        ("g = 'x'", 5, "is no uuid"),
        ("y = 'x'", 5, "is no bytea"),
        ("b = 'maybe'", 5, "is no boolean"),
        ("ts < tz", 1, "a timestamp does not go together with a timestamptz"),
        ("d = tz", 1, "a date does not go together with a timestamptz"),
        ("b OR t < 'x'", 6, "collation"),
        ("m < 'calm'", 1, "order of an enum's values"),
        ("m = 'calm'::weather", 1, "a mood does not go together with a weather"),
        ("j = '{}'", 1, "values of type jsonb cannot be compared"),
        ("j IN ('{}')", 1, "values of type jsonb cannot be compared"),
        ("many = '{1}'", 1, r"values of type int4\[\] cannot be compared"),
        ("t + 1 = 2", 1, r"\+ takes numbers, not a text"),
        ("-t = 1", 2, "- takes a number, not a text"),
        ("lower(i) = 'x'", 7, "lower takes a text, not an integer"),
        ("i LIKE '1%'", 1, "LIKE takes a text, not an integer"),
        ("n / 2.0 + 1 > 2", 1, "can be compared, not computed with"),
        ("n * n * n > 2", 1, "digits; 76 is the most"),
        ("n > 1e300", 1, "this needs numbers of"),
        ("coalesce(i, t) = 1", 13, "does not go together"),
        ('i COLLATE "C" = 1', 1, "COLLATE takes a text"),
    ],
)
def test_what_does_not_suit_a_table_is_refused(condition: str, at: int, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as found:
        RowCondition.parse(condition).check(SUITED)
    assert "shop.orders" in found.value.message
    assert repr(condition) in found.value.message
    assert f"at character {at}:" in found.value.message
    assert "coalesce" in found.value.remedy


@pytest.mark.parametrize(
    ("condition", "text", "passes"),
    [
        ("tz = '2024-01-01 12:00+02'", "2024-01-01 10:00:00+00", True),
        ("tz = '2024-01-01T12:00:00.5Z'", "2024-01-01 12:00:00.5+00", True),
        ("tz = '2024-01-01 12:00-0330'", "2024-01-01 15:30:00+00", True),
        # Penstock's own sessions have TimeZone UTC.
        ("tz = '2024-01-01'", "2024-01-01 00:00:00+00", True),
        (
            "g = '{00000000-0000-0000-0000-00000000000A}'",
            "00000000-0000-0000-0000-00000000000a",
            True,
        ),
        ("m IN ('calm', 'odd')", "odd", True),
        ("y = '\\x0AFF'", "\\x0aff", True),
        ("f = 'NaN'", "NaN", True),
        ("f > 'Infinity'", "NaN", True),
        ("f > 1e300", "1e301", True),
        ("f < -1e300", "0", False),
        ("b = 'off'", "f", True),
        ("b = 'off'", "t", False),
        ("t ILIKE 'É%'", "abc", False),
        ("t ILIKE 'abc'", "É", True),
        ("upper(t) = 'X'", "É", True),
    ],
)
def test_literals_take_the_type_of_their_column(condition: str, text: str, passes: bool) -> None:
    name = condition.replace("upper(t)", "t").split()[0]
    table = TableSchema(1, "shop", "orders", "d", SUITED.columns)
    columns: list[list[str | None]] = [
        [text if column.name == name else None] for column in table.columns
    ]
    found = RowCondition.parse(condition).passing_rows(rows_of(table, *columns))
    assert found.tolist() == [passes]
