"""What tasks did: counted by tables and pieces, on its way to the driver, and summed up there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.decode.changes import ChangeSet
from penstock.destination.contract import LanePart
from penstock.metrics.metered import Metered
from penstock.metrics.written import JobResult, Written, in_turn, together
from penstock.model.lsn import Position
from penstock.testing.change_builder import ChangeBuilder, Column, table

ITEMS = table("items", Column("id", "int4", key=True))
NOTES = table("notes", Column("id", "int4", key=True), schema="shop")

names = st.sampled_from(["public.a", "public.b", 'odd."; name', ""])
pairs = st.dictionaries(
    st.tuples(names, st.sampled_from(["insert", "row"])), st.integers(1, 2**40), max_size=4
).map(Counter)
# Halves add up exactly in whatever order.
seconds = st.dictionaries(
    st.sampled_from(["read", "write"]), st.integers(0, 2**20).map(lambda n: n / 2), max_size=2
)
written = st.builds(
    Written,
    pairs,
    pairs,
    st.integers(0, 2**40),
    st.integers(0, 2**40),
    st.integers(0, 2**20),
    st.integers(0, 2**20),
    seconds,
    st.integers(0, 4),
    st.integers(0, 2**60),
    st.frozensets(st.tuples(st.integers(0, 2**32), st.integers(0, 2**32)), max_size=3),
)


@given(st.lists(written, max_size=5), st.randoms(use_true_random=False))
def test_sums_do_not_depend_on_order_or_grouping(parts: list[Written], random: object) -> None:
    whole = together(parts)
    shuffled = list(parts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    middle = len(parts) // 2
    assert together(shuffled) == whole
    assert together([together(parts[:middle]), together(parts[middle:])]) == whole
    assert whole.changes.total() == sum(part.changes.total() for part in parts)


@given(written)
def test_nothing_is_lost_on_the_way_to_the_driver(some: Written) -> None:
    assert Written.from_json(some.to_json()) == some


def changes() -> ChangeSet:
    builder = ChangeBuilder()
    with builder.transaction():
        for number in range(5):
            builder.insert(ITEMS, str(number))
        builder.update(ITEMS, "1")
        builder.insert(NOTES, "1")
        builder.delete(NOTES, key=("1",))
        builder.truncate(ITEMS, NOTES)
        builder.message("app", b"")
    return builder.cut()


def test_changes_are_counted_by_table_and_operation() -> None:
    some, meter = changes(), Metered(retries=2)
    passed = list(meter.changes([some], lambda: Counter({("shop.notes", "row"): 3})))
    assert passed == [some]
    assert meter.written.changes == {
        ("public.items", "insert"): 5,
        ("public.items", "update"): 1,
        ("public.items", "truncate"): 1,
        ("shop.notes", "insert"): 1,
        ("shop.notes", "delete"): 1,
        ("shop.notes", "truncate"): 1,
        ("", "message"): 1,
    }
    assert meter.written.filtered == {("shop.notes", "row"): 3}
    assert meter.written.retries == 2
    assert meter.written.commit_micros == some.messages[0].stamp.commit_micros


def test_parts_of_lanes_are_counted() -> None:
    parts = [LanePart(0, Position(1, 0), b"12345", 2), LanePart(1, Position(1, 2), b"67", 1)]
    meter = Metered()
    assert list(meter.parts(parts)) == parts
    assert (meter.written.messages, meter.written.message_bytes) == (3, 7)


def test_a_stage_does_not_count_the_time_of_stages_inside_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("penstock.metrics.metered.time.perf_counter", lambda: now)

    def read() -> Iterator[int]:
        nonlocal now
        for number in range(3):
            now += 10
            yield number

    def encode(numbers: Iterator[int]) -> Iterator[int]:
        nonlocal now
        for number in numbers:
            now += 2
            yield number

    meter = Metered()
    with meter.stage("write"):
        for _ in meter.timed("encode", encode(meter.timed("read", read()))):
            now += 1
    assert meter.written.seconds == {"read": 30, "encode": 6, "write": 3}


def test_jobs_that_follow_each_other_are_like_one() -> None:
    first = JobResult([b"1"], Written(messages=1), 10.0, 11.0)
    second = JobResult([b"2", b"3"], Written(messages=2), 12.0, 15.0)
    assert in_turn([first, second]) == JobResult([b"1", b"2", b"3"], Written(messages=3), 10, 15)
    assert in_turn([]) == JobResult()
