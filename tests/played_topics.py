"""Topics in memory, and a session of capture that reads them: for tests of what becomes of messages
in which order. No broker: tests/kafka_server.py is one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from penstock.changelog.changelog import ChangeLog
from penstock.changelog.writer import LogWriter
from penstock.config.kafka_source import KafkaPipelineConfig
from penstock.pgoutput.messages import Delete, Insert, Truncate, Update, parse_message
from penstock.source.capture.keeper import FilledLog
from penstock.source.capture.link import Link
from penstock.source.kafka import schema_topic, session
from penstock.source.kafka.client import Topic
from penstock.source.kafka.identity import TopicsIdentity, stored_offsets
from penstock.source.kafka.offsets import START, Offsets, Partition
from penstock.source.kafka.session import TopicAccess, TopicSession

ITEMS, PLACES, SCHEMA = "shop.public.items", "shop.public.places", "shop.schema"
SOURCE = "one"
P0 = Partition(ITEMS, 0)


@dataclass
class PlayedMessage:
    place: Partition
    at: int
    body: bytes | None = None
    named: bytes | None = None
    headed: Mapping[str, bytes] = field(default_factory=dict)
    millis: int = 1_767_323_045_678
    problem: KafkaError | None = None

    def topic(self) -> str:
        return self.place.topic

    def partition(self) -> int:
        return self.place.partition

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.named

    def value(self) -> bytes | None:
        return self.body

    def headers(self) -> list[tuple[str, bytes]]:
        return list(self.headed.items())

    def timestamp(self) -> tuple[int, int]:
        return 1, self.millis

    def leader_epoch(self) -> int | None:
        return 7

    def error(self) -> KafkaError | None:
        return self.problem


class PlayedTopics:
    """Stands where the brokers do. ``first_read`` are partitions that are read before others, and
    ``most`` is how many messages come at once.
    """

    def __init__(self, **partitions: int) -> None:
        self.messages: dict[Partition, list[PlayedMessage]] = {}
        self.first_read: Sequence[Partition] = ()
        self.most = 2000
        self.idle = 0
        """How often nothing more came."""
        self.on_take: Callable[[PlayedReader], object] = lambda _: None
        self.grow(SCHEMA, 1)
        for table, count in {"items": 1, **partitions}.items():
            self.grow(f"shop.public.{table}", count)
        self.announce("items")

    def grow(self, topic: str, count: int) -> None:
        for number in range(count):
            self.messages.setdefault(Partition(topic, number), [])

    def send(
        self,
        body: bytes | None,
        key: bytes | None = b"k",
        headers: Mapping[str, str] | None = None,
        *,
        to: Partition = P0,
    ) -> int:
        """The message's offset."""
        there = self.messages[to]
        headed = {f"penstock.{name}": text.encode() for name, text in (headers or {}).items()}
        there.append(PlayedMessage(to, len(there), body, key, headed))
        return len(there) - 1

    def change(
        self,
        op: str,
        number: int,
        name: str,
        at: str,
        *,
        to: Partition = P0,
        lane: str = "0/1 key",
        source: str = SOURCE,
    ) -> int:
        """A change of items, with the headers that a writer sends; ``source=""`` for none."""
        headers = {"position": at, "lane": f"{lane} {source}"} if source else {}
        return self.send(row(op, number, name), b"%d" % number, headers, to=to)

    def truncate(self, at: str, *, lane: str = "0/1 key", to: Partition = P0) -> None:
        headers = {"position": at, "lane": f"{lane} {SOURCE}"}
        self.send(truncate_of("items"), None, headers, to=to)

    def announce(self, table: str, source: str = "", *more: str) -> None:
        headers = {"lane": f"0/1 key {source}"} if source else {}
        self.send(announcement(table, *more), None, headers, to=Partition(SCHEMA, 0))

    # -- what capture asks -------------------------------------------------------------------------

    def topics(self) -> dict[str, Topic]:
        names = {place.topic for place in self.messages}
        counts = {name: sum(p.topic == name for p in self.messages) for name in names}
        return {name: Topic(f"id of {name}", count) for name, count in counts.items()}

    def bounds(
        self, places: Collection[Partition], *, first: bool = False, are_decided: bool = True
    ) -> dict[Partition, int]:
        return {place: 0 if first else len(self.messages[place]) for place in places}

    def reader(self, *_: object) -> PlayedReader:
        return PlayedReader(self)


class PlayedReader:
    """Gives what one partition holds, then what the next one does."""

    def __init__(self, topics: PlayedTopics) -> None:
        self._topics = topics
        self.next: dict[Partition, int] = {}
        self.epochs: dict[Partition, int] = {}
        self.wanted: frozenset[Partition] | None = None

    def only(self, places: frozenset[Partition] | None) -> None:
        self.wanted = places

    def add(
        self, places: Mapping[Partition, int], epochs: Mapping[Partition, int] | None = None
    ) -> None:
        self.epochs = {**(epochs or {}), **self.epochs}
        self.next = {**places, **self.next}

    def take(self, _count: int, _seconds: float) -> list[PlayedMessage]:
        self._topics.on_take(self)
        wanted = self._topics.first_read
        for place in sorted(self.next, key=lambda place: (place not in wanted, place)):
            held, at = self._topics.messages.get(place, []), self.next[place]
            found = held[at : at + self._topics.most]
            if self.wanted is not None and place not in self.wanted:
                continue
            if found:
                self._topics.idle = 0
                self.next[place] += len(found)
                if self.next[place] == len(held):
                    end = PlayedMessage(place, len(held))
                    end.problem = KafkaError(KafkaError._PARTITION_EOF)
                    found.append(end)
                return found
        self._topics.idle += 1
        return []

    def commit(self, _places: Mapping[Partition, int], _tag: str) -> None: ...

    def close(self) -> None: ...


