"""Transactions that Debezium marks, from messages into a log: topics in memory, a real log."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from penstock.model.errors import IdentityChanged, SourceError
from penstock.source.kafka import source, whole_transactions
from penstock.source.kafka.identity import claim
from penstock.source.kafka.offsets import Partition
from penstock.source.kafka.source import KafkaSession
from penstock.source.kafka.topic_tables import TopicTables
from tests.marked_messages import Change, Connector, Message, items
from tests.played_topics import ITEMS, PLACES, SCHEMA, Captured, PlayedReader, PlayedTopics

MARKS = Partition("shop.transaction", 0)
P0, P1 = Partition(ITEMS, 0), Partition(ITEMS, 1)
Q0 = Partition(PLACES, 0)


@pytest.fixture
def topics() -> PlayedTopics:
    found = PlayedTopics(items=2, places=1)
    del found.messages[Partition(SCHEMA, 0)]
    found.grow(MARKS.topic, 1)
    return found


@pytest.fixture
def capture(topics: PlayedTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Captured:
    return Captured(
        *(topics, tmp_path, monkeypatch),
        format="debezium",
        schema_topic=None,
        transaction_topic=MARKS.topic,
    )


def send(topics: PlayedTopics, messages: Iterable[Message]) -> None:
    for each in messages:
        topics.send(each.value, each.key, to=each.place)


def options(capture: Captured, **more: Any) -> None:
    changed = capture.config.source.model_copy(update=more)
    capture.config = capture.config.model_copy(update={"source": changed})


def two(number: int, name: str) -> list[Change]:
    """One row in a partition of items, one in the other, one in places."""
    return [
        *items((number, name)),
        *items((number + 100, name), partition=1),
        Change("places", {"id": number, "name": name}),
    ]


def test_a_transaction_of_the_source_is_one_of_the_log(
    topics: PlayedTopics, capture: Captured
) -> None:
    connector = Connector()
    for number in (1, 2, 3):
        send(topics, connector.transaction(number, *two(number, f"n{number}"), elsewhere=2))
    capture.run()
    assert capture.transactions() == [
        [f"update {n} n{n}", f"update {n + 100} n{n}", f"update {n} n{n}"] for n in (1, 2, 3)
    ]


@pytest.mark.parametrize("first_read", [MARKS, P0, P1, Q0])
def test_nothing_of_a_transaction_is_taken_before_all_of_it_is_there(
    topics: PlayedTopics, capture: Captured, first_read: Partition
) -> None:
    topics.first_read = [first_read]
    messages = Connector().transaction(7, *two(1, "a"))
    for missing in messages[1:]:
        topics.messages = {place: [] for place in topics.messages}
        send(topics, [each for each in messages if each != missing])
        assert capture.run() == []
        taken = {Partition("shop.transaction", 0): 1} if messages[0] != missing else {}
        assert {p: s.next for p, s in capture.offsets.partitions.items() if s.next} == taken
    topics.messages = {place: [] for place in topics.messages}
    send(topics, messages)
    assert len(capture.run()) == 3
    assert capture.run() == capture.held()


def test_what_a_connector_says_again_after_a_restart_comes_once(
    topics: PlayedTopics, capture: Captured
) -> None:
    connector = Connector()
    first, second = (connector.transaction(n, *two(n, f"n{n}")) for n in (1, 2))
    send(topics, first)
    capture.run()
    # It dies in the second one, and says all of the first one again.
    send(topics, [*second[:3], *first[2:]])
    assert len(capture.run()) == 3
    send(topics, second)
    capture.run()
    assert [len(each) for each in capture.transactions()] == [3, 3]
    # One of the first stood behind one that was held, and was read again with it.
    assert capture.log.capture_report()["repeated"] == 3  # type: ignore[index]
    assert capture.run() == capture.held()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_tombstone_that_is_said_again_deletes_no_row_that_came_since(
    topics: PlayedTopics, capture: Captured, restarts: bool
) -> None:
    connector = Connector()
    send(topics, connector.transaction(1, *items((1, "a"))))
    begin, delete, end = connector.transaction(2, Change("items", {"id": 1, "name": ""}, "d"))
    deleted = [begin, delete, Message(delete.place, delete.key, None), end]
    said = [*deleted, *connector.transaction(3, *items((1, "again")))]
    send(topics, said)
    if restarts:
        capture.run()
    send(topics, said)
    assert capture.run() == ["update 1 a", "delete 1", "update 1 again"]


def test_tables_that_a_transaction_makes_and_alters_are_told_before_its_first_row(
    topics: PlayedTopics, capture: Captured
) -> None:
    connector = Connector()
    send(topics, connector.transaction(1, *items((1, "a"))))
    capture.run()
    altered = [Change("items", {"id": n, "name": "b", f"more{n}": "x"}) for n in (2, 3)]
    new = Change("places", {"id": 4, "name": "c"})
    send(topics, connector.transaction(2, *items((5, "old")), *altered, new))
    capture.run()
    assert capture.transactions()[1:] == [
        ["update 5 old", "update 2 b", "update 3 b", "update 4 c"]
    ]
    tables = TopicTables.read(capture.log.root).tables
    assert sorted(name.name for name in tables) == ["items", "places"]
    columns = next(t for n, t in tables.items() if n.name == "items").columns
    assert [column.name for column in columns] == ["id", "name", "more3"]


def test_tables_that_are_left_out_count_where_their_topic_is_read(
    topics: PlayedTopics, capture: Captured
) -> None:
    tables = type(capture.config.source.tables).model_validate(
        {"include": ["public.*"], "exclude": ["public.places"]}
    )
    options(capture, tables=tables)
    messages = Connector().transaction(1, *two(1, "a"))
    send(topics, [each for each in messages if each.place != Q0])
    assert capture.run() == []
    send(topics, [each for each in messages if each.place == Q0])
    assert capture.run() == ["update 1 a", "update 101 a"]


def test_rows_that_were_there_are_taken_in_their_place_and_changes_without_marks_are_refused(
    topics: PlayedTopics, capture: Captured
) -> None:
    connector = Connector()
    send(topics, connector.read(Change("items", {"id": 1, "name": "there"}, "r")))
    messages = connector.transaction(1, *items((1, "a"), (2, "b")))
    send(topics, messages[:2])
    send(topics, connector.read(Change("items", {"id": 3, "name": "between"}, "r")))
    assert capture.run() == ["update 1 there"]
    send(topics, messages[2:])
    send(topics, connector.read(Change("items", {"id": 4, "name": "unmarked"}, "u")))
    with pytest.raises(SourceError, match=r"offset 4 of .* names no transaction"):
        capture.run()
    options(capture, split_transactions="accept")
    found = capture.run()
    names = ["1 there", "1 a", "3 between", "2 b", "4 unmarked"]
    assert found == [f"update {name}" for name in names]


@pytest.mark.parametrize(
    ("forged", "to", "words"),
    [
        (b"no JSON", MARKS, "offset 1 of shop.transaction"),
        (b'{"status":"END","id":"1"}', MARKS, "is no id of a transaction"),
        (b'{"status":"END","id":"1:5","data_collections":7}', MARKS, "no BEGIN or END"),
        (None, MARKS, "it has no value"),
        (b'{"schema":{},"payload":{"op":"c","transaction":{"id":"x"},"source":{}}}', P0, "no id"),
        (b'{"schema":{},"payload":{"op":"c","transaction":7,"source":{}}}', P0, "cannot be read"),
        (
            b'{"schema":{},"payload":{"op":"c","source":{"txId":8},"transaction":{"id":"7:1"}}}',
            P0,
            "of transaction 8, and of 7",
        ),
    ],
)
def test_forged_messages_are_named_and_can_be_left_out(
    topics: PlayedTopics, capture: Captured, forged: bytes | None, to: Partition, words: str
) -> None:
    messages = Connector().transaction(1, *two(1, "a"))
    send(topics, messages[:2])
    topics.send(forged, to=to)
    send(topics, messages[2:])
    with pytest.raises(SourceError, match=words):
        capture.run()
    options(capture, on_malformed="leave_out")
    assert len(capture.run()) == 3
    assert capture.log.capture_report()["malformed"] == 1  # type: ignore[index]


@pytest.mark.parametrize("topic", [None, "shop.transaction", "other.transaction"])
def test_who_has_taken_rows_one_by_one_does_not_begin_to_put_them_together(
    capture: Captured, topic: str | None
) -> None:
    names = ("cluster", "group", "debezium")
    mine, is_new = claim(capture.log, *names, topic)
    assert is_new
    capture.log.root.write("log.json", b"{}", durable=True)
    for other in ("shop.transaction", "other.transaction"):
        if other != topic:
            with pytest.raises(IdentityChanged, match=f"and the pipeline file now names {other}"):
                claim(capture.log, *names, other)
    # It may stop doing so, and that is that.
    assert claim(capture.log, *names, None)[0].uuid == mine.uuid
    with pytest.raises(IdentityChanged, match="with the transaction topic none"):
        claim(capture.log, *names, "shop.transaction")


def test_rows_in_a_topic_of_another_name_are_refused(
    topics: PlayedTopics, capture: Captured
) -> None:
    (_, row, _) = Connector().transaction(1, Change("elsewhere", {"id": 1, "name": "a"}))
    topics.send(row.value, row.key, to=P0)
    with pytest.raises(SourceError, match="Debezium writes to shop"):
        capture.run()


def test_a_topic_that_is_named_later_than_others_is_refused_as_such(
    topics: PlayedTopics, capture: Captured
) -> None:
    options(capture, topics=[ITEMS])
    send(topics, Connector().transaction(1, *two(1, "a")))
    assert len(capture.run()) == 2
    options(capture, topics=[ITEMS, PLACES])
    with pytest.raises(SourceError, match=f"source.topics did not name {PLACES} then") as caught:
        capture.run()
    assert f"take {PLACES} out of source.topics" in caught.value.remedy


@pytest.mark.parametrize("partitions", [0, 2])
def test_a_transaction_topic_has_one_partition(
    topics: PlayedTopics, capture: Captured, partitions: int
) -> None:
    del topics.messages[MARKS]
    topics.grow(MARKS.topic, partitions)
    with pytest.raises(SourceError, match="has to have one partition"):
        capture.run()


def test_a_pipeline_that_has_caught_up_is_not_behind(
    topics: PlayedTopics, capture: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_POSITION_SECONDS", 0.0)
    connector = Connector()
    send(topics, connector.transaction(1, *two(1, "a")))
    # Of tables that nobody reads, and one that holds nothing.
    send(topics, connector.transaction(2, elsewhere=3))
    send(topics, connector.transaction(3))
    capture.run()
    session = KafkaSession(capture.config, "test")
    session._brokers = topics  # type: ignore[assignment]
    frontier = capture.log.list().frontier
    assert frontier is not None
    assert frontier.end_lsn == session.position()
    assert capture.offsets.partitions[MARKS].next == 6


def test_what_is_waited_for_is_told(
    topics: PlayedTopics, capture: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_LOOK_SECONDS", "_TOLD_SECONDS"):
        monkeypatch.setattr(whole_transactions, name, 0.0)
    messages = Connector().transaction(7, *two(1, "a"))
    send(topics, [each for each in messages if each.place != P1])
    capture.run()
    waits = capture.log.capture_report()["waits"]  # type: ignore[index]
    assert waits.startswith("transaction 7 waits since ")
    assert "UTC for 1 of 2 rows of public.items (shop.public.items)" in waits


def test_a_little_is_held_of_much(topics: PlayedTopics, capture: Captured) -> None:
    """One partition is far ahead of the others: nothing more of it is read before they come."""
    options(capture, transaction_bytes=8_000)
    connector = Connector()
    for number in range(1, 60):
        send(topics, connector.transaction(number, *two(number, "a")))
    topics.first_read, topics.most = [P0], 3

    def look(reader: PlayedReader) -> None:
        assert reader.next.get(P0, 0) - reader.next.get(P1, 0) < 20

    topics.on_take = look
    assert len(capture.run()) == 3 * 59


def test_what_was_not_read_of_a_deleted_topic_is_waited_for_no_more(
    topics: PlayedTopics, capture: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else may come that would let it look again."""
    monkeypatch.setattr(whole_transactions, "_LOOK_SECONDS", 0.0)
    messages = Connector().transaction(1, *two(1, "a"))
    send(topics, [each for each in messages if each.place != Q0])

    def delete(reader: PlayedReader) -> None:
        if topics.idle > 1:
            topics.messages.pop(Q0, None)

    topics.on_take = delete
    assert capture.run() == ["update 1 a", "update 101 a"]
