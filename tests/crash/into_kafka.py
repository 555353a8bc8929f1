"""A pipeline into Kafka under load, judged message by message."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from confluent_kafka import Message

from penstock.demo.embedded_postgres import EmbeddedPostgres
from penstock.destination.registry import make_destination
from penstock.errors import DestinationUnavailable
from penstock.failpoints import NAMES
from penstock.lsn import Frontier, Position, parse_lsn
from tests.crash.delivery import expect_equal, expect_recorded
from tests.crash.injured_pipeline import SHORT_BATCHES, SMALL_SEGMENTS, InjuredPipeline
from tests.crash.witness import Change, call_witness, hear_witness
from tests.kafka_messages import check_order, place, read_topics
from tests.kafka_server import KafkaServer

_EMBEDDED = "doc"
"""The one column of the load's tables that is of type jsonb."""


class IntoKafka(InjuredPipeline):
    """With a second slot as witness of every single change."""

    failpoints = tuple(
        name for name in NAMES if not name.startswith(("files.", "postgres.", "copy."))
    )

    def __init__(
        self,
        server: EmbeddedPostgres,
        kafka: KafkaServer,
        folder: Path,
        seed: int,
        *,
        transactional: bool,
    ) -> None:
        super().__init__(server, folder, seed)
        self.kafka = kafka
        self.transactional = transactional
        self.pipeline.configure(
            destination={
                "type": "kafka",
                "brokers": kafka.brokers,
                "transactional": transactional,
                "lanes": {"by": "key", "count": 3},
                "topics": {"partitions": 3},
                # Shorter than the broker is away: what is under way has to be given up as well.
                "delivery_timeout": "5s",
            },
            batch=SHORT_BATCHES,
            **SMALL_SEGMENTS,
        )
        self.rewrite()
        self.publications = self.pipeline.subscribe().publications
        call_witness(self.url)

    def frontier(self) -> Frontier:
        if not self.transactional:
            reader = self.pipeline.log.reader(self.pipeline.name)
            return reader.frontier if reader else Frontier(0, 0)
        config = self.pipeline.config
        destination = make_destination("kafka", config.destination_options, config.name)
        try:
            return destination.committed() or Frontier(0, 0)
        except DestinationUnavailable:
            return Frontier(0, 0)
        finally:
            destination.close()

    def check_all(self) -> int:
        self.check_confirmed()
        self.check_runs()
        messages = read_topics(
            self.kafka.brokers, lambda topic: topic.startswith(f"{self.pipeline.name}.")
        )
        if self.transactional:
            places = [(message.topic(), place(message)) for message in messages]
            assert len(places) == len(set(places)), "a message is there twice"
        check_order(messages)
        delivered = _changes(messages)
        witness = hear_witness(self.url, *self.publications)
        expect_equal(delivered, [_with_embedded(change) for change in witness])
        expect_recorded(delivered, self.load.committed, self.load.in_doubt)
        return len(delivered)


def _changes(messages: list[Message]) -> list[Change]:
    """As the witness tells them, each once."""
    values = [json.loads(m.value() or b"", parse_int=str, parse_float=str) for m in messages]
    # A row that left its key: the update that took it away is told of under the new one.
    updates = {_position(value) for value in values if value["op"] == "update"}
    found = {
        (change.position, change.table): change
        for value in values
        if value["op"] != "delete" or _position(value) not in updates
        for change in [_change(value)]
    }
    return sorted(found.values(), key=lambda change: (change.position, change.table))


def _change(value: dict[str, Any]) -> Change:
    position, op = _position(value), value["op"]
    if op == "message":
        content = value["content"]
        raw = content.encode() if value["encoding"] == "utf-8" else base64.b64decode(content)
        return Change(position, value["prefix"], op, {"content": raw.hex()})
    if op == "truncate":
        (table,) = value["tables"]
        return Change(position, table["table"], op)
    return Change(position, value["table"], op, _texts(value["new"]), _texts(value["old"]))


def _texts(row: dict[str, Any] | None) -> dict[str, str | None] | None:
    """Values as Postgres writes them, but for JSON, which is embedded."""
    if row is None:
        return None
    return {
        name: json.dumps(value, sort_keys=True)
        if name == _EMBEDDED and value is not None
        else {True: "t", False: "f"}.get(value, value)
        for name, value in row.items()
    }


def _with_embedded(change: Change) -> Change:
    """What the witness tells, with JSON in the form that embedded JSON has here."""
    return change._replace(new=_parsed(change.new), old=_parsed(change.old))


def _parsed(row: dict[str, str | None] | None) -> dict[str, str | None] | None:
    if row is None or row.get(_EMBEDDED) is None:
        return row
    value = json.loads(row[_EMBEDDED] or "", parse_int=str, parse_float=str)
    return {**row, _EMBEDDED: None if value is None else json.dumps(value, sort_keys=True)}


def _position(value: dict[str, Any]) -> Position:
    place = value["position"]
    return Position(parse_lsn(place["commit_lsn"]), int(place["ordinal"]))
