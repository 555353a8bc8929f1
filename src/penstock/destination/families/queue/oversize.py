"""Events that are larger than a queue takes: an error, or a claim check. Never dropped."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changelog.storage.contract import Storage
from penstock.changelog.storage.opened import open_storage
from penstock.decode.row_values import Ints
from penstock.destination.encode.json_values import TEXT
from penstock.destination.families.queue.options import OversizeOption
from penstock.model.errors import DestinationError, DestinationUnavailable
from penstock.model.lsn import Position, format_lsn
from penstock.objects.bucket import Owner

# What our own headers and the wire format add to key, value and the format's headers.
_ROOM = 1024
_CLAIMS = Owner(
    "claim checks in",
    "destination.oversize.claim_check",
    "destination.oversize.options",
    DestinationError,
    DestinationUnavailable,
)


@dataclass(frozen=True)
class Oversize:
    """What becomes of events of more than ``limit`` bytes."""

    destination: str
    limit: int
    option: OversizeOption
    remedy: str

    def checked(self, events: pa.RecordBatch) -> pa.RecordBatch:
        """The events, each small enough. Raises DestinationError where one is not, and where it
        would not be without its value, which alone can be put aside.
        """
        texts = [column for column in events.columns if column.type == TEXT]
        size = np.sum([_lengths(column) for column in texts], axis=0)
        most = self.limit - _ROOM
        rows = np.flatnonzero(size > most)
        if not len(rows):
            return events
        rest = size - _lengths(events.column("value"))
        lasting = rows if self.option == "error" else np.flatnonzero(rest > most)
        if len(lasting):
            raise self._error(events, int(lasting[0]), int(size[lasting[0]]))
        assert self.option != "error"  # noqa: S101 (then all of them are lasting)
        option = self.option
        # Consumers read it.
        storage = open_storage(
            option.claim_check, option.revealed_options, private=False, owner=_CLAIMS
        )
        checks = [self._stored(storage, events, row) for row in rows.tolist()]
        mask = np.zeros(len(events), bool)
        mask[rows] = True
        place = events.schema.get_field_index("value")
        values = pc.replace_with_mask(events.column(place), pa.array(mask), pa.array(checks, TEXT))
        return events.set_column(place, "value", values)

    def _stored(self, storage: Storage, events: pa.RecordBatch, row: int) -> str:
        """Put a value aside, always under the same name; what stands in for it."""
        event = {name: events.column(name)[row].as_py() for name in events.schema.names}
        value = event["value"].encode()
        digest = hashlib.sha256(value).hexdigest()
        # Copied rows share a position: only the content tells them apart.
        name = f"{_place(events, row).replace('/', '-')}-{digest[:16]}.json"
        storage.write(name, value, durable=True)
        commit_lsn, ordinal = format_lsn(event["commit_lsn"]), event["ordinal"]
        stand_in = {
            "op": event["op"],
            "schema": event["schema"],
            "table": event["table"],
            "position": {"commit_lsn": commit_lsn, "ordinal": ordinal},
            "key": json.loads(event["key"]) if event["by_key"] else None,
            "claim_check": {"path": storage.full(name), "bytes": len(value), "sha256": digest},
        }
        return json.dumps(stand_in, separators=(",", ":"), ensure_ascii=False)

    def _error(self, events: pa.RecordBatch, row: int, size: int) -> DestinationError:
        table = f"{events.column('schema')[row]}.{events.column('table')[row]}"
        return DestinationError(
            f"destination {self.destination}: the event of table {table} at {_place(events, row)} "
            f"has {size:,} bytes; at most {self.limit - _ROOM:,} are taken",
            remedy=f"{self.remedy}, or let such events be put aside with "
            "`destination.oversize: {claim_check: PLACE}`, a folder or a bucket",
        )


def _lengths(column: pa.Array) -> Ints:
    return np.asarray(pc.fill_null(pc.binary_length(column), 0))


def _place(events: pa.RecordBatch, row: int) -> str:
    commit_lsn, ordinal, part = (
        events.column(name)[row].as_py() for name in ("commit_lsn", "ordinal", "part")
    )
    return f"{Position(commit_lsn, ordinal)}" + (f"+{part}" if part else "")
