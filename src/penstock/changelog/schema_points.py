"""Where in the log the source's schema changed.

Transactions with schema changes are no part of ordinary batches: what comes before one and what
comes after it is laid out differently. Segments that tell of changes say so in their names; only
those are opened here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from penstock.changelog.changelog import ChangeLog, Listing
from penstock.changelog.segment import Segment
from penstock.changelog.segment_name import SegmentName
from penstock.lsn import Position
from penstock.pgoutput.messages import LogicalMessage, parse_message
from penstock.schema_message import PREFIX, SchemaMessage


@dataclass(frozen=True)
class SchemaPoint:
    """One schema change and where it stands."""

    position: Position
    commit_micros: int
    message: SchemaMessage


class SchemaPoints:
    """The schema changes of one log. Remembers what it has read."""

    def __init__(self, log: ChangeLog) -> None:
        self._log = log
        self._known: dict[SegmentName, tuple[SchemaPoint, ...]] = {}

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

    def _points(self, listing: Listing) -> list[SchemaPoint]:
        segments = [name for name in listing.segments if name.has_schema_changes]
        for gone in self._known.keys() - set(segments):
            del self._known[gone]
        for name in segments:
            if name not in self._known:
                self._known[name] = _read(self._log.read(str(name)))
        # A transaction that one writer left open was sent again, whole, to the next.
        unique = {point.position: point for name in segments for point in self._known[name]}
        return [unique[position] for position in sorted(unique)]


def _read(segment: Segment) -> tuple[SchemaPoint, ...]:
    rows = segment.rows
    found = []
    for row in np.flatnonzero(rows.column("op").to_numpy() == ord("M")).tolist():
        message = parse_message(rows.column("payload")[row].as_py())
        if isinstance(message, LogicalMessage) and message.prefix == PREFIX:
            position = Position(
                rows.column("commit_lsn")[row].as_py(), rows.column("ordinal")[row].as_py()
            )
            micros = rows.column("commit_ts").view("int64")[row].as_py()
            found.append(SchemaPoint(position, micros, SchemaMessage.parse(message.content)))
    return tuple(found)
