"""Random histories, cut at random places, leave in a real database what they left at the source."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from itertools import product

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.decode.changes import ChangeSet
from penstock.decode.copy_text import copy_lines
from penstock.decode.text_bytes import text_bytes
from penstock.destination.postgres.merging.batch_merge import BatchMerge
from penstock.destination.postgres.merging.table_merge import Odd, TableMerge
from penstock.testing.change_builder import UNSET, ChangeBuilder, Column, Table, table
from penstock.testing.contract.deliveries import definition, deliver, deliver_cut, reference
from penstock.testing.merge_model import MergeModel
from tests.fix_target import Target, tasks_elsewhere
from tests.row_histories import (
    ALL,
    Key,
    KeyedHistory,
    KeyedKind,
    KeylessHistory,
    Step,
    batches,
    steps,
)

PLAIN = (Column("a", "text"), Column("b", "text"))
VALUES = ["", "a", None, "back\\slash\t", "long " * 9]
NUMBERS = [("1",), ("2",), ("30",), ("-4",)]
ODD_TEXTS = [("",), ("\\N",), ("a\tb\n",), ("🎉'\"",), (" ",), ("\x01\x7f\\",)]
DECIMALS = [("1.0",), ("1.00",), ("1",), ("-2.50",), ("-2.5",)]


def _decimal(key: Key) -> object:
    return Decimal(key[0])


KINDS = {
    "default": KeyedKind(table("t", Column("id", "int8", key=True), *PLAIN), NUMBERS, VALUES),
    "full": KeyedKind(
        table("t", *PLAIN, Column("id", "int8", key=True), identity="f"), NUMBERS, VALUES
    ),
    "index": KeyedKind(
        table("t", Column("a", "text"), Column("id", "int4", key=True), identity="i"),
        NUMBERS,
        VALUES,
    ),
    "two-columns": KeyedKind(
        table("t", Column("x", "text", key=True), *PLAIN, Column("y", "int4", key=True)),
        [("a", "1"), ("a", "2"), ("b", "1"), ("", "12")],
        VALUES,
    ),
    "odd-texts": KeyedKind(table("t", Column("id", "text", key=True), *PLAIN), ODD_TEXTS, VALUES),
    "decimals": KeyedKind(
        table("t", Column("id", "numeric", key=True), *PLAIN), DECIMALS, VALUES, _decimal
    ),
    "only-a-key": KeyedKind(
        table("t", Column("x", "int8", key=True), Column("y", "numeric", key=True)),
        [("1", "1.0"), ("1", "1.00"), ("2", "1"), ("3", "1")],
        VALUES,
        lambda key: (key[0], Decimal(key[1])),
    ),
}
LOOSE = table("t", Column("a", "text"), Column("b", "json"), Column("c", "text"), identity="f")
JSON = ['{"a": 1, "a":2}', '{"a":2}', None, "[]", '"\\u0041"']

QUICKLY = settings(
    max_examples=12,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(params=["handed over", "staged", "thorough"])
def options(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """All ways of merging; the quick ones must find every row where it should be."""
    if request.param == "handed over":
        return {"on_conflict": "error"}
    if request.param == "staged":
        tasks_elsewhere(monkeypatch)
        return {"on_conflict": "error"}

    def give_up(*_: object) -> None:
        raise Odd

    # Neither all tables at once, nor one of them; what was handed over is staged then.
    monkeypatch.setattr(BatchMerge, "_quick", give_up)
    monkeypatch.setattr(BatchMerge, "_quick_in_turns", give_up)
    monkeypatch.setattr(TableMerge, "quick", give_up)
    return {}


@pytest.mark.parametrize("name", KINDS)
@QUICKLY
@given(data=st.data())
def test_tables_with_a_key(
    name: str, data: st.DataObject, target: Target, options: dict[str, str]
) -> None:
    kind = KINDS[name]
    plan = data.draw(steps(30, (*ALL, *ALL, "truncate")))
    builder = ChangeBuilder()
    _check(target, kind.table, options, plan, KeyedHistory(kind, builder), builder)


def test_a_row_that_gave_its_key_away_before_it_went(
    target: Target, options: dict[str, str]
) -> None:
    """The delete comes last and stands under the key that another row has by then."""
    kind = KINDS["default"]
    builder = ChangeBuilder()
    kinds = ["insert", "insert", "delete", "insert", "swap", "delete"]
    cuts = ["", "", "run", "", "", ""]
    plan = [Step(kind, 0, 0, (1, 1, 1), 0, cut) for kind, cut in zip(kinds, cuts, strict=True)]
    _check(target, kind.table, options, plan, KeyedHistory(kind, builder), builder)


@QUICKLY
@given(plan=steps(30, ("insert", "insert", "update", "delete", "insert", "truncate")))
def test_a_table_without_a_key(target: Target, options: dict[str, str], plan: list[Step]) -> None:
    builder = ChangeBuilder()
    _check(target, LOOSE, options, plan, KeylessHistory(LOOSE, JSON, builder), builder)


@QUICKLY
@given(plan=steps(30, ("insert", "insert", "insert", "truncate")))
def test_a_table_that_only_grows(target: Target, options: dict[str, str], plan: list[Step]) -> None:
    """REPLICA IDENTITY NOTHING: there are no updates and deletes in the stream."""
    of = table("t", Column("id", "int8", key=True), Column("a", "text"), identity="n")
    keys = [(str(number),) for number in range(99)]
    builder = ChangeBuilder()
    history = KeyedHistory(KeyedKind(of, keys, VALUES), builder)
    _check(target, of, options, plan, history, builder)


def _check(
    target: Target,
    of: Table,
    options: dict[str, str],
    plan: Sequence[Step],
    history: KeyedHistory | KeylessHistory,
    builder: ChangeBuilder,
) -> None:
    # One for all examples of a test: only its rows are new each time.
    destination = target.last or target.opened(definition(of), **options)
    target.execute("TRUNCATE public.t")
    names = [column.name for column in of.columns]
    model = MergeModel({("public", "t"): [column.name for column in of.columns if column.key]})
    for batch in batches(plan, history, builder):
        deliver(destination, builder.frontier, *batch.tasks)
        for task in batch.tasks:
            model.apply(reference(*task))
        expected = {
            tuple(dict(row)[name] for name in names): count
            for row, count in model.rows(("public", "t")).items()
        }
        assert target.rows("public.t") == expected


OPS = ("I", "U", "U?", "K", "K?", "D")


@pytest.mark.parametrize("length", [2, 3])
@pytest.mark.parametrize("there", [False, True], ids=["absent", "there"])
def test_what_becomes_of_one_row_in_several_parts(
    target: Target, options: dict[str, str], length: int, there: bool
) -> None:
    """Every order of changes that is possible: the first in the first part, and so on."""
    of = table("t", Column("id", "text", key=True), *PLAIN)
    destination = target.opened(definition(of), **options)
    plans = [plan for plan in product(OPS, repeat=length) if _is_possible(plan, there)]
    assert (
        len(plans) == {(2, False): 5, (3, False): 21, (2, True): 21, (3, True): 89}[length, there]
    )
    builder = ChangeBuilder()
    before: list[ChangeSet] = []
    if there:
        with builder.transaction():
            for number in range(len(plans)):
                builder.insert(of, f"{number}", "a0", "b0")
        before = [builder.cut()]
        deliver(destination, builder.frontier, before)
    keys = [f"{number}" for number in range(len(plans))]
    runs = []
    for part in range(length):
        with builder.transaction():
            for number, plan in enumerate(plans):
                keys[number] = _change(builder, of, keys[number], plan[part], f"{part}")
        runs.append(builder.cut())
    deliver(destination, builder.frontier, runs[:1], runs[1:])
    model = MergeModel({("public", "t"): ["id"]})
    model.apply(reference(*before, *runs))
    expected = {
        tuple(dict(row)[name] for name in ("id", "a", "b")): count
        for row, count in model.rows(("public", "t")).items()
    }
    assert target.rows("public.t") == expected


def _is_possible(plan: Sequence[str], there: bool) -> bool:
    for op in plan:
        if (op == "I") == there:
            return False
        there = op != "D"
    return True


def _change(builder: ChangeBuilder, of: Table, key: str, op: str, mark: str) -> str:
    kept = UNSET if op.endswith("?") else f"b{mark}"
    if op == "I":
        builder.insert(of, key, f"a{mark}", f"b{mark}")
    elif op == "D":
        builder.delete(of, key=[key, None, None])
    elif op.startswith("U"):
        builder.update(of, key, f"a{mark}", kept)
    else:
        # To another key, and with the next move back.
        moved = key.removesuffix("x") if key.endswith("x") else f"{key}x"
        builder.update(of, moved, f"a{mark}", kept, key=[key, None, None])
        return moved
    return key


def test_a_key_that_comes_back_written_in_another_way(
    target: Target, options: dict[str, str]
) -> None:
    of = table("t", Column("id", "numeric", key=True), Column("a", "text"))
    destination = target.opened(definition(of), **options)
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(of, "1.0", "a")
    deliver_cut(destination, builder)
    runs = []
    for before, after in (("1.0", "2"), ("2", "1.00")):
        with builder.transaction():
            builder.update(of, after, UNSET, key=[before, None])
        runs.append(builder.cut())
    deliver(destination, builder.frontier, runs)
    assert target.rows("public.t") == {("1.00", "a"): 1}


@settings(QUICKLY, max_examples=60)
@given(
    rows=st.lists(
        st.tuples(
            *[
                st.none()
                | st.sampled_from(["", "\\N", "\\.", "\\", "\r\n\t\b\f\v", "\x01\x7f", "🎉日é"])
                | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
            ]
            * 2
        )
    )
)
def test_every_text_passes_a_real_copy(
    target: Target, rows: list[tuple[str | None, str | None]]
) -> None:
    columns = [pa.array([row[place] for row in rows], pa.string()) for place in range(2)]
    with psycopg.connect(target.url) as conn:
        conn.execute("CREATE TEMPORARY TABLE texts (a text, b text, n int)")
        with conn.cursor() as cursor, cursor.copy("COPY texts FROM STDIN") as copy:
            copy.write(text_bytes(copy_lines([*columns, "7"], len(rows))))
        found = conn.execute("SELECT a, b FROM texts WHERE n = 7 ORDER BY ctid").fetchall()
    assert found == rows
