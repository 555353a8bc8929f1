"""How the suite makes the `kinesis` destination, and reads back what it sent."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.destination.contract import Destination
from penstock.destination.kinesis import KinesisDestination, KinesisOptions
from penstock.destination.memory import MemoryChange
from tests.contract.adapters import PIPELINE, Adapter, from_line, in_commit_order
from tests.kinesis_records import StoredRecord, check_order, read_streams
from tests.kinesis_server import KinesisServer
from tests.queue_events import without_departures


class KinesisAdapter(Adapter):
    chunk_stands_once = False
    chunk_waits_for_commit = False
    chunk_is_sent = True
    keeps_all_order = False
    aggregate: ClassVar[bool] = False
    server: KinesisServer
    """Set by the fixture."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, database: str) -> None:
        super().__init__(folder, monkeypatch, database)
        self._stream = uuid.uuid4().hex[:8]
        self._claims = folder / "claims"
        self._made: list[Destination] = []

    def make(self) -> Destination:
        options = {
            **self.server.destination,
            "stream": self._stream,
            "other_stream": self._stream,
            "aggregate": self.aggregate,
            "lanes": {"by": "key", "count": 3},
            "streams": {"shards": 2},
            "oversize": {"claim_check": str(self._claims)},
        }
        self._made.append(KinesisDestination(KinesisOptions.model_validate(options), PIPELINE))
        return self._made[-1]

    def close(self) -> None:
        for destination in self._made:
            destination.close()

    def delivered(self) -> list[MemoryChange]:
        return in_commit_order(change for change in self._changes() if change.op != "read")

    def copied(self) -> list[MemoryChange]:
        return [change for change in self._changes() if change.op == "read"]

    def _changes(self) -> list[MemoryChange]:
        records = read_streams(self.server, lambda stream: stream == self._stream)
        check_order(records)
        lines = [line for record in records for line in _lines(record)]
        return [from_line(line) for line in without_departures(lines)]


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
