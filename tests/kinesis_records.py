"""Reading back what was sent to Kinesis."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any, NamedTuple

from penstock.model.lsn import parse_lsn
from tests.kinesis_server import KinesisServer

Place = tuple[int, int]
"""Commit LSN and ordinal."""


class StoredRecord(NamedTuple):
    stream: str
    shard: str
    key: str
    data: bytes

    @property
    def events(self) -> list[dict[str, Any]]:
        """Several, where they were aggregated. Numbers are texts, as they are written."""
        return [json.loads(line, parse_int=str, parse_float=str) for line in self.data.split(b"\n")]


def read_streams(server: KinesisServer, wanted: Callable[[str], bool]) -> list[StoredRecord]:
    """All records of all streams that are wanted, shard by shard."""
    with closing(server.client()) as client:
        names = [name for name in _stream_names(client) if wanted(name)]
        return [record for name in names for record in _read(client, name)]


def check_order(records: Iterable[StoredRecord]) -> None:
    """The events of a partition key stand in order, in one shard, once those that were sent again
    are left out.
    """
    seen: dict[tuple[str, str], dict[tuple[Place, str], None]] = defaultdict(dict)
    shards: dict[tuple[str, str], set[str]] = defaultdict(set)
    for record in records:
        shards[record.stream, record.key].add(record.shard)
        for event in record.events:
            # Of a change of a key there are two, at one place.
            seen[record.stream, record.key].setdefault((place(event), event["op"]))
    assert all(len(found) == 1 for found in shards.values())
    for (stream, key), events in seen.items():
        places = [place for place, _ in events]
        assert places == sorted(places), f"{stream}: {key!r} is out of order"


def place(event: dict[str, Any]) -> Place:
    found = event["position"]
    return parse_lsn(found["commit_lsn"]), int(found["ordinal"])


def _stream_names(client: Any) -> list[str]:
    # In one page: moto does not give what boto's paginator goes on with.
    page = client.list_streams(Limit=10_000)
    assert not page["HasMoreStreams"]
    names: list[str] = page["StreamNames"]
    return names


def _read(client: Any, stream: str) -> list[StoredRecord]:
    found: list[StoredRecord] = []
    for shard in client.list_shards(StreamName=stream)["Shards"]:
        name = shard["ShardId"]
        at = client.get_shard_iterator(
            StreamName=stream, ShardId=name, ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        while True:
            answer = client.get_records(ShardIterator=at, Limit=10_000)
            if not answer["Records"]:
                break
            found += [
                StoredRecord(stream, name, record["PartitionKey"], record["Data"])
                for record in answer["Records"]
            ]
            at = answer["NextShardIterator"]
    return found
