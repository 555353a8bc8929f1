"""What a message of a topic says, whatever its format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from penstock.model.errors import PenstockError
from penstock.model.lsn import parse_lsn
from penstock.model.table_name import TableName
from penstock.source.kafka.offsets import SourcePosition
from penstock.source.kafka.topic_tables import ToldTable

RowOp = Literal["insert", "update", "delete", "read"]
Values = Mapping[str, bytes | None]
"""Texts as Postgres writes them, by column."""
Headers = Mapping[str, bytes]

READ_ORDINAL = 2**32
"""The ordinal of rows that were copied."""


# Four exabytes of WAL. Whatever stood behind such a position would pass for sent before.
_LAST_LSN = 2**62


class Malformed(PenstockError):
    """A message that is none of its format."""


@dataclass(frozen=True)
class RowEvent:
    """A change of one row, or a row that was there.

    ``key`` is what the row is found by after the change, or before a delete; ``old_key`` what it
    was found by before, where that may be another. ``unset`` are columns that keep their values.
    """

    op: RowOp
    table: ToldTable
    key: Values
    new: Values | None
    unset: frozenset[str] = frozenset()
    old_key: Values | None = None
    position: SourcePosition | None = None
    lane: str = ""
    commit_micros: int = 0


@dataclass(frozen=True)
class ToldTruncate:
    tables: tuple[ToldTable, ...]
    position: SourcePosition | None = None
    lane: str = ""
    commit_micros: int = 0


Event = RowEvent | ToldTruncate

FindTable = Callable[[TableName], "ToldTable | None"]
"""The table of that name; None where it is not followed. Raises Malformed for one that nobody has
told of.
"""


class MessageFormat(ABC):
    """Reads the messages of one format. Raises Malformed where a message is none of it."""

    @abstractmethod
    def read(
        self, key: bytes | None, value: bytes | None, headers: Headers, find: FindTable
    ) -> Event | None:
        """What a message says; None where that is nothing for tables that are followed."""


def header_position(headers: Headers) -> SourcePosition | None:
    """Where the change of a message that Penstock wrote stands. Raises ValueError."""
    text = headers.get("penstock.position")
    if text is None:
        return None
    lsn, ordinal, *part = text.decode().split("+")
    found = SourcePosition(parse_lsn(lsn), int(ordinal), int(part[0]) if part else 0)
    if found.commit_lsn > _LAST_LSN or min(found) < 0:
        raise ValueError(f"no database writes to the position {text.decode()[:60]}")
    return found


def header_lane(headers: Headers) -> str:
    """The writer's lane: its number, how many there are, and what they are by."""
    return " ".join(_lane_words(headers)[:2])


def header_source(headers: Headers) -> str:
    """What names the source that positions are of; writers of older versions do not say it."""
    return " ".join(_lane_words(headers)[2:])


def _lane_words(headers: Headers) -> list[str]:
    return headers.get("penstock.lane", b"").decode(errors="replace").split(" ")
