"""How much the next batch may take: a backlog drains in few large batches. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

# Of a reader's limit: what the first batch of a backlog takes.
_FIRST = 0.25


@dataclass(frozen=True)
class BatchSize:
    """A reader's limit of bytes. In a backlog batches take a quarter of ``max_bytes``, then twice
    as much each time, at most ``max_growth`` times ``max_bytes``; else all that waits.

    A batch has costs that do not depend on its size, and merges changes of the same rows, so large
    ones catch up faster. They grow step by step: the first is committed soon, while tasks write the
    next, and a destination that was only slow for a moment is not handed a batch that takes it
    minutes.
    """

    max_bytes: int
    max_growth: int
    factor: float = 0.0
    """Times ``max_bytes``; 0 where there is no backlog."""

    @property
    def allowed(self) -> int:
        return int(self.max_bytes * (self.factor or 1))

    def next(self, waiting: int) -> BatchSize:
        """The limit of a batch that is taken while ``waiting`` bytes lie beyond the reader."""
        if waiting <= self.max_bytes * _FIRST:
            return replace(self, factor=0.0)
        return replace(self, factor=min(max(_FIRST, self.factor * 2), self.max_growth))
