"""Changes as CloudEvents 1.0 in JSON (structured mode): Penstock's own events in an envelope."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.changes import MessageEvent, Stamp, TableChanges, TruncateEvent
from penstock.decode.row_values import READ_ORDINAL, Ints
from penstock.destination.contract import SchemaChange
from penstock.destination.encode.commit_time import commit_time_text
from penstock.destination.encode.json_values import TEXT, escaped, join, repeat
from penstock.destination.encode.messages import EventFormat, Messages
from penstock.destination.families.queue.lanes import hash_texts
from penstock.model.schema_change import TableChange
from penstock.model.table_rows import TableRows

_EMPTY = pa.scalar("", TEXT)


@dataclass(frozen=True)
class CloudEventsFormat(EventFormat):
    """``inner`` makes what stands under ``data``. ``source`` names the pipeline.

    ``id`` is the event's position, so it is the same whenever the event comes again.
    """

    inner: EventFormat
    source: str

    def changes(self, changes: TableChanges) -> Messages:
        made = self.inner.changes(changes)
        time = pa.array(changes.commit_micros[made.row]).cast(pa.timestamp("us")).cast(TEXT)
        at, ordinal = changes.commit_lsn[made.row], changes.ordinal[made.row]
        place = join(_digits(at, 20), ".", _digits(ordinal, 10), ".", _digits(made.part, 2))
        name = f"{changes.table.schema}.{changes.table.name}"
        return self._wrapped(made, place, place, _time(time), name)

    def copied(self, rows: TableRows) -> Messages:
        made = self.inner.copied(rows)
        count = len(made)
        at = np.full(count, rows.snapshot.commit_lsn)
        place = join(_digits(at, 20), ".", _digits(np.full(count, READ_ORDINAL), 10))
        # Copied rows share a position: what tells them apart is table and key, or all they say.
        said = pa.array(hash_texts(made.value)).cast(TEXT)
        told_by = pc.coalesce(pc.cast(made.key, TEXT), said)
        name = f"{rows.table.schema}.{rows.table.name}"
        ids = join(place, f".{name}.", told_by)
        return self._wrapped(made, ids, place, repeat("", count), name)

    def truncate(self, event: TruncateEvent) -> Sequence[Messages]:
        return [
            self._single(messages, event.stamp, f"{table.schema}.{table.name}")
            for messages, table in zip(self.inner.truncate(event), event.tables, strict=True)
        ]

    def message(self, event: MessageEvent) -> Messages:
        return self._single(self.inner.message(event), event.stamp, "")

    def schema_change(self, change: SchemaChange) -> Sequence[tuple[TableChange, Messages]]:
        stamp = Stamp(change.position, 0, 0, change.commit_micros, None)
        found = []
        for table, messages in self.inner.schema_change(change):
            known = table.after or table.before
            name = "" if known is None else f"{known.schema}.{known.name}"
            # One that only announces a table has no position: what it says tells it apart.
            said = "" if any(change.position) else f".{hash_texts(messages.value)[0]}"
            found.append((table, self._single(messages, stamp, name, said)))
        return found

    def _single(self, made: Messages, stamp: Stamp, name: str, said: str = "") -> Messages:
        count = len(made)
        place = f"{stamp.position.commit_lsn:020}.{stamp.position.ordinal:010}"
        ids = join(
            repeat(place, count), ".", _digits(made.part, 2), f".{name}{said}" if name else ""
        )
        time = f',"time":"{commit_time_text(stamp.commit_micros)}"'
        return self._wrapped(made, ids, repeat(place, count), repeat(time, count), name)

    def _wrapped(
        self, made: Messages, ids: pa.Array, sequence: pa.Array, time: pa.Array, name: str
    ) -> Messages:
        subject = f',"subject":{json.dumps(name, ensure_ascii=False)}' if name else ""
        key = join(',"partitionkey":"', escaped(pc.cast(made.key, TEXT)), '"')
        value = join(
            '{"specversion":"1.0","id":"',
            escaped(ids),
            f'","source":{json.dumps(self.source)},"type":"penstock.',
            made.op,
            f'"{subject}',
            time,
            ',"sequence":"',
            sequence,
            '"',
            pc.fill_null(key, _EMPTY),
            ',"datacontenttype":"application/json","data":',
            made.value,
            "}",
        )
        return replace(made, value=value)


def _digits(numbers: Ints, width: int) -> pa.Array:
    """With leading zeros: their order as texts is that of the numbers."""
    return pc.utf8_lpad(pa.array(np.ascontiguousarray(numbers)).cast(TEXT), width, "0")


def _time(texts: pa.Array) -> pa.Array:
    return join(',"time":"', pc.replace_substring(texts, " ", "T"), 'Z"')
