"""Transactions are put together whole, once, in the order of their ENDs, whatever comes in which
order and however often; what fits no order is refused by name.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import SourceError
from penstock.source.kafka import offsets
from penstock.source.kafka.assembling import HeldMessage, Release, TransactionAssembler
from penstock.source.kafka.marks import End, RowMark, Unmarked, read_boundary, read_mark
from penstock.source.kafka.offsets import NOT_ENDED, Ended, Partition
from tests.connector_runs import (
    LEFT_OUT,
    TRANSACTIONS,
    Sent,
    partitions_of,
    places,
    random_load,
    written,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "debezium" / "messages" / "transactions.jsonl"
EIGHT = list(range(1, 9))
ORDERS, LINES = Partition("shop.public.orders", 0), Partition("shop.public.lines", 0)
A, B, A1 = (
    Partition("shop.public.a", 0),
    Partition("shop.public.b", 0),
    Partition("shop.public.a", 1),
)


@dataclass
class Log:
    """What a capture has made durable: offsets and rows together."""

    next: dict[Partition, int] = field(default_factory=dict)
    ended: Ended = NOT_ENDED
    tops: dict[Partition, tuple[int, int, int]] = field(default_factory=dict)
    transactions: list[list[RowMark]] = field(default_factory=list)
    loose: list[Sent] = field(default_factory=list)

    def copy(self) -> Log:
        return Log(
            *(dict(self.next), self.ended, dict(self.tops)),
            *(list(self.transactions), list(self.loose)),
        )

    def take(self, release: Release[Sent]) -> None:
        for entry in release.entries:
            self._pass(entry)
            if entry.message is not None and entry.mark is None:
                self.loose.append(entry.message)
        if release.end is not None and release.end.end is not None:
            self._pass(release.end)
            end = release.end.end
            self.ended = self.ended.then(end.xid, end.lsn, end.millis)
            self.transactions.append([e.mark for e in release.entries if e.mark is not None])

    def _pass(self, entry: HeldMessage[Sent]) -> None:
        assert entry.offset == self.next.get(entry.place, 0), "what is taken is a beginning"
        self.next[entry.place] = entry.offset + 1
        if entry.mark is not None:
            self.tops[entry.place] = entry.mark.position


class Reading:
    """One life of a capture: from what the log holds on, one message at a time."""

    def __init__(self, log: Log, of: Iterable[Partition], limit: int = 10**9) -> None:
        self.of = tuple(of)
        self.log = log
        self.assembler: TransactionAssembler[Sent] = TransactionAssembler(
            TRANSACTIONS, log.ended, limit, lambda table: partitions_of(table, self.of), log.tops
        )
        self.next = dict(log.next)

    def read(self, sent: Sent) -> None:
        at = self.next.get(sent.place, 0)
        self.next[sent.place] = at + 1
        entry = HeldMessage(sent.place, at, sent, 10, sent.mark, sent.end)
        for release in self.assembler.add(entry):
            self.log.take(release)

    def look(self) -> None:
        for release in self.assembler.again():
            self.log.take(release)

    def all(self, *sent: Sent) -> None:
        for each in sent:
            self.read(each)

    def judge(self, *sent: Sent) -> None:
        self.all(*sent)
        self.look()


def row(xid: int, order: int, place: Partition, after: int = 0, lsn: int = 0) -> Sent:
    table = place.topic.removeprefix("shop.")
    return Sent(place, RowMark(xid, lsn or after + order, order, after, table, xid))


def end(xid: int, lsn: int, **counts: int) -> Sent:
    named = {f"public.{name}": count for name, count in counts.items()}
    return Sent(TRANSACTIONS, end=End(xid, lsn, named, sum(counts.values()), xid))


@given(st.randoms(use_true_random=False), st.integers(1, 12), st.integers(0, 3), st.integers(0, 4))
def test_each_transaction_comes_whole_and_once_whatever_is_repeated_and_wherever_capture_dies(
    chance: random.Random, count: int, crashes: int, restarts: int
) -> None:
    data = places(chance.randint(1, 3), chance.randint(1, 2))
    load = random_load(chance, data, count)
    topics = written(chance, load, data, crashes)
    # What is said again stands between the rows of a transaction.
    limit = chance.choice([10**9, 330 if crashes else 100])
    durable = Log()
    for life in range(restarts + 1):
        reading = Reading(durable.copy(), data, limit)
        while True:
            wanted = reading.assembler.wanted()
            reading.assembler.waiting()
            left = [
                place
                for place, sent in topics.items()
                if reading.next.get(place, 0) < len(sent) and (wanted is None or place in wanted)
            ]
            if not left:
                break
            # A reader gets some of one partition, then some of another.
            place = chance.choice(left)
            for _ in range(chance.randint(1, 6)):
                if reading.next.get(place, 0) < len(topics[place]):
                    reading.read(topics[place][reading.next.get(place, 0)])
            if chance.random() < 0.2:
                reading.look()
                durable = reading.log.copy()
            if life < restarts and chance.random() < 0.1:
                break
        if life == restarts:
            durable = reading.log
            assert reading.assembler.waiting() is None
    assert durable.next == {place: len(sent) for place, sent in topics.items() if sent}
    assert durable.transactions == [each.rows for each in load.transactions]
    for place in data:
        loose = [each for each in topics[place] if each.mark is None]
        assert [each for each in durable.loose if each.place == place] == loose


def test_rows_wait_for_their_end_and_an_end_for_its_rows() -> None:
    reading = Reading(Log(), (A, B))
    reading.all(row(7, 1, A), row(7, 2, B))
    assert reading.log.transactions == []
    waiting = reading.assembler.waiting()
    assert waiting is not None
    assert (waiting.xid, waiting.lacks, waiting.topics) == (7, "its END", ("shop.transaction",))
    reading.read(end(7, 100, a=1, b=2))
    waiting = reading.assembler.waiting()
    assert waiting is not None
    assert (waiting.lacks, waiting.topics) == ("1 of 2 rows of public.b", ("shop.public.b",))
    assert reading.log.next == {}
    reading.read(row(7, 3, B))
    assert [[mark.order for mark in each] for each in reading.log.transactions] == [[1, 2, 3]]
    assert reading.assembler.waiting() is None


def test_of_many_tables_that_are_waited_for_some_are_named() -> None:
    """It is said again and again, and ENDs may name a thousand."""
    of = [Partition(f"shop.public.t{number}", 0) for number in range(9)]
    reading = Reading(Log(), of)
    reading.read(end(7, 100, **{f"t{number}": 1 for number in range(9)}))
    waiting = reading.assembler.waiting()
    assert waiting is not None
    assert waiting.lacks.endswith("1 of 1 rows of public.t4 and rows of 4 more tables")
    assert len(waiting.topics) == 5


def test_what_is_of_no_transaction_keeps_its_place_in_its_partition() -> None:
    reading = Reading(Log(), (A, B))
    before, between, behind = (Sent(A, name=name) for name in ("before", "between", "behind"))
    reading.all(before, row(7, 1, A), between, row(7, 3, A), behind, Sent(B, name="elsewhere"))
    assert [each.name for each in reading.log.loose] == ["before", "elsewhere"]
    reading.all(row(7, 2, B), end(7, 100, a=2, b=1))
    names = [each.name for each in reading.log.loose]
    assert names == ["before", "elsewhere", "between", "behind"]


def test_rows_of_topics_that_are_not_read_are_not_waited_for() -> None:
    reading = Reading(Log(), (A,))
    reading.read(Sent(TRANSACTIONS, end=End(7, 100, {LEFT_OUT: 3}, 3, 7)))
    assert reading.log.transactions == [[]]


def test_a_row_is_not_compared_with_each_table_of_its_transaction() -> None:
    """In a backlog ENDs are read long before the rows, and a transaction may have a thousand."""
    tables = [f"t{number}" for number in range(50)]
    of = [Partition(f"shop.public.{table}", 0) for table in tables]
    reading, asked = Reading(Log(), of), list[str]()

    def ask(table: str) -> tuple[Partition, ...] | None:
        asked.append(table)
        return partitions_of(table, of)

    reading.assembler._places = ask
    reading.read(end(7, 1000, **dict.fromkeys(tables, 4)))
    reading.all(*(row(7, order + 1, of[order % 50]) for order in range(200)))
    assert [len(each) for each in reading.log.transactions] == [200]
    assert len(asked) == len(tables)


def test_a_transaction_that_was_cut_off_and_sent_again_comes_once() -> None:
    reading = Reading(Log(), (A, B))
    first = [row(7, 1, A), row(7, 2, B), row(7, 3, A)]
    # The connector died before it said the END, and goes on behind the first row.
    reading.all(*first, *first[1:], row(7, 4, A), end(7, 100, a=3, b=1))
    # It dies once more, and says all of it again.
    again = [end(7, 100, a=3, b=1), *first, row(7, 4, A)]
    reading.all(*again, row(8, 1, A, after=100), end(8, 200, a=1))
    orders = [[mark.order for mark in each] for each in reading.log.transactions]
    assert orders == [[1, 2, 3, 4], [1]]
    assert reading.assembler.repeated == 7


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ([row(7, 1, A), row(7, 1, A, lsn=9)], "number 1 of transaction 7, and so is another"),
        ([row(7, 1, A), row(7, 1, A1)], "number 1 of transaction 7, and so is another"),
        ([row(7, 2, A), row(7, 1, A)], "does not come behind number 2"),
        ([row(7, 1, A), row(8, 1, A), row(7, 2, A)], "does not come behind number 1"),
        ([row(8, 1, A, after=100), row(7, 1, A)], "does not come behind"),
        ([row(7, 1, A), row(7, 2, A), end(7, 100, a=1)], "has 1 rows of public.a, says its END"),
        ([row(7, 1, A), end(7, 100, b=1), row(7, 2, B)], "rows of public.a name transaction 7"),
        ([end(7, 100, a=1), end(7, 100, a=2)], "says something else"),
        ([end(7, 100, a=1), end(8, 100, a=1)], "says something else"),
        ([end(7, 100, a=1), end(8, 200, a=1), end(6, 50, a=1)], "behind that of a later"),
        # Retention has removed a row: those of the next transaction stand there already.
        (
            [end(7, 100, a=2), row(7, 1, A), row(8, 1, A, after=100), row(8, 2, A1, after=100)],
            "has 2 rows of public.a, and 1 of them stand in shop.public.a",
        ),
        # Debezium was restarted between two changes of one LSN, and its END counts one of them.
        ([row(7, 1, A), row(7, 2, B), end(7, 100, b=1)], "rows of public.a name"),
        ([row(7, 2, A), end(7, 100, a=1)], "number 2 of transaction 7 was read, and its END cou"),
        ([row(7, 1, A), end(7, 100, a=1), row(7, 2, A1)], "which was completed without it"),
        # Another server, or one that was restored: its clock has gone on.
        ([end(7, 100), Sent(TRANSACTIONS, end=End(8, 50, {}, 0, 9))], "was committed later"),
        ([end(7, 100), Sent(A, RowMark(8, 50, 1, 0, "public.a", 9))], "was committed later"),
    ],
)
def test_what_fits_no_order_is_refused_by_name(sent: list[Sent], words: str) -> None:
    reading = Reading(Log(), (A, A1, B))
    with pytest.raises(SourceError, match=words) as caught:
        reading.judge(*sent)
    assert "source.transaction_topic" in caught.value.remedy


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("forged", [1, 2])
@pytest.mark.parametrize("restarts", [True, False])
def test_an_end_that_was_never_there_does_not_pass_for_said_again(
    is_first: bool, forged: int, restarts: bool
) -> None:
    """Whoever may write to the topics says that all that is to come was there, long ago."""
    reading, far, late = Reading(Log(), (A, B)), 2**60, 2**61
    if not is_first:
        reading.all(row(7, 1, A), end(7, 100, a=1))
    for number in range(forged):
        reading.read(Sent(A, RowMark(9, far, number + 1, far + number, "public.a", late)))
        counts = {"public.a": 1}
        reading.read(Sent(TRANSACTIONS, end=End(9, far + number + 1, counts, number + 1, late)))
    assert reading.log.ended.lsn > far
    if restarts:
        reading = Reading(reading.log.copy(), (A, B))
    with pytest.raises(SourceError, match=r"transaction 8 .* was never there"):
        reading.all(row(8, 1, A, after=100), end(8, 200, a=1))


def test_ends_of_long_ago_may_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "_RECENT_ENDS", 2)
    reading, ends = Reading(Log(), (A,)), [end(xid, xid * 100) for xid in range(1, 6)]
    reading.all(*ends, *ends)
    assert len(reading.log.transactions) == reading.assembler.repeated == 5
    with pytest.raises(SourceError, match="was never there"):
        reading.read(end(5, 450))


def test_rows_whose_end_never_came_are_refused_once_later_ones_were_completed() -> None:
    reading = Reading(Log(), (A, B))
    reading.all(row(7, 1, A), row(8, 1, B, after=100), end(8, 200, b=1))
    with pytest.raises(SourceError, match="transaction 7, whose END has not come before"):
        reading.assembler.waiting()


def test_where_much_is_held_only_what_the_next_transaction_lacks_is_read_on() -> None:
    reading = Reading(Log(), (A, A1, B), limit=25)
    reading.all(row(7, 1, A), row(8, 1, B, after=100))
    assert reading.assembler.wanted() is None
    reading.read(row(8, 2, B, after=100))
    assert reading.assembler.wanted() == frozenset({TRANSACTIONS})
    reading.read(end(7, 100, a=2))
    assert reading.assembler.wanted() == frozenset({A, A1})
    reading.read(row(8, 3, A, after=100))
    assert reading.assembler.wanted() == frozenset({A1})
    reading.all(row(7, 2, A1), end(8, 200, a=1, b=2))
    assert reading.log.next == {A: 2, A1: 1, B: 2, TRANSACTIONS: 2}


def test_a_transaction_that_is_larger_than_what_may_be_held_is_refused() -> None:
    reading = Reading(Log(), (A,), limit=25)
    reading.all(*(row(7, order, A) for order in (1, 2, 3)))
    assert reading.assembler.wanted() == frozenset({TRANSACTIONS})
    reading.read(end(7, 100, a=4))
    with pytest.raises(SourceError, match="transaction 7 is too large") as caught:
        reading.assembler.wanted()
    assert "source.transaction_bytes" in caught.value.remedy


@pytest.mark.parametrize("between", [Sent(A, name="read"), row(7, 1, A)])
def test_what_stands_between_the_rows_of_a_transaction_is_held_within_bounds_too(
    between: Sent,
) -> None:
    """A row that never comes, and a table that is copied meanwhile: memory was without bounds."""
    reading = Reading(Log(), (A, A1), limit=2500)
    reading.all(row(7, 1, A), end(7, 100, a=2))
    reading.all(*[between] * 249)
    assert reading.assembler.wanted() == frozenset({A, A1})
    reading.read(between)
    with pytest.raises(SourceError, match=r"7 is too large .* of it in shop.public.a\[0\]"):
        reading.assembler.wanted()


def test_what_a_real_debezium_marks_is_put_together() -> None:
    reading, found = Reading(Log(), (ORDERS, LINES)), GOLDEN.read_text().splitlines()
    for line in map(json.loads, found):
        value = None if line["value"] is None else json.dumps(line["value"]).encode()
        sent = Sent(Partition(line["topic"], 0))
        if sent.place == TRANSACTIONS:
            reading.read(replace(sent, end=read_boundary(value)))
        else:
            mark = read_mark(value, {})
            assert not isinstance(mark, Unmarked)
            reading.read(replace(sent, mark=mark))
    orders = [[mark.order for mark in each] for each in reading.log.transactions]
    assert orders == [[1, 2, 3, 4, 5, 6], [1]]
    assert sum(reading.log.next.values()) == len(found)
    assert reading.log.ended[:2] == (759, 28295696)


@pytest.mark.parametrize("ends_first", [True, False])
@pytest.mark.parametrize(("when", "second"), [("late", EIGHT), ("early", EIGHT[:7])])
def test_what_a_real_debezium_says_again_is_left_out(
    when: str, second: list[int], ends_first: bool
) -> None:
    """Its engine was killed again and again, when it had noted less than it had said. Where that
    was between the halves of an update of a key, it counts fewer rows in the END that comes next;
    once it was killed before it had sent the second half, which is lost.
    """
    topics: dict[Partition, list[Sent]] = {}
    for line in (GOLDEN.parents[1] / f"transactions_restarted_{when}.txt").read_text().splitlines():
        name, _, text = line.partition("\t")
        if not text:
            continue
        place, value = Partition(name, 0), None if text == "null" else text.encode()
        mark = None if place == TRANSACTIONS else read_mark(value, {})
        assert not isinstance(mark, Unmarked)
        end = read_boundary(value) if place == TRANSACTIONS else None
        topics.setdefault(place, []).append(Sent(place, mark, end))
    reading = Reading(Log(), topics)
    for place in sorted(topics, reverse=ends_first):
        reading.all(*topics[place])
    found = [(each[0].xid, [mark.order for mark in each]) for each in reading.log.transactions]
    assert found == [(758, EIGHT), (759, second), (757, [1, 2, 3]), (760, EIGHT)]
    assert sum(reading.log.next.values()) == sum(map(len, topics.values()))


def test_a_first_transaction_that_comes_again_names_another_commit_before_it() -> None:
    reading = Reading(Log(), (A, B))
    reading.all(row(7, 1, A, lsn=61), row(7, 2, A, lsn=62), end(7, 100, a=2))
    again = [row(7, order, A, after=50, lsn=60 + order) for order in (1, 2)]
    reading.all(*again, row(8, 1, A, after=100), end(8, 200, a=1), *again)
    assert [len(each) for each in reading.log.transactions] == [2, 1]
    assert reading.assembler.repeated == 4


def test_a_row_that_was_repeated_says_nothing_about_others() -> None:
    """An id that comes again with another commit before it is a later transaction's."""
    reading = Reading(Log(), (A,))
    reading.all(row(7, 1, A), end(7, 100, a=1))
    later = row(9, 1, A, after=100, lsn=40)
    # It was begun before the first one was committed.
    reading.all(later, replace(later), end(9, 200, a=1))
    assert [[mark.xid for mark in each] for each in reading.log.transactions] == [[7], [9]]
