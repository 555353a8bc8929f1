"""Many changes of a table as the few rows of their net effect, for destinations that merge.

With a key, a row's changes form a *lineage*: from the key under which it stood before (or none,
if it was inserted here) to the key under which it stands after (or none, if it was deleted). Only
the ends of a lineage matter to a destination, and for each column the last value that was sent.
Without a key, a table is a multiset: equal rows are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.decode.changes import TableChanges
from penstock.decode.row_values import RowValues
from penstock.model.errors import DecodeError
from penstock.pgoutput import tuples

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Ops = npt.NDArray[np.uint8]

INSERT = ord("I")
"""A row that was not there before. All its columns are known."""
UPDATE = ord("U")
"""A row that was there under the same key."""
REKEY = ord("K")
"""A row that was there under another key."""
DELETE = ord("D")
"""A row that is there no longer."""


@dataclass(frozen=True)
class Fold:
    """Lineages: the changes in lineage order, and where in it each lineage begins and ends."""

    order: Ints
    start: Ints
    end: Ints
    op: Ops

    @cached_property
    def first(self) -> Ints:
        """The first change of each lineage."""
        return self.order[self.start]

    @cached_property
    def last(self) -> Ints:
        """The last change of each lineage."""
        return self.order[self.end - 1]

    def last_sent(self, unset: Mask | None) -> tuple[Ints, Mask | None]:
        """Which change gives each lineage a column's value, and where none does; ``unset`` says
        which changes came without it.
        """
        if unset is None:
            return self.last, None
        # The last place, in lineage order, that has a value; it counts from the lineage's start on.
        places = np.where(unset[self.order], -1, np.arange(len(self.order)))
        latest = np.maximum.accumulate(places)[self.end - 1]
        missing = latest < self.start
        pick = np.where(missing, self.last, self.order[latest])
        missing &= self.op != DELETE
        return pick, missing if missing.any() else None


class NetRows:
    """The net effect of some changes of one table, one row a lineage, in order of last change."""

    def __init__(
        self,
        changes: TableChanges,
        key: Sequence[int],
        fold: Fold | None,
        owners: Ints | None,
    ) -> None:
        self._changes = changes
        self._owners = owners
        self._values = RowValues(changes)
        self._key = key
        self._fold = fold

    def __len__(self) -> int:
        return len(self._changes) if self._fold is None else len(self._fold.op)

    @property
    def is_all_inserts(self) -> bool:
        return self._fold is None

    @cached_property
    def op(self) -> Ops:
        """INSERT, UPDATE, REKEY or DELETE for each row."""
        if self._fold is None:
            return np.full(len(self._changes), INSERT, np.uint8)
        return self._fold.op

    def bounds(self, count: int) -> list[int]:
        """Where the rows of each of ``count`` owners begin, and where the last one's end."""
        if self._owners is None:
            return [0, len(self)]
        owners = self._owners if self._fold is None else self._owners[self._fold.last]
        places: list[int] = np.searchsorted(owners, np.arange(count + 1)).tolist()
        return places

    @property
    def commit_lsn(self) -> Ints:
        """Of the last change of each row; with ``ordinal`` its position."""
        return (
            self._changes.commit_lsn
            if self._fold is None
            else self._changes.commit_lsn[self._fold.last]
        )

    @property
    def ordinal(self) -> Ints:
        return (
            self._changes.ordinal if self._fold is None else self._changes.ordinal[self._fold.last]
        )

    def text(self, column: int) -> pa.Array:
        """The column after all changes as Postgres text; null where it is null or not known.

        Of a deleted row only the key counts: the one under which it stood before.
        """
        values = self._values.text(column)
        if self._fold is None:
            return values
        if column in self._key and (self._fold.op == DELETE).any():
            old = self._old_key(column)
            both = pa.concat_arrays([values, old])
            is_delete = self._fold.op == DELETE
            return both.take(
                pa.array(np.where(is_delete, len(values) + np.arange(len(old)), self._fold.last))
            )
        pick, _ = self._pick(column)
        return values.take(pa.array(pick))

    def plain_lines(self, places: Sequence[int]) -> pa.Array | None:
        """These columns as lines of COPY; None where that is not to be had without the columns."""
        if self._fold is not None or [*places] != [*range(len(self._changes.table.columns))]:
            return None
        return self._changes.new_lines()

    def unset(self, column: int) -> Mask | None:
        """Where the column is to stay what it was before; None where that is nowhere."""
        if self._fold is None:
            return None
        return self._pick(column)[1]

    def old_key(self, column: int) -> pa.Array:
        """A key column as it was before, for the rows whose op is REKEY; null for the others."""
        return pa.compute.if_else(pa.array(self.op == REKEY), self._old_key(column), None)

    def _old_key(self, column: int) -> pa.Array:
        """The key column under which each row stood before the first of its changes."""
        assert self._fold is not None  # noqa: S101 (inserts have no old key, and nobody asks)
        return old_key_text(self._changes, self._values, column).take(pa.array(self._fold.first))

    def _pick(self, column: int) -> tuple[Ints, Mask | None]:
        """Which change gives each row the column's value, and where none does."""
        assert self._fold is not None  # noqa: S101
        return self._fold.last_sent(self._values.unset(column))


