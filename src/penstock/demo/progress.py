"""How far the demo's pipeline is: what was delivered, how fast, and how far behind."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.destination.files import read_manifest, table_folder
from penstock.lsn import NOTHING, Frontier
from penstock.pipeline.apply_batch import Delivered

# Rates are taken over this long, so that batches of a second do not make them jump.
_RATE_SECONDS = 4.0


@dataclass(frozen=True)
class TableProgress:
    """One table's part of what was delivered. ``position`` is that of its last change."""

    name: str
    rows: int
    rows_per_second: float
    position: str


@dataclass(frozen=True)
class Progress:
    """The pipeline at one moment.

    All tables share one position, because a transaction is delivered as a whole, and so they
    share one lag: WAL that the destination does not hold yet, and how long the oldest of it has
    been there.
    """

    tables: tuple[TableProgress, ...]
    frontier: Frontier
    lag_bytes: int
    lag_seconds: float

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)

    @property
    def rows_per_second(self) -> float:
        return sum(table.rows_per_second for table in self.tables)


@dataclass(frozen=True)
class DeliveredSoFar:
    """Rows and last positions by table, and the frontier that goes with them."""

    rows: dict[str, int]
    positions: dict[str, str]
    frontier: Frontier


class Deliveries:
    """Counts what the destination `files` commits. Called by the pipeline's thread, read by ours.

    Every commit writes one manifest, and the pipeline reports every commit before the next one:
    reading the newest manifest each time sees each of them once.
    """

    def __init__(self, path: Path, pipeline: str, tables: Sequence[str]) -> None:
        self._path = path
        self._pipeline = pipeline
        self._table_of = {table_folder("public", table): table for table in tables}
        self._lock = threading.Lock()
        self._rows: Counter[str] = Counter()
        self._positions: dict[str, str] = {}
        self._frontier = NOTHING

    def __call__(self, delivered: Delivered) -> None:
        manifest = read_manifest(self._path, self._pipeline)
        with self._lock:
            for file in manifest.files if manifest else ():
                table = self._table_of.get(file.final.split("/", 1)[0])
                if table is not None:
                    self._rows[table] += file.rows
                    self._positions[table] = file.last
            self._frontier = delivered.frontier

    def so_far(self) -> DeliveredSoFar:
        with self._lock:
            return DeliveredSoFar(dict(self._rows), dict(self._positions), self._frontier)


class ProgressMeter:
    """Turns what is seen from time to time into rates and lags."""

    def __init__(self, tables: Sequence[str]) -> None:
        self._tables = tables
        self._seen: deque[tuple[float, dict[str, int]]] = deque()
        # When the source was first seen at a position, for positions not delivered yet.
        self._source: deque[tuple[float, int]] = deque()

    def measure(self, now: float, source_lsn: int, so_far: DeliveredSoFar) -> Progress:
        """``now`` is any clock that only goes forward, in seconds."""
        held = so_far.frontier.end_lsn
        if not self._source or source_lsn > self._source[-1][1]:
            self._source.append((now, source_lsn))
        while self._source and self._source[0][1] <= held:
            self._source.popleft()
        self._seen.append((now, so_far.rows))
        while len(self._seen) > 2 and now - self._seen[1][0] >= _RATE_SECONDS:
            self._seen.popleft()
        since, before = self._seen[0]
        tables = tuple(
            TableProgress(
                table,
                so_far.rows.get(table, 0),
                (so_far.rows.get(table, 0) - before.get(table, 0)) / (now - since)
                if now > since
                else 0.0,
                so_far.positions.get(table, ""),
            )
            for table in self._tables
        )
        return Progress(
            tables,
            so_far.frontier,
            # Before the first delivery there is no position to be behind of.
            max(0, source_lsn - held) if held else 0,
            now - self._source[0][0] if self._source and held else 0.0,
        )
