"""The kafka destination's options, topics and routes, without a broker."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from penstock.destination.contract import SchemaChange
from penstock.destination.families.queue.options import LaneOptions
from penstock.destination.kafka.destination import KafkaDestination
from penstock.destination.kafka.options import TOPICS, KafkaOptions
from penstock.destination.kafka.positions import DriverRecord, Sent, lanes_left
from penstock.destination.kafka.routes import Routes
from penstock.model.errors import DestinationError
from penstock.model.lsn import Frontier, Position
from penstock.model.schema_change import TableChange
from penstock.model.source_identity import SourceIdentity
from penstock.model.table_definition import TableDefinition
from penstock.testing.change_builder import ChangeBuilder
from tests.handed_over import handed_over
from tests.unit.test_queue_events import encoder, some_changes


def options(**given: Any) -> KafkaOptions:
    return KafkaOptions.model_validate({"brokers": "localhost:9092", **given})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topic": "{database}.{table}"}, "Input should be a topic's name"),
        ({"topic": "{"}, "Input should be a topic's name"),
        ({"topic": "{table.name}"}, "Input should be a topic's name"),
        ({"topic": "{table[name]}"}, "Input should be a topic's name"),
        ({"message_topic": "{table}"}, "it is of no single table"),
        ({"positions_topic": "{schema}.x"}, "it is of no single table"),
        ({"format": "avro"}, "Input should be 'penstock', 'debezium', 'bifrost' or 'cloudevents'"),
        ({"bifrost": {"old": False}}, "Extra inputs are not permitted"),
        ({"client": {"acks": 1}}, "acks is not to be set here"),
        ({"client": {"enable.idempotence": False}}, "enable.idempotence is not to be set here"),
        ({"lanes": {"by": "column"}}, "Input should be 'schema', 'table', 'key' or 'transaction'"),
        ({"lanes": {"count": 0}}, "greater than or equal to 1"),
        ({"oversize": "drop"}, "Input should be 'error'"),
    ],
)
def test_wrong_options(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        options(**given)


def test_settings_of_the_client_are_passed_through_and_not_shown() -> None:
    made = options(
        client={
            "sasl.password": "secret",
            "ssl.ca.location": "/ca.pem",
            "socket.nagle.disable": True,
        }
    )
    assert made.producer["sasl.password"] == "secret"
    assert made.producer["socket.nagle.disable"] == "true"
    assert made.connection["ssl.ca.location"] == "/ca.pem"
    assert "secret" not in repr(made)
    assert "secret" not in str(made)


def test_a_setting_that_no_client_has() -> None:
    made = options(client={"sasl.pasword": "secret"})
    with pytest.raises(DestinationError, match=re.escape("sasl.pasword")) as caught:
        KafkaDestination(made, "shop").check()
    assert caught.value.remedy == "see destination.client"
    assert "secret" not in str(caught.value)


def test_what_the_guarantees_rest_on_cannot_be_turned_off() -> None:
    settings = options(linger="20ms", buffer_bytes="8MiB").producer
    assert settings["enable.idempotence"] is True
    assert settings["linger.ms"] == 20
    assert settings["queue.buffering.max.kbytes"] == 8192


@pytest.mark.parametrize(
    ("schema", "table", "topic"),
    [
        ("public", "items", "shop.public.items"),
        ("größe", "order items", "shop.gr__e.order_items"),
        ("..", "../x", "shop......_x"),
    ],
)
def test_names_of_topics(schema: str, table: str, topic: str) -> None:
    found = TOPICS.name("{pipeline}.{schema}.{table}", "shop", schema, table)
    assert found == topic


def test_a_name_that_is_too_long_for_a_topic() -> None:
    with pytest.raises(DestinationError, match="no legal name") as error:
        TOPICS.name("{schema}.{table}", "shop", "s" * 200, "t" * 60)
    assert "destination.topic" in error.value.remedy


def test_where_messages_go() -> None:
    events = encoder("table").events(some_changes(ChangeBuilder()))
    routes = Routes(options(), "shop", {"shop.public.items": 4, "shop.other.notes": 3})
    sent = handed_over(routes.outgoing(events))
    topics = [message.topic for message in sent]
    assert topics[:4] == [
        "shop.public.items", "shop.other.notes", "shop.public.loose", "shop.public.items",
    ]  # fmt: skip
    assert topics[-1] == "shop.messages"
    # By table: one partition each, and within what the topic has.
    assert {m.partition for m in sent if m.topic.endswith("notes")} <= {0, 1, 2}
    assert len({(message.topic, message.partition) for message in sent}) == 4
    headers = sent[0].headers
    assert headers["penstock.op"] == b"insert"
    assert headers["penstock.position"] == b"1/1010+0"
    assert len(headers["penstock.schema_version"] or b"") == 16
    assert re.fullmatch(rb"\d/\d key", headers["penstock.lane"] or b"")
    destination = KafkaDestination(options(), "shop")
    destination.come_from(SourceIdentity("700", 1, "shop", "a uuid"))
    told = handed_over(destination.writer().routes.outgoing(events))
    moved = handed_over(
        Routes(options(), "shop", {}, SourceIdentity("701", 1, "shop", "a uuid").tag).outgoing(
            events
        )
    )
    lane = told[0].headers["penstock.lane"] or b""
    assert re.fullmatch(rb"\d/\d key [0-9a-f]{16}", lane)
    assert lane != moved[0].headers["penstock.lane"]


@pytest.mark.parametrize(
    ("pattern", "topics"),
    [
        ("{pipeline}.schema", ["shop.schema"] * 3),
        ("{pipeline}.{schema}.ddl", ["shop.public.ddl", "shop.other.ddl", "shop.public.ddl"]),
        ("ddl.{schema}.{table}", ["ddl.public.items", "ddl.other.goods", "ddl.public.items"]),
    ],
)
def test_where_schema_events_go(pattern: str, topics: list[str]) -> None:
    """Also of a table that was renamed, and of one that was dropped."""
    items = TableDefinition(10, "public", "items", "d", ())
    goods = TableDefinition(11, "other", "goods", "d", ())
    tables = (
        TableChange(None, items),
        TableChange(replace(goods, name="former"), goods),
        TableChange(items, None),
    )
    change = SchemaChange(Position(0x60, 0), 0, "ALTER TABLE", tables)
    events = encoder().schema_change(change)
    assert len(set(events.column("lane_hash").to_pylist())) == 1
    sent = handed_over(Routes(options(schema_topic=pattern), "shop", {}).outgoing(events))
    assert [message.topic for message in sent] == topics
    tables_told = [json.loads(message.value or b"")["table"] for message in sent]
    assert tables_told == ["items", "goods", "items"]


def test_by_key_the_client_chooses_the_partition_where_there_is_a_key() -> None:
    events = encoder("key").events(some_changes(ChangeBuilder()))
    for message in handed_over(Routes(options(), "shop", {}).outgoing(events)):
        assert (message.partition == -1) is (message.key is not None)


def test_what_the_driver_stores() -> None:
    for record in (
        DriverRecord(Frontier(1, 2), Sent(1, 2, 3), "key/4"),
        DriverRecord(None, None, "table/1"),
    ):
        assert DriverRecord.from_json(record.to_json()) == record


def test_lanes_that_were_changed_amid_a_batch() -> None:
    lanes = LaneOptions(by="key", count=8)
    found = [("key/4", Sent(90, 0, 0)), ("key/4", Sent(200, 5, 0))]
    assert lanes_left(found, Frontier(200, 208), lanes) is None
    error = lanes_left(found, Frontier(100, 108), lanes)
    assert error is not None
    assert "lanes were key/4" in error.message
    assert "{by: key, count: 4}" in error.remedy
    assert lanes_left([("key/8", Sent(200, 5, 0))], Frontier(100, 108), lanes) is None