def net_rows(changes: TableChanges, key: Sequence[int], owners: Ints | None = None) -> NetRows:
    """Fold the changes of a table whose rows are found by the columns ``key``.

    ``owners`` is for several tables side by side: to which of them each change belongs, counted in
    their order. The net rows stand in that order, too.
    """
    op = changes.op
    if (op == tuples.INSERT).all():
        return NetRows(changes, key, None, owners)
    values = RowValues(changes)
    old_images = changes.old_rows[op[changes.old_rows] == tuples.UPDATE]
    count = len(changes)
    codes = text_codes(
        [
            pa.concat_arrays(
                [
                    values.text(column),
                    old_key_text(changes, values, column).take(pa.array(old_images)),
                ]
            )
            for column in key
        ],
        changes.table.qualified_name,
    )
    if owners is not None:
        codes = codes * (int(owners.max()) + 1) + np.concatenate([owners, owners[old_images]])
    after, before = codes[:count], codes[:count].copy()
    before[old_images] = codes[count:]
    earlier = (
        previous(op, before, after) if (before != after).any() else _previous_same_key(op, after)
    )
    return NetRows(changes, key, lineages(op, before, after, earlier), owners)


def old_key_text(changes: TableChanges, values: RowValues, column: int) -> pa.Array:
    """A key column before each change: what an old image says, else it did not change."""
    after = values.text(column)
    rows = changes.old_rows
    if not len(rows):
        return after
    source = np.arange(len(changes))
    source[rows] = len(changes) + np.arange(len(rows))
    return pa.concat_arrays([after, changes.old_text(column)]).take(pa.array(source))


def _previous_same_key(op: Ops, key: Ints) -> Ints:
    """For each change the one before it in its lineage, else -1, where no key ever changes."""
    order = np.argsort(key, kind="stable")
    continues = np.zeros(len(order), bool)
    continues[1:] = (key[order][1:] == key[order][:-1]) & (op[order][1:] != tuples.INSERT)
    before = np.empty(len(order), np.int64)
    before[1:] = order[:-1]
    previous = np.empty(len(order), np.int64)
    previous[order] = np.where(continues, before, -1)
    return previous


def previous(op: Ops, before: Ints, after: Ints, time: Ints | None = None) -> Ints:
    """For each change the one that left a row under the key that this one finds; else -1.

    Each change takes a row from the key before and puts one to the key after. Sorted by key and
    time, what a change takes was put there by the entry right before it. Changes of the same
    ``time`` all take their rows before any of them puts one.
    """
    changes = np.arange(len(op))
    time = changes if time is None else time
    takes, puts = changes[op != tuples.INSERT], changes[op != tuples.DELETE]
    key = np.concatenate([before[takes], after[puts]])
    change = np.concatenate([takes, puts])
    is_put = np.repeat([False, True], [len(takes), len(puts)])
    order = np.lexsort((is_put, time[change], key))
    key, change, is_put = key[order], change[order], is_put[order]
    found = np.zeros(len(key), bool)
    found[1:] = ~is_put[1:] & is_put[:-1] & (key[1:] == key[:-1])
    at = np.flatnonzero(found)
    found = np.full(len(op), -1, np.int64)
    found[change[at]] = change[at - 1]
    return found


