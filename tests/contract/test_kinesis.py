"""The contract suite on `kinesis`, with and without aggregation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.destination.contract import Destination
from penstock.destination.kinesis.destination import KinesisDestination
from penstock.destination.kinesis.options import KinesisOptions
from penstock.testing import Adapter, DestinationContract, parse_line
from tests.contract.queue_adapter import QueueAdapter
from tests.kinesis_records import StoredRecord, check_order, read_streams
from tests.kinesis_server import KinesisServer


class KinesisAdapter(QueueAdapter):
    def __init__(self, server: KinesisServer, folder: Path, *, aggregate: bool) -> None:
        super().__init__()
        self.server = server
        self.folder = folder
        self.aggregate = aggregate

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
        return KinesisDestination(KinesisOptions.model_validate(options), "shop")

    def events(self) -> list[dict[str, Any]]:
        records = read_streams(self.server, lambda stream: stream == self.name)
        check_order(records)
        return [line for record in records for line in _lines(record)]


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
    return parse_line(Path(event["claim_check"]["path"]).read_text())


class TestKinesis(DestinationContract):
    @pytest.fixture(params=[pytest.param("plain", marks=pytest.mark.release), "aggregated"])
    def adapter(
        self, request: pytest.FixtureRequest, kinesis_server: KinesisServer, tmp_path: Path
    ) -> Iterator[Adapter]:
        aggregate = request.param == "aggregated"
        adapter = KinesisAdapter(kinesis_server, tmp_path, aggregate=aggregate)
        yield adapter
        adapter.close()