class PlayedStop:
    """Stops a session when all was read, or where a test says so."""

    def __init__(self) -> None:
        self.link = Link()
        self.now = False
        self.is_done: Callable[[], bool] = lambda: False

    def __call__(self) -> bool:
        return self.now or self.is_done()

    def wait(self, _seconds: float) -> None: ...


class Captured:
    """Reads topics into a log, as often as a test wants to."""

    def __init__(
        self, topics: PlayedTopics, folder: Path, patch: pytest.MonkeyPatch, **source: Any
    ) -> None:
        self.topics = topics
        self.log = ChangeLog(str(folder / "log"))
        self.config = KafkaPipelineConfig.model_validate(
            {
                "name": "back",
                "source": {
                    "type": "kafka",
                    "brokers": "localhost:9",
                    "topics": [r"^shop\.public\..*"],
                    "schema_topic": SCHEMA,
                    **source,
                },
                "store": {"url": "postgresql://localhost/nowhere"},
                "destination": {"type": "files", "path": str(folder / "out")},
                "change_log": {"path": str(folder / "log")},
            }
        )
        self.stop = PlayedStop()
        patch.setattr(session, "_TOPICS_SECONDS", 0.0)
        patch.setattr(session, "TopicReader", topics.reader)
        patch.setattr(schema_topic, "TopicReader", topics.reader)

    def run(self) -> list[str]:
        """What all of the log holds afterwards."""
        self.stop.now = False
        writer = LogWriter(self.log)
        writer.start_at(writer.frontier or START)
        made = TopicSession(
            self.config,
            FilledLog(self.log, writer, self.stop.link),
            TopicAccess(
                self.topics,  # type: ignore[arg-type]
                self.topics.reader(),  # type: ignore[arg-type]
                TopicsIdentity("uuid", "cluster", "group", "penstock"),
            ),
            stored_offsets(self.log),
            self.stop,  # type: ignore[arg-type]
        )
        ends = self.topics.messages
        self.topics.idle = 0
        self.stop.is_done = lambda: (
            made._offsets.total == sum(map(len, ends.values())) or self.topics.idle > 5
        )
        made.run(lambda: None)
        return self.held()

    @property
    def offsets(self) -> Offsets:
        found = stored_offsets(self.log)
        assert found is not None
        return found

    def transactions(self) -> list[list[str]]:
        """The same, by transactions of the log."""
        found: dict[int, list[str]] = {}
        for name in self.log.list().segments:
            rows = self.log.read(str(name)).rows
            commits = rows.column("commit_lsn").to_pylist()
            for commit, payload in zip(commits, rows.column("payload").to_pylist(), strict=True):
                if payload[:1] != b"S":
                    found.setdefault(commit, []).append(said(payload))
        return list(found.values())

    def held(self) -> list[str]:
        found = []
        for name in self.log.list().segments:
            payloads = self.log.read(str(name)).rows.column("payload").to_pylist()
            found += [said(payload) for payload in payloads if payload[:1] != b"S"]
        return found


def said(payload: bytes) -> str:
    """A row of the log in short: ``insert 1 a``."""
    match parse_message(payload):
        case Truncate():
            return "truncate"
        case Delete(old=(bytes() as key, *_)):
            return f"delete {key.decode()}"
        case (Insert() | Update()) as change:
            number, name, *_ = change.new
            assert isinstance(number, bytes)
            kind = type(change).__name__.lower()
            return f"{kind} {number.decode()} {name.decode() if isinstance(name, bytes) else name}"
    raise AssertionError(payload)


def row(op: str, number: int, name: str, table: str = "items") -> bytes:
    new = None if op == "delete" else {"id": number, "name": name}
    return message(op, table, key={"id": number}, old=None, new=new, unset=[])


def truncate_of(table: str) -> bytes:
    return message("truncate", table, tables=[{"schema": "public", "table": table}])


def message(op: str, table: str, **parts: Any) -> bytes:
    body = {
        "format": 1,
        "op": op,
        "schema": "public",
        "table": table,
        "position": {"commit_lsn": "0/10", "ordinal": 0},
        "commit_time": "2026-01-02T03:04:05.678901Z",
        **parts,
    }
    return json.dumps(body).encode()


def announcement(table: str, *more: str) -> bytes:
    columns = [("id", "bigint"), ("name", "text"), *((name, "text") for name in more)]
    event = {
        "format": 1,
        "op": "schema",
        "schema": "public",
        "table": table,
        "table_id": 77 + len(table),
        "columns": [
            {"id": number, "name": name, "type": kind, "not_null": False, "default": None}
            for number, (name, kind) in enumerate(columns, 1)
        ],
        "primary_key": ["id"],
    }
    return json.dumps(event).encode()