def lineages(op: Ops, before: Ints, after: Ints, previous: Ints) -> Fold:
    """Put changes together whose ``previous`` ones are known, as positions in the same arrays."""
    first = np.where(previous < 0, np.arange(len(op)), previous)
    while True:
        further = first[first]
        if (further == first).all():
            break
        first = further
    order = np.argsort(first, kind="stable")
    roots = first[order]
    start = np.flatnonzero(np.concatenate([[True], roots[1:] != roots[:-1]]))
    end = np.concatenate([start[1:], [len(order)]])
    root, last = order[start], order[end - 1]
    was_there, is_there = op[root] != tuples.INSERT, op[last] != tuples.DELETE
    net = np.where(before[root] == after[last], UPDATE, REKEY)
    net = np.where(was_there, net, INSERT)
    net = np.where(is_there, net, DELETE).astype(np.uint8)
    kept = np.flatnonzero(was_there | is_there)
    kept = kept[np.argsort(last[kept])]
    return Fold(order, start[kept], end[kept], net[kept])


class CountedRows:
    """The net effect on a table without a key: distinct rows, and how many of each."""

    def __init__(self, changes: TableChanges, pick: Ints | None, count: Ints) -> None:
        self._changes = changes
        self._values = RowValues(changes)
        self._pick = pick
        self.count = count
        """How many of each row to add; below zero: to remove."""

    def __len__(self) -> int:
        return len(self.count)

    @property
    def commit_lsn(self) -> Ints:
        return self._changes.commit_lsn[self._change]

    @property
    def ordinal(self) -> Ints:
        return self._changes.ordinal[self._change]

    @cached_property
    def _change(self) -> Ints:
        """The change that each row was taken from."""
        if self._pick is None:
            return np.arange(len(self._changes))
        changes = np.concatenate([np.arange(len(self._changes)), self._changes.old_rows])
        return changes[self._pick]

    def text(self, column: int) -> pa.Array:
        values = self._values.text(column)
        if self._pick is None:
            return values
        return pa.concat_arrays([values, self._changes.old_text(column)]).take(pa.array(self._pick))


def counted_rows(changes: TableChanges) -> CountedRows:
    """Count the rows of a table without a key: an update is one row less and one more.

    Raises DecodeError where a row that went is not known whole: it could not be found.
    """
    op, count = changes.op, len(changes)
    if (op == tuples.INSERT).all():
        return CountedRows(changes, None, np.ones(count, np.int64))
    known = np.zeros(count, bool)
    known[changes.old_rows] = changes.old_is_full
    if not known[op != tuples.INSERT].all():
        raise DecodeError(
            f"table {changes.table.qualified_name} has no key, and an update or delete came "
            "without the whole old row",
            remedy="ALTER TABLE … REPLICA IDENTITY FULL at the source, for a partitioned table and "
            "for each of its partitions, makes Postgres send it; a primary key is better",
        )
    values = RowValues(changes)
    # One entry for each change and one for each old image; a delete's own entry counts nothing.
    weight = np.concatenate(
        [(op != tuples.DELETE).astype(np.int64), -np.ones(len(changes.old_rows), np.int64)]
    )
    columns = range(len(changes.table.columns))
    codes = text_codes(
        [pa.concat_arrays([values.text(c), changes.old_text(c)]) for c in columns],
        changes.table.qualified_name,
        nullable=True,
        count=len(weight),
    )
    distinct, pick, inverse = np.unique(codes, return_index=True, return_inverse=True)
    total = np.zeros(len(distinct), np.int64)
    np.add.at(total, inverse, weight)
    kept = np.flatnonzero(total)
    return CountedRows(changes, pick[kept], total[kept])


def text_codes(
    columns: Sequence[pa.Array], table: str, *, nullable: bool = False, count: int = 0
) -> Ints:
    """A number for each row: equal where all columns are equal, as texts."""
    codes = np.zeros(len(columns[0]) if columns else count, np.int64)
    for column in columns:
        if column.null_count and not nullable:
            raise DecodeError(
                f"table {table}: a change came with a null in a column of the key",
                remedy="the key's columns must be NOT NULL at the source",
            )
        encoded = column.dictionary_encode(null_encoding="encode")
        number = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        codes = codes * len(encoded.dictionary) + number
        if len(columns) > 1:
            # Dense again, so that the next product cannot overflow.
            _, codes = np.unique(codes, return_inverse=True)
    return codes
