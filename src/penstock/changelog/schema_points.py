"""Where in the log the source's schema changed.

Transactions with schema changes are no part of ordinary batches: what comes before one and what
comes after it is laid out differently. Segments that tell of changes say so in their names; only
those are opened here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.changelog.changelog import ChangeLog, Listing
from penstock.changelog.segment import Segment
from penstock.changelog.segment_name import SegmentName
from penstock.model.lsn import Position
from penstock.model.schema_message import SCHEMA_CHANGE, SchemaMessage
from penstock.pgoutput.tuples import Ints

# Rows, and messages of others.
_DELIVERED_OPS = [ord(op) for op in "IUDTM"]


@dataclass(frozen=True)
class SchemaPoint:
    """One schema change and where it stands."""

    position: Position
    commit_micros: int
    message: SchemaMessage


@dataclass(frozen=True)
class _Told:
    """What one segment tells: changes, and at which ordinals their transactions have rows in it."""

    points: tuple[SchemaPoint, ...]
    rows: Mapping[int, Ints]


class SchemaPoints:
    """The schema changes of one log. Remembers what it has read."""

    def __init__(self, log: ChangeLog) -> None:
        self._log = log
        self._known: dict[SegmentName, _Told] = {}

    def next_after(self, listing: Listing, commit_lsn: int) -> int | None:
        """The commit LSN of the first transaction beyond ``commit_lsn`` that has some.

        Also of one that is not complete yet.
        """
        found = self._points(listing)
        at = bisect_right(found, commit_lsn, key=lambda point: point.position.commit_lsn)
        return found[at].position.commit_lsn if at < len(found) else None

    def touching(
        self, listing: Listing, tables: Collection[int], after: int, upto: int
    ) -> frozenset[int]:
        """Which of the tables are changed by transactions with after < commit LSN < upto."""
        return frozenset(
            oid
            for point in self._points(listing)
            if after < point.position.commit_lsn < upto
            for oid, _ in point.message.tables
            if oid in tables
        )

    def of(self, listing: Listing, commit_lsn: int) -> list[SchemaPoint]:
        """Those of one transaction, in order."""
        return [p for p in self._points(listing) if p.position.commit_lsn == commit_lsn]

    def has_rows(self, segments: Sequence[str], commit_lsn: int, first: int, end: int) -> bool:
        """Whether the transaction, which lies in these segments, may have rows with these ordinals.
        Known for sure where all of it lies in one.
        """
        if len(segments) != 1:
            return True
        told = next((told for name, told in self._known.items() if str(name) == segments[0]), None)
        if told is None or commit_lsn not in told.rows:
            return True
        ordinals = told.rows[commit_lsn]
        return bool(((ordinals >= first) & (ordinals < end)).any())

    def _points(self, listing: Listing) -> list[SchemaPoint]:
        segments = [name for name in listing.segments if name.has_schema_changes]
        for gone in self._known.keys() - set(segments):
            del self._known[gone]
        for name in segments:
            if name not in self._known:
                self._known[name] = _read(self._log.read(str(name)))
        # A transaction that one writer left open was sent again, whole, to the next.
        unique = {point.position: point for name in segments for point in self._known[name].points}
        return [unique[position] for position in sorted(unique)]


def _read(segment: Segment) -> _Told:
    rows = segment.rows
    ops = rows.column("op").to_numpy()
    found = []
    for row in np.flatnonzero(ops == SCHEMA_CHANGE).tolist():
        position = Position(
            rows.column("commit_lsn")[row].as_py(), rows.column("ordinal")[row].as_py()
        )
        micros = rows.column("commit_ts").view("int64")[row].as_py()
        body = rows.column("payload")[row].as_py()[1:]
        found.append(SchemaPoint(position, micros, SchemaMessage.parse(body)))
    commits = rows.column("commit_lsn").to_numpy()
    ordinals = rows.column("ordinal").to_numpy()
    changes = np.isin(ops, _DELIVERED_OPS)
    return _Told(
        tuple(found),
        {
            lsn: ordinals[changes & (commits == lsn)]
            for lsn in {point.position.commit_lsn for point in found}
        },
    )
