"""Where and when a change was made, in the blocks that Debezium has for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.decode.changes import Stamp, TableChanges
from penstock.decode.row_values import Ints
from penstock.destination.encode.debezium_options import DebeziumOptions
from penstock.destination.encode.json_values import TEXT, join, repeat

Part = Any
"""A column of texts, or one text for all rows."""


@dataclass(frozen=True)
class Place:
    """The stamps of some messages as texts."""

    micros: Part
    millis: Part
    commit_lsn: Part
    lsn: Part
    xid: Part
    ordinal: Part
    snapshot: bool = False

    @classmethod
    def of_changes(cls, changes: TableChanges, rows: Ints | slice) -> Place:
        micros = changes.commit_micros[rows]
        return cls(
            _text(micros),
            _text(micros // 1000),
            _text(changes.commit_lsn[rows]),
            _text(changes.lsn[rows]),
            _text(changes.xid[rows]),
            _text(changes.ordinal[rows] + 1),
        )

    @classmethod
    def of_event(cls, stamp: Stamp) -> Place:
        return cls(
            str(stamp.commit_micros),
            str(stamp.commit_micros // 1000),
            str(stamp.position.commit_lsn),
            str(stamp.lsn),
            str(stamp.xid) if stamp.xid else "null",
            str(stamp.position.ordinal + 1),
        )

    @classmethod
    def of_copy(cls, lsn: int, micros: int) -> Place:
        """Copied rows have no transaction; their time is when they were written."""
        return cls(str(micros), str(micros // 1000), "", str(lsn), "null", "", snapshot=True)

    def source(self, options: DebeziumOptions, schema: str, table: str) -> list[Part]:
        """``"source":{…}``. Origins are not told."""
        named = {"version": _version(), "connector": "postgresql", "name": options.server}
        sequence: list[Part] = (
            ['"[null,\\"'] if self.snapshot else ['"[\\"', self.commit_lsn, '\\",\\"']
        )
        return [
            f'"source":{_members(named)},"ts_ms":',
            self.millis,
            f',"snapshot":"{_boolean(self.snapshot)}","db":{_json(options.database)},"sequence":',
            *sequence,
            self.lsn,
            '\\"]","ts_us":',
            self.micros,
            ',"ts_ns":',
            self.micros,
            f'000,"schema":{_json(schema)},"table":{_json(table)},"txId":',
            self.xid,
            ',"lsn":',
            self.lsn,
            ',"xmin":null,"origin":null,"origin_lsn":null}',
        ]

    def transaction(self, options: DebeziumOptions) -> list[Part]:
        """``,"transaction":…``; the numbers are the change's place, which a task can know."""
        if not options.transaction or self.snapshot or self.xid == "null":
            return [',"transaction":null']
        return [
            ',"transaction":{"id":"',
            self.xid,
            ":",
            self.commit_lsn,
            '","total_order":',
            self.ordinal,
            ',"data_collection_order":',
            self.ordinal,
            "}",
        ]

    def times(self) -> list[Part]:
        """``,"ts_ms":…`` and its finer fellows, of the envelope itself."""
        return [
            *(',"ts_ms":', self.millis, ',"ts_us":', self.micros),
            *(',"ts_ns":', self.micros, "000"),
        ]


def joined(parts: Sequence[Part], count: int) -> pa.Array:
    """The parts of each of ``count`` rows behind each other."""
    fewer: list[Part] = []
    for part in parts:
        if isinstance(part, str) and fewer and isinstance(fewer[-1], str):
            fewer[-1] += part
        else:
            fewer.append(part)
    if len(fewer) == 1 and isinstance(fewer[0], str):
        return repeat(fewer[0], count)
    return join(*fewer)


def _text(numbers: Ints) -> Part:
    if len(numbers) and (numbers[0] == numbers).all():
        return str(int(numbers[0]))
    return pa.array(np.ascontiguousarray(numbers)).cast(TEXT)


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _members(values: dict[str, str]) -> str:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))[:-1]


@cache
def _version() -> str:
    return version("penstock")
