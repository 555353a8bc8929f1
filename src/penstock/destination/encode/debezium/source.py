"""Where and when a change was made, in the blocks that Debezium has for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version

from penstock.decode.changes import Stamp, TableChanges
from penstock.decode.row_values import Ints
from penstock.destination.encode.debezium.options import DebeziumOptions
from penstock.destination.encode.json_values import Part, number_texts


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
            number_texts(micros),
            number_texts(micros // 1000),
            number_texts(changes.commit_lsn[rows]),
            number_texts(changes.lsn[rows]),
            number_texts(changes.xid[rows]),
            number_texts(changes.ordinal[rows] + 1),
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


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _members(values: dict[str, str]) -> str:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))[:-1]


@cache
def _version() -> str:
    return version("penstock")
