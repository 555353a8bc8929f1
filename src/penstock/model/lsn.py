"""Log sequence numbers and the two ways Penstock orders by them.

An LSN is a plain ``int`` inside Penstock and ``XXXXXXXX/XXXXXXXX`` text at every edge.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_LSN_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def parse_lsn(text: str) -> int:
    """The number behind ``16/B374D848``; raises ValueError for anything else."""
    match = _LSN_TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not an LSN; expected something like 16/B374D848")
    return (int(match[1], 16) << 32) | int(match[2], 16)


def format_lsn(lsn: int) -> str:
    """The text that Postgres shows for an LSN."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


class Position(NamedTuple):
    """Where one change stands: its transaction's commit LSN (from Begin) and its ordinal there.

    Total order over a slot's whole life; no two changes share one.
    """

    commit_lsn: int
    ordinal: int

    def __str__(self) -> str:
        return f"{format_lsn(self.commit_lsn)}+{self.ordinal}"


class Frontier(NamedTuple):
    """How far somebody has come, always at the end of a transaction.

    Every transaction with a commit LSN up to ``commit_lsn`` is held. ``end_lsn`` is what may be
    confirmed to the slot: the end of that commit record, or further where the WAL after it held
    nothing for us (an idle advance).

    Ordered by ``end_lsn``: of the WAL before it nothing is lacking, and of what comes after nothing
    is held. Where the last commit before it lies not everybody knows; the point of a snapshot is
    the end of no commit, and stands as (LSN - 1, LSN).
    """

    commit_lsn: int
    end_lsn: int

    def __lt__(self, other: tuple[int, ...]) -> bool:
        return self[::-1] < other[::-1]

    def __le__(self, other: tuple[int, ...]) -> bool:
        return self[::-1] <= other[::-1]

    def __gt__(self, other: tuple[int, ...]) -> bool:
        return self[::-1] > other[::-1]

    def __ge__(self, other: tuple[int, ...]) -> bool:
        return self[::-1] >= other[::-1]

    def __str__(self) -> str:
        return f"{format_lsn(self.commit_lsn)} (WAL up to {format_lsn(self.end_lsn)})"

    def to_json(self) -> dict[str, str]:
        return {"commit_lsn": format_lsn(self.commit_lsn), "end_lsn": format_lsn(self.end_lsn)}

    @classmethod
    def before(cls, lsn: int) -> Frontier:
        """Everything that was committed before ``lsn``, which is the end of some WAL record.

        A commit record begins at a multiple of 8, as the end of a record does: so none begins at
        the byte before.
        """
        return cls(lsn - 1, lsn)

    @classmethod
    def from_json(cls, value: dict[str, str]) -> Frontier:
        return cls(parse_lsn(value["commit_lsn"]), parse_lsn(value["end_lsn"]))


NOTHING = Frontier(0, 0)
