"""How the suite makes the `kinesis` destination, and reads back what it sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

from penstock.destination.contract import Destination
from penstock.destination.kinesis.destination import KinesisDestination
from penstock.destination.kinesis.options import KinesisOptions
from tests.contract.adapters import PIPELINE
from tests.contract.queue_adapter import QueueAdapter
from tests.kinesis_records import StoredRecord, check_order, read_streams
from tests.kinesis_server import KinesisServer


class KinesisAdapter(QueueAdapter):
    aggregate: ClassVar[bool] = False
    server: KinesisServer
    """Set by the fixture."""

    def connect(self) -> Destination:
        options = {
            **self.server.destination,
            "stream": self.name,
            "other_stream": self.name,
            "aggregate": self.aggregate,
            "lanes": {"by": "key", "count": 3},
            "streams": {"shards": 2},
            "oversize": {"claim_check": str(self.folder / "claims")},
        }
        return KinesisDestination(KinesisOptions.model_validate(options), PIPELINE)

    def events(self) -> list[dict[str, Any]]:
        records = read_streams(self.server, lambda stream: stream == self.name)
        check_order(records)
        return [line for record in records for line in _lines(record)]


class AggregatedKinesisAdapter(KinesisAdapter):
    aggregate = True


def _lines(record: StoredRecord) -> list[dict[str, Any]]:
    lines = [_claimed(event) for event in record.events]
    for line in lines:
        if line["op"] in ("insert", "update", "delete"):
            table, _, key = record.key.partition(":")
            assert table == f"{line['schema']}.{line['table']}"
            assert (json.loads(key, parse_int=str) if key else None) == line["key"]
    return lines


def _claimed(event: dict[str, Any]) -> dict[str, Any]:
    """What was put aside, where it was."""
    if "claim_check" not in event:
        return event
    text = Path(event["claim_check"]["path"]).read_text()
    whole: dict[str, Any] = json.loads(text, parse_int=str, parse_float=str)
    return whole
