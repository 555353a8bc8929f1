"""What is said of a message beside its body."""

from __future__ import annotations

from typing import Any

from penstock.destination.rabbitmq.destination import RabbitDestination
from penstock.destination.rabbitmq.messages import Message
from penstock.destination.rabbitmq.options import RabbitOptions
from penstock.model.source_identity import SourceIdentity
from penstock.testing.change_builder import ChangeBuilder
from penstock.testing.contract.deliveries import ITEMS, NOTES, definition


def messages(source: SourceIdentity | None = None, **options: Any) -> list[Message]:
    """Those of an insert, and of a TRUNCATE of two tables."""
    given = RabbitOptions.model_validate({"url": "amqp://nowhere", **options})
    destination = RabbitDestination(given, "shop")
    destination.prepare([definition(ITEMS), definition(NOTES)])
    if source is not None:
        destination.come_from(source)
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "one")
        builder.truncate(ITEMS, NOTES)
    writer = destination.writer()
    return list(writer.routes.outgoing(writer.encoder.events(builder.cut())))


def ids(found: list[Message]) -> list[str]:
    return [message.properties.message_id for message in found]


def test_the_same_positions_of_another_server_have_other_ids() -> None:
    one, other = (
        ids(messages(SourceIdentity(system, 1, "shop", "a uuid"))) for system in ("700", "701")
    )
    assert len({*one, *other}) == 6
    assert one == ids(messages(SourceIdentity("700", 2, "shop", "a uuid"))), "it was promoted"
    assert [name.partition("@")[0] for name in one[:1]] == ids(messages())[:1]


def test_without_headers_the_properties_and_the_body_stay() -> None:
    with_all, without = messages(), messages(headers="none")
    assert [message.properties.headers for message in without] == [None] * 3
    assert with_all[0].properties.headers["penstock.key"] == '{"id":1}'
    for one, other in zip(with_all, without, strict=True):
        assert one.body == other.body
        for name in ("message_id", "type", "app_id", "content_type", "delivery_mode"):
            assert getattr(one.properties, name) == getattr(other.properties, name)
