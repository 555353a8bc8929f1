"""Messages as Debezium writes them where it marks transactions (``provide.transaction.metadata``),
with schemas: what tests/golden/debezium/messages/transactions.jsonl shows of a real engine.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.source.kafka.offsets import Partition

PREFIX = "shop"
_TYPES = {"id": "int64", "amount": "int64"}


@dataclass(frozen=True)
class Message:
    place: Partition
    key: bytes | None
    value: bytes | None
    is_end: bool = False


@dataclass
class Change:
    """One row: ``op`` as Debezium calls it, and the columns of the row."""

    table: str
    row: Mapping[str, Any]
    op: str = "c"
    partition: int = 0


@dataclass
class Connector:
    """Says what it reads, transaction by transaction. A transaction's commit ends at its number
    times a thousand.
    """

    prefix: str = PREFIX
    after: int = 0
    said: list[Message] = field(default_factory=list)

    @property
    def boundaries(self) -> Partition:
        return Partition(f"{self.prefix}.transaction", 0)

    def read(self, change: Change) -> list[Message]:
        """A row that was there, or one of a transaction that nobody marked."""
        return self._say(self._row(change, None))

    def transaction(self, number: int, *changes: Change, **more: int) -> list[Message]:
        """``more`` are events of tables of another schema, in topics of their own."""
        end = number * 1000
        found = [self._boundary("BEGIN", f"{number}:{end - 500}", number)]
        counts = Counter({f"other.{table}": count for table, count in more.items()})
        for order, change in enumerate(changes, 1):
            lsn = end - 500 + order
            table = f"public.{change.table}"
            counts[table] += 1
            mark = {
                "id": f"{number}:{lsn}",
                "total_order": order,
                "data_collection_order": counts[table],
            }
            found.append(self._row(change, mark, number, lsn))
        found.append(self._boundary("END", f"{number}:{end}", number, counts))
        self.after = end
        return self._say(*found)

    def _say(self, *messages: Message) -> list[Message]:
        self.said += messages
        return list(messages)

    def _row(
        self, change: Change, mark: dict[str, Any] | None, number: int = 1, lsn: int = 1
    ) -> Message:
        table = f"public.{change.table}"
        fields = [
            {"field": name, "type": _TYPES.get(name, "string"), "optional": name != "id"}
            for name in change.row
        ]
        after = None if change.op == "d" else dict(change.row)
        source = {
            "name": self.prefix,
            "schema": "public",
            "table": change.table,
            "lsn": lsn,
            "txId": number,
            "ts_ms": 1_767_323_000_000 + number,
            "sequence": json.dumps([str(self.after) if self.after else None, str(lsn)]),
        }
        payload = {"op": change.op, "after": after, "source": source, "transaction": mark}
        return Message(
            Partition(f"{self.prefix}.public.{change.table}", change.partition),
            _json(
                {
                    "schema": {"fields": fields[:1], "name": f"{self.prefix}.{table}.Key"},
                    "payload": {"id": change.row["id"]},
                }
            ),
            _json(
                {
                    "schema": {"fields": [{"field": "after", "fields": fields}]},
                    "payload": payload,
                }
            ),
        )

    def _boundary(
        self, status: str, name: str, number: int, counts: Mapping[str, int] | None = None
    ) -> Message:
        payload = {
            "status": status,
            "id": name,
            "event_count": None if counts is None else sum(counts.values()),
            "data_collections": None
            if counts is None
            else [{"data_collection": t, "event_count": n} for t, n in counts.items()],
            "ts_ms": 1_767_323_000_000 + number,
        }
        key = _json({"schema": {}, "payload": {"id": name}})
        value = _json({"schema": {}, "payload": payload})
        return Message(self.boundaries, key, value, status == "END")


def items(*rows: tuple[int, str], partition: int = 0) -> Sequence[Change]:
    return [Change("items", {"id": n, "name": name}, partition=partition) for n, name in rows]


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
