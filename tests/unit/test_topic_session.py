"""What capture makes of messages, in which order they come: topics in memory, a real log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.changelog.writer import LogWriter
from penstock.model.errors import Fenced, IdentityChanged, SourceError
from penstock.model.lsn import Frontier
from penstock.source.kafka import source
from penstock.source.kafka.offsets import START, Partition
from penstock.source.kafka.source import KafkaSession
from penstock.source.kafka.topic_tables import TopicTables
from tests.played_topics import (
    ITEMS,
    PLACES,
    SCHEMA,
    Captured,
    PlayedReader,
    PlayedTopics,
    announcement,
    row,
    truncate_of,
)

P0, P1, P2 = (Partition(ITEMS, number) for number in range(3))


@pytest.fixture
def topics() -> PlayedTopics:
    return PlayedTopics(items=3)


@pytest.fixture
def capture(topics: PlayedTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Captured:
    return Captured(topics, tmp_path, monkeypatch)


def leave_out(capture: Captured, **more: Any) -> None:
    """Let malformed messages be left out."""
    options = {"on_malformed": "leave_out", **more}
    source = capture.config.source.model_copy(update=options)
    capture.config = capture.config.model_copy(update={"source": source})


def test_changes_come_once_and_a_restart_goes_on(topics: PlayedTopics, capture: Captured) -> None:
    topics.change("insert", 1, "a", "0/10+0")
    topics.change("insert", 2, "b", "0/20+0", to=P1)
    assert sorted(capture.run()) == ["insert 1 a", "insert 2 b"]
    topics.change("insert", 1, "a", "0/10+0")
    topics.change("update", 1, "c", "0/30+0")
    assert capture.run()[2:] == ["update 1 c"]


def test_a_schema_change_waits_for_readers_and_not_for_tables_that_they_have_set_aside(
    topics: PlayedTopics, capture: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has set a table aside holds no more than that one until a person comes."""
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        capture.stop.now = len(waited) > 3

    monkeypatch.setattr(capture.stop, "wait", wait)
    capture.log.set_reader("back", START, stream=Frontier(2**60, 2**60))
    topics.change("insert", 1, "a", "0/10+0")
    assert capture.run() == ["insert 1 a"]
    assert not waited
    capture.log.set_reader("back", START)
    topics.announce("items", "", "colour")
    topics.change("insert", 2, "b", "0/20+0")
    capture.run()
    assert waited


def test_a_copied_row_is_not_judged_by_a_part_of_its_partition(
    topics: PlayedTopics, capture: Captured
) -> None:
    topics.change("update", 1, "new", "0/30+0")
    topics.change("update", 2, "new", "0/38+0")
    copied = topics.change("read", 2, "old", "0/20+4294967296")
    topics.change("update", 3, "behind it", "0/40+0")
    topics.most = 1
    readers: list[PlayedReader] = []

    def stop_while_it_is_read_again(reader: PlayedReader) -> None:
        if reader not in readers:
            readers.append(reader)
        capture.stop.now = capture.stop.now or (P0 in reader.next and len(readers) > 2)

    topics.on_take = stop_while_it_is_read_again
    assert capture.run() == ["update 1 new", "update 2 new"]
    assert capture.offsets.partitions[P0].next == copied
    topics.on_take = lambda _: None
    assert capture.run() == ["update 1 new", "update 2 new", "update 3 behind it"]


def test_a_message_without_a_position_does_not_spoil_what_is_known_of_newer_changes(
    topics: PlayedTopics, capture: Captured
) -> None:
    leave_out(capture)
    topics.change("update", 1, "new", "0/30+0")
    topics.change("update", 7, "forged", "nowhere")
    topics.change("update", 2, "new", "0/38+0")
    for number in (1, 2, 3):
        topics.change("read", number, "old", "0/20+4294967296")
    assert capture.run() == ["update 1 new", "update 2 new", "update 3 old"]
    assert capture.log.capture_report()["malformed"] == 1  # type: ignore[index]


@pytest.mark.parametrize("first_read", [P0, P1])
def test_a_truncate_is_not_taken_before_rows_of_a_partition_that_was_not_read(
    topics: PlayedTopics, capture: Captured, first_read: Partition
) -> None:
    topics.change("insert", 1, "a", "0/10+0", to=P1)
    topics.truncate("0/20+0", to=P0)
    topics.first_read = [first_read]
    with pytest.raises(SourceError, match=r"TRUNCATE of public.items .* no order"):
        capture.run()
    leave_out(capture, on_truncate="leave_out")
    assert capture.run() == ["insert 1 a"]


def test_a_truncate_of_a_table_in_one_partition_is_taken(
    topics: PlayedTopics, capture: Captured
) -> None:
    topics.change("insert", 1, "a", "0/10+0", lane="2/4 table")
    topics.truncate("0/20+0", lane="2/4 table")
    topics.change("insert", 2, "b", "0/30+0", lane="2/4 table")
    assert capture.run() == ["insert 1 a", "truncate", "insert 2 b"]


@pytest.mark.parametrize("body", [b"no JSON", truncate_of("nobody"), row("insert", 1, "a", "x")])
def test_a_malformed_message_does_not_say_of_which_source_the_others_are(
    topics: PlayedTopics, capture: Captured, body: bytes
) -> None:
    leave_out(capture)
    topics.send(body, b"k", {"lane": "0/1 key forged"})
    topics.change("insert", 1, "a", "0/10+0", source="")
    topics.change("insert", 2, "b", "0/20+0")
    assert capture.run() == ["update 1 a", "insert 2 b"]
    topics.change("insert", 3, "c", "0/30+0", source="")
    capture.run()
    assert capture.log.capture_report()["malformed"] == 1  # type: ignore[index]


