"""Two databases compared, table by table, each side as it was at one moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from psycopg import errors, sql

from penstock.model.table_name import TableName
from penstock.verify.checksums import (
    ComparedRelation,
    Sums,
    checksum_query,
    chunk_digits,
    find_relations,
)
from penstock.verify.differences import (
    Unmatched,
    keyed_difference,
    keyless_differences,
    read_rows,
    read_texts,
    read_values,
)
from penstock.verify.report import RowDifference, TableComparison
from penstock.verify.snapshot import ComparedSnapshot, Connect, Connection, SnapshotSessions
from penstock.verify.table_pair import TablePair

T = TypeVar("T")

DEFAULT_PARALLEL = 2
DEFAULT_SHOWN = 10

# Of a table with more differing rows than this, a part is looked at: the rest is known by its sums.
_LOOKED_AT = 200_000

Observe = Callable[[int, int], None]
"""Called from any thread with the pieces that are done, and all of them."""


def ignore(_done: int, _all: int) -> None:
    """For those who do not watch."""


def compare_databases(
    source: Connect,
    target: Connect,
    pairs: Sequence[TablePair],
    *,
    parallel: int = DEFAULT_PARALLEL,
    shown: int = DEFAULT_SHOWN,
) -> list[TableComparison]:
    """Compare the tables as they are now. Right only while nobody writes to either side."""
    with (
        ComparedSnapshot(source, _plain_errors) as first,
        ComparedSnapshot(target, _plain_errors) as second,
    ):
        return compare_snapshots(first, second, pairs, parallel=parallel, shown=shown)


def _plain_errors(_action: str) -> nullcontext[None]:
    return nullcontext()


def compare_snapshots(
    source: ComparedSnapshot,
    target: ComparedSnapshot,
    pairs: Sequence[TablePair],
    *,
    parallel: int = DEFAULT_PARALLEL,
    shown: int = DEFAULT_SHOWN,
    observe: Observe = ignore,
) -> list[TableComparison]:
    """Compare the tables of two snapshots, with ``parallel`` sessions on each side.

    ``shown`` is how many differing rows are named of each table.
    """
    at_source = _Side("source", source, [pair.source for pair in pairs], parallel)
    at_target = _Side("destination", target, [pair.target for pair in pairs], parallel)
    with at_source.sessions, at_target.sessions:
        scans = [_start(pair, at_source, at_target) for pair in pairs]
        _Progress([scan for scan in scans if isinstance(scan, _TableScan)], observe)
        return [_finish(scan, shown) if isinstance(scan, _TableScan) else scan for scan in scans]


class _Side:
    def __init__(
        self, name: str, snapshot: ComparedSnapshot, tables: Sequence[TableName], parallel: int
    ) -> None:
        self.name = name
        self.guard = snapshot.guard
        with self.guard("looking for the tables to compare"), snapshot.asked() as conn:
            self.relations = find_relations(conn, tables)
        self.sessions = SnapshotSessions(snapshot, parallel)


@dataclass(frozen=True)
class _HalfScan:
    """One side of a table: its pieces, and what they add up to once these are done."""

    side: _Side
    relation: ComparedRelation
    sums: Sums
    pieces: list[Future[None]]


@dataclass(frozen=True)
class _TableScan:
    pair: TablePair
    digits: int
    source: _HalfScan
    target: _HalfScan

    @property
    def halves(self) -> tuple[_HalfScan, _HalfScan]:
        return self.source, self.target


def _start(pair: TablePair, source: _Side, target: _Side) -> _TableScan | TableComparison:
    """Begin to read a table on both sides; the result at once where there is nothing to read."""
    for side, name in ((source, pair.source), (target, pair.target)):
        if name not in side.relations:
            return _not_compared(pair, f"the {side.name} has no table {name}")
    held, there = source.relations[pair.source], target.relations[pair.target]
    digits = chunk_digits(held, there)
    return _TableScan(
        pair, digits, _scan(source, held, pair, digits), _scan(target, there, pair, digits)
    )


def _scan(side: _Side, relation: ComparedRelation, pair: TablePair, digits: int) -> _HalfScan:
    sums, lock = Sums(), threading.Lock()

    def read(piece: sql.Composed, conn: Connection) -> None:
        rows = conn.execute(checksum_query(relation, pair.columns, digits, piece)).fetchall()
        with lock:
            sums.add(rows)

    pieces = [side.sessions.submit(partial(read, piece)) for piece in relation.pieces()]
    return _HalfScan(side, relation, sums, pieces)


class _Progress:
    """Tells ``observe`` how many pieces of all tables are done."""

    def __init__(self, scans: Sequence[_TableScan], observe: Observe) -> None:
        pieces = [piece for scan in scans for half in scan.halves for piece in half.pieces]
        self._observe = observe
        self._done, self._all = 0, len(pieces)
        self._lock = threading.Lock()
        for piece in pieces:
            piece.add_done_callback(self._one_more)

    def _one_more(self, _piece: Future[None]) -> None:
        with self._lock:
            self._done += 1
            self._observe(self._done, self._all)


def _finish(scan: _TableScan, shown: int) -> TableComparison:
    """Wait for the checksums of a table; where they differ, look for the rows."""
    pair = scan.pair
    for half in scan.halves:
        with half.side.guard(f"reading {half.relation.name}"):
            try:
                for piece in half.pieces:
                    piece.result()
            except (
                errors.UndefinedColumn,
                errors.UndefinedTable,  # dropped meanwhile
                errors.InsufficientPrivilege,
            ) as error:
                said = error.diag.message_primary
                return _not_compared(pair, f"the {half.side.name} refused: {said}")
    result = TableComparison(
        str(pair.source), str(pair.target), scan.source.sums.rows, scan.target.sums.rows
    )
    chunks = scan.source.sums.differing(scan.target.sums)
    if not chunks:
        return result
    looked_at = _some(chunks, scan)
    unmatched = Unmatched.between(
        *_both(
            scan,
            lambda conn, relation: read_rows(conn, relation, pair, scan.digits, looked_at),
        )
    )
    return replace(
        result,
        differing=unmatched.count(pair),
        counted_all=len(looked_at) == len(chunks),
        differences=tuple(_name(scan, unmatched, shown)),
    )


def _some(chunks: Sequence[str], scan: _TableScan) -> list[str]:
    """As many of the differing chunks as there is patience for; at least one."""
    taken: list[str] = []
    rows = 0
    for chunk in chunks:
        rows += scan.source.sums.rows_of(chunk) + scan.target.sums.rows_of(chunk)
        if taken and rows > _LOOKED_AT:
            break
        taken.append(chunk)
    return taken


def _name(scan: _TableScan, unmatched: Unmatched, shown: int) -> list[RowDifference]:
    pair = scan.pair
    if pair.key:
        keys = unmatched.keys[:shown]
        source, target = _both(scan, lambda conn, relation: read_values(conn, relation, pair, keys))
        return [keyed_difference(pair, k, source.get(k, []), target.get(k, [])) for k in keys]
    some = keyless_differences(unmatched, shown)
    md5s = [md5 for _, md5 in some]
    held, there = _both(scan, lambda conn, relation: read_texts(conn, relation, pair, md5s))
    values = {**held, **there}
    # One that was truncated meanwhile has none of them any more; it counts as not compared.
    return [replace(difference, row=values.get(md5, "")) for difference, md5 in some]


def _both(scan: _TableScan, read: Callable[[Connection, ComparedRelation], T]) -> tuple[T, T]:
    """Read the same from both sides, at the same time."""
    futures = [
        half.side.sessions.submit(partial(_read, read, half.relation)) for half in scan.halves
    ]
    results = []
    for half, future in zip(scan.halves, futures, strict=True):
        with half.side.guard(f"reading differing rows of {half.relation.name}"):
            results.append(future.result())
    return results[0], results[1]


def _read(
    read: Callable[[Connection, ComparedRelation], T], relation: ComparedRelation, conn: Connection
) -> T:
    return read(conn, relation)


def _not_compared(pair: TablePair, reason: str) -> TableComparison:
    return TableComparison(str(pair.source), str(pair.target), not_compared=reason)
