"""The format that a pipeline file asks for."""

from __future__ import annotations

from penstock.source.kafka.debezium_format import DebeziumMessages
from penstock.source.kafka.events import MessageFormat
from penstock.source.kafka.penstock_format import PenstockMessages


def message_format(name: str) -> MessageFormat:
    return DebeziumMessages() if name == "debezium" else PenstockMessages()