@pytest.mark.parametrize("source", ["", "one"])
def test_a_table_comes_from_one_topic(topics: PlayedTopics, capture: Captured, source: str) -> None:
    topics.change("insert", 1, "a", "0/10+0")
    assert capture.run() == ["insert 1 a"]
    forged = Partition("shop.public.forged", 0)
    topics.grow(forged.topic, 1)
    headers = {"position": "0/20+0", "lane": f"0/1 key {source}"} if source else {}
    topics.send(truncate_of("items"), None, headers, to=forged)
    for _ in range(2):
        with pytest.raises(SourceError, match=r"public.items, whose messages stand in topic shop"):
            capture.run()
    assert capture.held() == ["insert 1 a"]
    # As its remedy says.
    leave_out(capture, topics=[ITEMS])
    topics.change("insert", 2, "b", "0/30+0")
    del topics.messages[forged]
    assert capture.run() == ["insert 1 a", "insert 2 b"]


def test_topics_are_of_one_source(topics: PlayedTopics, capture: Captured) -> None:
    topics.change("insert", 1, "a", "0/10+0")
    topics.change("insert", 2, "b", "0/20+0", to=P1, source="two")
    with pytest.raises(IdentityChanged, match=r"\(two instead of one, .* offset 0 of .*items\[0\]"):
        capture.run()
    assert capture.held() in ([], ["insert 1 a"])


@pytest.mark.parametrize("lane", ["0/4 transaction", "0/1 transaction"])
def test_transactions_in_several_lanes_or_partitions_are_refused(
    topics: PlayedTopics, capture: Captured, lane: str
) -> None:
    topics.change("insert", 1, "a", "0/10+0", lane=lane)
    with pytest.raises(SourceError, match="changes of one row stand in no order"):
        capture.run()


def test_transactions_in_one_lane_of_one_partition_are_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = PlayedTopics(items=1)
    topics.change("insert", 1, "a", "0/10+0", lane="0/1 transaction")
    topics.change("update", 1, "b", "0/20+0", lane="0/1 transaction")
    found = Captured(topics, tmp_path, monkeypatch).run()
    assert found == ["insert 1 a", "update 1 b"]


def test_what_another_source_announces_changes_nothing(
    topics: PlayedTopics, capture: Captured
) -> None:
    topics.announce("items", "one", "more")
    topics.change("insert", 1, "a", "0/10+0")
    capture.run()
    before = TopicTables.read(capture.log.root)
    topics.announce("items", "two")
    with pytest.raises(IdentityChanged, match=r"of shop.schema\[0\] are of another source"):
        capture.run()
    assert TopicTables.read(capture.log.root) == before


def test_rows_that_were_copied_before_a_truncate_stay_away(
    topics: PlayedTopics, capture: Captured
) -> None:
    topics.change("read", 1, "old", "0/10+4294967296")
    topics.truncate("0/20+0")
    topics.change("read", 2, "old", "0/10+4294967296")
    assert capture.run() == ["update 1 old", "truncate"]
    topics.change("read", 3, "old", "0/18+4294967296")
    topics.change("read", 4, "new", "0/28+4294967296")
    assert capture.run()[2:] == ["update 4 new"]


def test_a_capture_that_was_replaced_leaves_the_tables_alone(
    topics: PlayedTopics, capture: Captured
) -> None:
    topics.change("insert", 1, "a", "0/10+0")
    capture.run()
    before = TopicTables.read(capture.log.root)

    def be_replaced(_: PlayedReader) -> None:
        topics.on_take = lambda _: None
        LogWriter(capture.log)
        topics.send(announcement("items", "more"), to=Partition(SCHEMA, 0))

    topics.change("insert", 2, "b", "0/20+0")
    topics.on_take = be_replaced
    with pytest.raises(Fenced):
        capture.run()
    assert TopicTables.read(capture.log.root) == before


def test_nobody_waits_for_what_was_not_read_of_a_deleted_topic(
    topics: PlayedTopics, capture: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = Partition(PLACES, 0)
    topics.grow(PLACES, 1)
    topics.change("insert", 1, "a", "0/10+0")
    capture.run()
    monkeypatch.setattr(source, "_POSITION_SECONDS", 0.0)
    session = KafkaSession(capture.config, "test")
    session._brokers = topics  # type: ignore[assignment]
    caught_up = session.position()
    topics.send(row("insert", 1, "a", "places"), to=places)
    assert session.position() > caught_up
    del topics.messages[places]
    assert session.position() == caught_up


def test_a_restart_says_which_leader_wrote_what_it_goes_on_behind(
    topics: PlayedTopics, capture: Captured
) -> None:
    readers: list[PlayedReader] = []
    topics.on_take = readers.append
    topics.change("insert", 1, "a", "0/10+0")
    capture.run()
    topics.change("insert", 2, "b", "0/20+0")
    capture.run()
    assert readers[-1].epochs[P0] == 7
    state = capture.offsets.partitions[P0]
    # The mark of a transaction, whose leader nobody tells.
    state.pass_marks(state.next + 1)
    assert capture.offsets.partitions[P0].epoch == 7
    assert state.epoch is None
