"""What capture makes of messages, in which order they come: topics in memory, a real log."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.model.errors import SourceError
from penstock.source.kafka.offsets import Partition
from tests.played_topics import ITEMS, Captured, PlayedReader, PlayedTopics, row, truncate_of

P0, P1, P2 = (Partition(ITEMS, number) for number in range(3))


@pytest.fixture
def topics() -> PlayedTopics:
    return PlayedTopics(items=3)


@pytest.fixture
def capture(topics: PlayedTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Captured:
    return Captured(topics, tmp_path, monkeypatch)


def leave_out(capture: Captured, **more: str) -> None:
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
    topics.send(body, lane="0/1 key forged")
    topics.change("insert", 1, "a", "0/10+0", source="")
    topics.change("insert", 2, "b", "0/20+0")
    assert capture.run() == ["update 1 a", "insert 2 b"]
    topics.change("insert", 3, "c", "0/30+0", source="")
    capture.run()
    assert capture.log.capture_report()["malformed"] == 1  # type: ignore[index]
