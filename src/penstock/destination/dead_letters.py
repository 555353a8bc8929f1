"""Rows that a destination refused and keeps, as those see them who look after them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class DeadLetter:
    """One refused row. ``id`` grows; ``values`` are by column, as text."""

    id: int
    table: str
    op: str
    commit_lsn: str
    ordinal: int
    sqlstate: str
    cause: str
    refused_at: str
    values: dict[str, str | None]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class DeadLetterBox(Protocol):
    """What a destination offers that keeps refused rows. Each call connects by itself.

    All raise DestinationError where the destination does not answer.
    """

    def list(
        self, *, table: str | None = None, after: int = 0, most: int = 100
    ) -> Sequence[DeadLetter]:
        """Those with an id above ``after``, in the order of their ids."""

    def get(self, letter: int) -> DeadLetter | None: ...

    def discard(self, letters: Sequence[int]) -> Sequence[int]:
        """Remove them; the ids of those that were there."""
