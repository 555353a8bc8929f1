"""How far copies are, for people. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from penstock.store import CopyProgress, Store


@dataclass(frozen=True)
class CopyView:
    """One table's copy. ``bytes`` are as the source's disk has them, so they are estimates."""

    table: str
    phase: str
    chunks_done: int
    chunks: int
    rows: int
    bytes_done: int
    bytes: int
    seconds: float

    @property
    def bytes_per_second(self) -> float | None:
        return self.bytes_done / self.seconds if self.seconds > 0 and self.bytes_done else None

    @property
    def remaining_seconds(self) -> float | None:
        """None while nothing is known to go by."""
        rate = self.bytes_per_second
        return None if rate is None else max(0, self.bytes - self.bytes_done) / rate

    def to_json(self) -> dict[str, Any]:
        return {
            "phase": self.phase,
            "chunks_done": self.chunks_done,
            "chunks": self.chunks,
            "rows": self.rows,
            "bytes_done": self.bytes_done,
            "bytes": self.bytes,
            "bytes_per_second": self.bytes_per_second,
            "remaining_seconds": self.remaining_seconds,
        }


def copy_view(table: str, phase: str, copy: CopyProgress, now: float) -> CopyView:
    return CopyView(
        table,
        phase,
        len(copy.done),
        len(copy.plan.chunks),
        copy.rows_done,
        copy.planned_bytes_done,
        copy.plan.bytes,
        max(0.0, now - copy.started_at.timestamp()),
    )


def copy_views(store: Store) -> list[CopyView]:
    """How far the copy of each table is, by what the store was last asked for."""
    now, states = time.time(), store.get_table_states()
    return [
        copy_view(schema.qualified_name, states[oid].phase, copy, now)
        for oid, copy in store.get_copies().items()
        if oid in states and (schema := store.get_table_schema(oid)) is not None
    ]


def under_way(views: Iterable[CopyView]) -> list[CopyView]:
    """Those whose rows are being copied; the largest first."""
    found = [view for view in views if view.phase == "data_sync"]
    return sorted(found, key=lambda view: (-view.bytes, view.table))
