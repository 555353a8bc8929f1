"""The vocabulary of decoded changes; what decodes them is table_changes.py.

Contracts and options name these types, and commands that decode nothing load those: so Arrow and
NumPy, most of a second, are loaded when somebody asks for what needs them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.lazy import attributes
from penstock.model.lsn import Position
from penstock.model.table_schema import TableSchema

if TYPE_CHECKING:
    from penstock.decode.table_changes import (
        TableChanges,
        decode_changes,
        side_by_side,
        take_rows,
    )

__all__ = [
    "ChangeSet",
    "MessageEvent",
    "Stamp",
    "TableChanges",
    "TruncateEvent",
    "decode_changes",
    "side_by_side",
    "take_rows",
]


_PLACE = "penstock.decode.table_changes"
__getattr__ = attributes(
    __name__,
    dict.fromkeys(("TableChanges", "decode_changes", "side_by_side", "take_rows"), _PLACE),
)


@dataclass(frozen=True)
class Stamp:
    """When and by whom a change was made."""

    position: Position
    lsn: int
    xid: int
    commit_micros: int
    origin: str | None


@dataclass(frozen=True)
class TruncateEvent:
    """One TRUNCATE, of all its tables at once."""

    stamp: Stamp
    tables: tuple[TableSchema, ...]
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True)
class MessageEvent:
    """One pg_logical_emit_message."""

    stamp: Stamp
    transactional: bool
    prefix: str
    content: bytes


@dataclass(frozen=True)
class ChangeSet:
    """The changes of a run of whole or partial transactions: what a task writer gets."""

    tables: tuple[TableChanges, ...]
    truncates: tuple[TruncateEvent, ...]
    messages: tuple[MessageEvent, ...]

    def __len__(self) -> int:
        return sum(map(len, self.tables)) + len(self.truncates) + len(self.messages)
