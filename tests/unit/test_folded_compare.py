"""The demo's verdict must notice every kind of difference and name the row."""

from __future__ import annotations

from collections import Counter

from penstock.destination.files.folding import FoldedTable
from tests.folded_compare import TableVerdict, compare

COLUMNS = ("order_id", "line", "note")
A = ("o1", "1", None)
B = ("o1", "2", "x")


def table(*rows: tuple[str | None, ...]) -> FoldedTable:
    return FoldedTable(COLUMNS, Counter(rows))


def verdict(source: FoldedTable, files: FoldedTable, *, keyed: bool = True) -> TableVerdict:
    return compare("items", COLUMNS[:2] if keyed else (), source, files)


def test_equal_whatever_the_order() -> None:
    result = verdict(table(A, B), table(B, A))
    assert result.equal
    assert result.rows == 2


def test_two_empty_tables_are_equal() -> None:
    assert verdict(table(), FoldedTable((), Counter())).equal


def test_a_missing_row_is_named_by_its_key() -> None:
    result = verdict(table(A, B), table(A))
    assert result.differences == ("items (order_id='o1', line='2'): missing in the files",)


def test_a_row_too_many_is_named_by_its_key() -> None:
    result = verdict(table(A), table(A, B))
    assert result.differences == (
        "items (order_id='o1', line='2'): in the files, but not in the source",
    )


def test_a_value_that_differs_is_shown_on_both_sides() -> None:
    result = verdict(table(A, B), table(A, ("o1", "2", "y")))
    assert result.differences == (
        "items (order_id='o1', line='2'): note is 'x' in the source, 'y' in the files",
    )


def test_null_is_not_empty_and_not_the_word() -> None:
    for value in ("", "null", "None"):
        result = verdict(table(A), table(("o1", "1", value)))
        assert result.differences == (
            f"items (order_id='o1', line='1'): note is null in the source, {value!r} in the files",
        )


def test_the_same_key_twice_is_a_difference() -> None:
    result = verdict(table(B), table(B, B))
    assert result.differences == (
        "items (order_id='o1', line='2'): in the files, but not in the source",
    )
    result = verdict(table(B), table(("o1", "2", "y"), ("o1", "2", "z")))
    assert len(result.differences) == 2


def test_rows_without_a_key_are_counted() -> None:
    result = verdict(table(B, B, B), table(B), keyed=False)
    assert result.differences == (
        "items (order_id='o1', line='2', note='x'): missing in the files (2 times)",
    )


def test_other_columns_are_a_difference() -> None:
    files = FoldedTable(("order_id", "line"), Counter([("o1", "1")]))
    assert "columns" in verdict(table(A), files).differences[0]


def test_many_differences_are_counted_and_long_values_cut() -> None:
    rows = [("o", str(line), "v" * 500) for line in range(20)]
    result = verdict(table(*rows), table())
    assert len(result.differences) == 6
    assert result.differences[-1] == "items: and 15 more rows that differ"
    keyless = verdict(table(rows[0]), table(), keyed=False).differences[0]
    assert "(500 long)" in keyless
    assert len(keyless) < 200
