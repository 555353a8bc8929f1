"""How much the next batch may take: a backlog drains in few large batches. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class BatchSize:
    """A reader's limit of bytes: ``factor`` times ``max_bytes``, at most ``max_growth`` times.

    A batch has costs that do not depend on its size, and merges changes of the same rows, so large
    ones catch up faster. They grow step by step: a destination that was only slow for a moment is
    not handed a batch that takes it minutes.
    """

    max_bytes: int
    max_growth: int
    factor: int = 1

    @property
    def allowed(self) -> int:
        return self.max_bytes * self.factor

    def next(self, waiting: int) -> BatchSize:
        """The limit of a batch that is taken while ``waiting`` bytes lie beyond the reader."""
        if waiting <= self.max_bytes:
            return replace(self, factor=1)
        return replace(self, factor=min(self.factor * 2, self.max_growth))
