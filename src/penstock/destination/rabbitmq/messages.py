"""What events become for an exchange: routing keys, properties, headers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pika import BasicProperties

from penstock.destination.families.queue.events import (
    Kind,
    format_headers,
    kinds_of,
    position_texts,
)
from penstock.destination.rabbitmq.options import (
    EXCHANGES,
    LONGEST_KEY,
    RabbitOptions,
    routing_key,
)

_PERSISTENT, _TRANSIENT = 2, 1
# At one position there are several of these: rows of one snapshot, tables of one statement.
_OF_TABLES = ("read", "truncate", "schema")


class Message(NamedTuple):
    """``group`` is what keeps its order: of two of the same, the second waits for the first."""

    group: int
    key: str
    properties: Any
    body: bytes


@dataclass(frozen=True)
class MessageRoutes:
    """Which routing key an event has, and what is said of it beside its body."""

    options: RabbitOptions
    pipeline: str
    source: str = ""
    """The tag of the source: another one may have the same positions."""

    @property
    def exchange(self) -> str:
        return EXCHANGES.name(self.options.exchange, self.pipeline)

    def key(self, op: str, schema: str, table: str) -> str:
        options = self.options
        pattern = options.message_routing_key if op == "message" else options.routing_key
        return routing_key(pattern, self.pipeline, schema, table, op)

    def outgoing(self, events: pa.RecordBatch) -> Iterator[Message]:
        """In the events' order."""
        of, kinds = kinds_of(events)
        keys = [self.key(kind.op, kind.schema, kind.table) for kind in kinds]
        fixed = [_fixed_headers(kind) for kind in kinds]
        has_headers = self.options.headers == "all"
        own = _own_headers(events) if has_headers else {}
        mode = _PERSISTENT if self.options.persistent else _TRANSIENT
        rows = zip(
            of.tolist(),
            np.asarray(events.column("lane_hash")).tolist(),
            position_texts(events).to_pylist(),
            events.column("key").to_pylist(),
            events.column("value").cast(pa.large_binary()).to_pylist(),
            strict=True,
        )
        for row, (number, group, position, key, body) in enumerate(rows):
            kind = kinds[number]
            headers = None
            if has_headers:
                headers = {"penstock.position": position, **fixed[number]}
                if key is not None:
                    headers["penstock.key"] = key
                if row in own:
                    headers |= own[row]
            properties = BasicProperties(
                content_type="application/json",
                headers=headers,
                delivery_mode=mode,
                message_id=self._message_id(kind, position, key),
                type=kind.op,
                app_id=self.pipeline,
            )
            yield Message(group, keys[number], properties, body)

    def _message_id(self, kind: Kind, position: str, key: str | None) -> str | None:
        """The same whenever a message is sent again, and no other message's. None where rows cannot
        be told apart: those that were copied from a table without a key.
        """
        place = f"{position}@{self.source}" if self.source else position
        if kind.op not in _OF_TABLES:
            return place
        if kind.op == "read" and key is None:
            return None
        text = f"{place} {kind.schema}.{kind.table}" + (f" {key}" if kind.op == "read" else "")
        if len(text.encode()) <= LONGEST_KEY:
            return text
        return f"{place} {hashlib.sha256(text.encode()).hexdigest()}"


def _fixed_headers(kind: Kind) -> dict[str, str]:
    """Those that do not differ."""
    headers = {"penstock.op": kind.op}
    if kind.schema_version:
        headers["penstock.schema_version"] = kind.schema_version
    return headers


def _own_headers(events: pa.RecordBatch) -> dict[int, dict[str, str]]:
    """The format's own, by the row that has some."""
    found: dict[int, dict[str, str]] = {}
    for name, column in format_headers(events):
        for row in np.flatnonzero(np.asarray(column.is_valid())).tolist():
            found.setdefault(row, {})[name] = column[row].as_py()
    return found
