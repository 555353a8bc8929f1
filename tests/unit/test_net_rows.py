"""Net rows do to a table what the changes they stand for would have done one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings

from penstock.decode.changes import ChangeSet, TableChanges
from penstock.destination.memory import Row
from penstock.model.errors import DecodeError
from penstock.testing.change_builder import UNSET, ChangeBuilder, Column, Table, table
from penstock.testing.contract.deliveries import reference
from penstock.testing.merge_model import FrozenRow, MergeModel, frozen
from penstock.transform.net_rows import (
    DELETE,
    INSERT,
    REKEY,
    UPDATE,
    NetRows,
    counted_rows,
    net_rows,
)
from tests.row_histories import (
    ALL,
    KeyedHistory,
    KeyedKind,
    KeylessHistory,
    Step,
    batches,
    steps,
)

ITEMS = table("items", Column("id", "text", key=True), Column("a", "text"), Column("b", "text"))
FULL = table("full", *ITEMS.columns, identity="f")
PAIRS = table(
    "pairs", Column("b", "text"), Column("x", "text", key=True), Column("y", "text", key=True)
)
LOOSE = table("loose", Column("a", "text"), Column("b", "text"), identity="f")

VALUES = ["", "a", "b", None, "long " * 9]
KEYS = [("1",), ("2",), ("",), ("\\N",)]
# Texts that are equal when they are put behind each other.
PAIR_KEYS = [("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", "")]


def apply_net(rows: dict[tuple[str, ...], Row], changes: TableChanges, net: NetRows) -> None:
    """What a merging destination does with net rows: first all that went, then all that came."""
    names = [column.name for column in changes.table.columns]
    key = changes.table.key_columns if changes.table.replica_identity != "f" else (0,)
    columns = [net.text(index).to_pylist() for index in range(len(names))]
    old_keys = [net.old_key(index).to_pylist() for index in key] if REKEY in net.op else []
    put: list[Row] = []
    for row, op in enumerate(net.op.tolist()):
        after: Row = {}
        for index, name in enumerate(names):
            mask = net.unset(index)
            if mask is None or not mask[row]:
                after[name] = columns[index][row]
        new_key = tuple(str(columns[index][row]) for index in key)
        if op == REKEY:
            before = rows.pop(tuple(str(column[row]) for column in old_keys))
        else:
            before = rows.pop(new_key) if op != INSERT else {}
        if op == INSERT:
            assert set(after) == set(names)
        if op != DELETE:
            put.append({**before, **after})
    for row_after in put:
        found = tuple(str(row_after[names[index]]) for index in key)
        assert found not in rows
        rows[found] = row_after


@pytest.mark.parametrize("of", [ITEMS, FULL, PAIRS], ids=lambda of: of.name)
@settings(max_examples=150)
@given(plan=steps(30, ALL))
def test_folding_each_run_is_applying_change_by_change(of: Table, plan: list[Step]) -> None:
    builder = ChangeBuilder()
    kind = KeyedKind(of, PAIR_KEYS if of is PAIRS else KEYS, VALUES)
    keys = [column.name for column in of.columns if column.key]
    model = MergeModel({("public", of.name): keys})
    rows: dict[tuple[str, ...], Row] = {}
    key = [index for index, column in enumerate(of.columns) if column.key]
    for run in _runs(plan, KeyedHistory(kind, builder), builder):
        model.apply(reference(run))
        for changes in run.tables:
            net = net_rows(changes, key)
            assert len(net) <= len(changes)
            positions = list(zip(net.commit_lsn.tolist(), net.ordinal.tolist(), strict=True))
            assert positions == sorted(set(positions))
            apply_net(rows, changes, net)
        assert Counter(map(frozen, rows.values())) == model.rows(("public", of.name))


@settings(max_examples=150)
@given(plan=steps(30, ("insert", "insert", "update", "delete")))
def test_counting_each_run_is_applying_change_by_change(plan: list[Step]) -> None:
    builder = ChangeBuilder()
    model = MergeModel({("public", "loose"): []})
    rows: Counter[FrozenRow] = Counter()
    for run in _runs(plan, KeylessHistory(LOOSE, VALUES, builder), builder):
        model.apply(reference(run))
        for changes in run.tables:
            counted = counted_rows(changes)
            columns = [counted.text(index).to_pylist() for index in range(2)]
            for *values, count in zip(*columns, counted.count.tolist(), strict=True):
                assert count != 0
                rows[frozen({"a": values[0], "b": values[1]})] += count
        assert min(rows.values(), default=0) >= 0
        assert +rows == model.rows(("public", "loose"))


def _runs(
    plan: Sequence[Step], history: KeyedHistory | KeylessHistory, builder: ChangeBuilder
) -> Iterator[ChangeSet]:
    for batch in batches(plan, history, builder):
        for task in batch.tasks:
            yield from task


def folded(builder: ChangeBuilder) -> list[tuple[str, list[str | None], list[str | None]]]:
    """Op, old key and values of each net row of ITEMS; ``?`` where a value is unset."""
    (changes,) = builder.cut().tables
    net = net_rows(changes, [0])
    old = net.old_key(0).to_pylist() if REKEY in net.op else [None] * len(net)
    columns = []
    for index in range(3):
        texts, mask = net.text(index).to_pylist(), net.unset(index)
        unset = mask.tolist() if mask is not None else [False] * len(net)
        columns.append(["?" if gone else text for text, gone in zip(texts, unset, strict=True)])
    return [
        (chr(op), [old[row]], [column[row] for column in columns])
        for row, op in enumerate(net.op.tolist())
    ]


def test_the_last_value_that_was_sent_counts() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.update(ITEMS, "1", "first", "b1")
        builder.update(ITEMS, "1", UNSET, "b2")
        builder.update(ITEMS, "1", UNSET, None)
        builder.update(ITEMS, "2", UNSET, "c")
    assert folded(builder) == [
        ("U", [None], ["1", "first", None]),
        ("U", [None], ["2", "?", "c"]),
    ]


def test_a_row_that_came_and_went_leaves_nothing() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "a", "b")
        builder.update(ITEMS, "2", "a", "b", key=["1", None, None])
        builder.delete(ITEMS, key=["2", None, None])
    assert folded(builder) == []


def test_a_row_that_moved_and_went_is_deleted_under_its_first_key() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.update(ITEMS, "2", "a", "b", key=["1", None, None])
        builder.update(ITEMS, "3", UNSET, "b", key=["2", None, None])
        builder.delete(ITEMS, key=["3", None, None])
    ((op, _, values),) = folded(builder)
    assert (op, values[0]) == ("D", "1")


def test_a_row_that_moved_and_came_back_is_updated() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.update(ITEMS, "2", "a", UNSET, key=["1", None, None])
        builder.update(ITEMS, "1", UNSET, UNSET, key=["2", None, None])
    assert folded(builder) == [("U", [None], ["1", "a", "?"])]


def test_only_inserts_are_not_folded_at_all() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "a", None)
        builder.insert(ITEMS, "2", "a", None)
    (changes,) = builder.cut().tables
    assert net_rows(changes, [0]).is_all_inserts
    assert set(net_rows(changes, [0]).op.tolist()) == {INSERT}
    assert UPDATE not in net_rows(changes, [0]).op


def test_a_null_in_a_key_is_refused() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "a", None)
        builder.update(ITEMS, None, "a", None)
    (changes,) = builder.cut().tables
    with pytest.raises(DecodeError, match=r"public\.items: .* null in a column of the key"):
        net_rows(changes, [0])


def test_a_row_without_a_key_must_be_known_whole_to_go() -> None:
    by_index = table("loose", Column("a", "text", key=True), Column("b", "text"), identity="i")
    builder = ChangeBuilder()
    with builder.transaction():
        builder.delete(by_index, key=["x", None])
    (changes,) = builder.cut().tables
    with pytest.raises(DecodeError, match="without the whole old row"):
        counted_rows(changes)
