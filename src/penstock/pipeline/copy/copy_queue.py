"""Which chunks go into the next task. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from penstock.source.copy_plan import Chunk

MOST_CHUNKS = 50
"""How many small chunks one task takes: each costs a few round trips, none should wait long."""


@dataclass(frozen=True)
class CopyUnit:
    """Chunks for one task, about as many bytes as a chunk should have."""

    chunks: tuple[Chunk, ...]

    @property
    def tables(self) -> frozenset[int]:
        return frozenset(chunk.table for chunk in self.chunks)


class CopyQueue:
    """One queue for the chunks of all tables.

    Tables take turns, so that small ones do not wait for a large one and none for all the others.
    """

    def __init__(self, unit_bytes: int) -> None:
        self._unit_bytes = unit_bytes
        self._waiting: dict[int, deque[Chunk]] = {}
        self._under_way: dict[int, int] = {}

    def add(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            self._waiting.setdefault(chunk.table, deque()).append(chunk)

    def take(self, held_back: Collection[int] = ()) -> CopyUnit | None:
        """The next unit; None if there is none. Nothing of the tables that are ``held_back``."""
        found: list[Chunk] = []
        size = 0
        tables = [table for table in self._waiting if table not in held_back]
        while tables and size < self._unit_bytes and len(found) < MOST_CHUNKS:
            table = tables.pop(0)
            chunks = self._waiting[table]
            # Together with others only if it fits: a full chunk is a unit by itself.
            if found and size + chunks[0].bytes > self._unit_bytes:
                continue
            found.append(chunk := chunks.popleft())
            size += chunk.bytes
            del self._waiting[table]
            if chunks:
                # Behind the others, for its next turn.
                self._waiting[table] = chunks
        for chunk in found:
            self._under_way[chunk.table] = self._under_way.get(chunk.table, 0) + 1
        return CopyUnit(tuple(found)) if found else None

    def done(self, unit: CopyUnit) -> None:
        """The unit is no longer under way, whatever became of it."""
        for chunk in unit.chunks:
            self._under_way[chunk.table] -= 1
            if not self._under_way[chunk.table]:
                del self._under_way[chunk.table]

    def again(self, chunks: Sequence[Chunk]) -> None:
        """Put chunks back that could not be copied; they come first."""
        for chunk in reversed(chunks):
            self._waiting.setdefault(chunk.table, deque()).appendleft(chunk)

    def drop(self, tables: Collection[int]) -> None:
        """Forget what waits of these tables."""
        for table in tables:
            self._waiting.pop(table, None)

    def is_under_way(self, table: int) -> bool:
        return table in self._under_way

    @property
    def tables(self) -> frozenset[int]:
        """Those that still have something to be copied."""
        return frozenset(self._waiting) | frozenset(self._under_way)
