"""How far the demo's pipeline is: what the destination holds, how fast, and how far behind."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.demo.target_reader import Invariant, TargetLook
from penstock.model.lsn import Frontier
from penstock.pipeline.copy.copy_progress import CopyView

# Rates are taken over this long, so that statistics of a second do not make them jump.
_RATE_SECONDS = 4.0


@dataclass(frozen=True)
class TableProgress:
    """One table of the destination: what it is at, its rows, and how many are written a second."""

    name: str
    state: str
    rows: int
    rows_per_second: float


@dataclass(frozen=True)
class DemoProgress:
    """The pipeline at one moment, as the destination tells it.

    All tables share one position, because a transaction is delivered as a whole, and so they
    share one lag: WAL that the destination does not hold yet, and how long the oldest of it has
    been there.
    """

    tables: tuple[TableProgress, ...]
    frontier: Frontier
    lag_bytes: int
    lag_seconds: float
    invariant: Invariant

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)

    @property
    def rows_per_second(self) -> float:
        return sum(table.rows_per_second for table in self.tables)


class ProgressMeter:
    """Turns what is seen from time to time into rates and lags."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, Mapping[str, int]]] = deque()
        # When the source was first seen at a position, for positions not delivered yet.
        self._source: deque[tuple[float, int]] = deque()

    def measure(
        self,
        now: float,
        source_lsn: int,
        look: TargetLook,
        invariant: Invariant,
        copies: Mapping[str, CopyView],
    ) -> DemoProgress:
        """``now`` is any clock that only goes forward, in seconds."""
        held = look.frontier.end_lsn
        if not self._source or source_lsn > self._source[-1][1]:
            self._source.append((now, source_lsn))
        while self._source and self._source[0][1] <= held:
            self._source.popleft()
        self._seen.append((now, look.written))
        while len(self._seen) > 2 and now - self._seen[1][0] >= _RATE_SECONDS:
            self._seen.popleft()
        since, before = self._seen[0]
        tables = tuple(
            TableProgress(
                table,
                state_text(copies.get(table)),
                rows,
                # A table that came meanwhile had nothing written before.
                (look.written[table] - before.get(table, 0)) / (now - since)
                if now > since
                else 0.0,
            )
            for table, rows in look.rows.items()
        )
        return DemoProgress(
            tables,
            look.frontier,
            # Before the first delivery there is no position to be behind of.
            max(0, source_lsn - held) if held else 0,
            now - self._source[0][0] if self._source and held else 0.0,
            invariant,
        )


def state_text(copy: CopyView | None) -> str:
    """What a table is at, in a word or two."""
    match copy.phase if copy else "init":
        case "init":
            return "waiting"
        case "data_sync":
            return f"copying {100 * copy.bytes_done // max(1, copy.bytes)} %" if copy else ""
        case "ready":
            return "following"
        case "errored":
            return "errored"
        case _:
            return "catching up"
