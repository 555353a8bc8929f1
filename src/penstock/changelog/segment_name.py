"""A segment's file name is its index entry: a folder listing alone tells what the log holds."""

from __future__ import annotations

import re
from typing import NamedTuple

from penstock.model.lsn import Frontier

_NAME = re.compile(
    # At least as many digits as these; a number that has outgrown them has no zeros before it.
    r"(\d{12}|[1-9]\d{12,})\.(\d{6}|[1-9]\d{6,})"
    r"\.([0-9a-f]{16})\.([0-9a-f]{16})\.([0-9a-f]{16})\.(\d+)\.([oc]s?)"
    r"\.([0-9a-f]{16})(?:\.z([1-9]\d*))?\.arrow",
    re.ASCII,
)


class SegmentName(NamedTuple):
    """What is known of a segment without opening it. Sorts in log order."""

    sequence: int
    epoch: int
    """Which writer made it; a higher one fences all lower ones."""
    after: int
    """Commit LSN of the last whole transaction before this segment."""
    last: int
    """Commit LSN of the last whole transaction up to this segment's end; ``after`` if none ends."""
    end_lsn: int
    """What may be confirmed once this segment is held."""
    rows: int
    is_open: bool
    """True if it ends inside a transaction."""
    checksum: int
    has_schema_changes: bool = False
    """True if it tells of schema changes, at which a pipeline ends a batch."""
    unpacked: int = 0
    """What its rows take in memory where the file is compressed; 0 where it is not."""

    @property
    def frontier(self) -> Frontier:
        return Frontier(self.last, self.end_lsn)

    @property
    def is_unfinished(self) -> bool:
        """True if all it holds is part of one transaction, which it does not end."""
        return self.is_open and self.last == self.after

    def __str__(self) -> str:
        return (
            f"{self.sequence:012d}.{self.epoch:06d}.{self.after:016x}.{self.last:016x}"
            f".{self.end_lsn:016x}.{self.rows}.{'o' if self.is_open else 'c'}"
            f"{'s' if self.has_schema_changes else ''}.{self.checksum:016x}"
            f"{f'.z{self.unpacked}' if self.unpacked else ''}.arrow"
        )

    @classmethod
    def parse(cls, name: str) -> SegmentName | None:
        """The parts of a segment's name; None for a file that is no segment."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        return cls(
            sequence=int(match[1]),
            epoch=int(match[2]),
            after=int(match[3], 16),
            last=int(match[4], 16),
            end_lsn=int(match[5], 16),
            rows=int(match[6]),
            is_open=match[7].startswith("o"),
            checksum=int(match[8], 16),
            has_schema_changes=match[7].endswith("s"),
            unpacked=int(match[9] or 0),
        )
