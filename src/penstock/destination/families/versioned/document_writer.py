"""What becomes of rows that a store cannot simply put: those that are not known whole.

The changes of a table come here in order, by one writer at a time. A change that leaves columns
unset takes them from the document that the changes before it left, and a row that moves to another
key from the one under its old id. Where there is none, and none that a later change deleted, the
row's key is parked: whoever replays changes over copied rows has it read again.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.destination.families.target import Target
from penstock.destination.families.versioned.documents import (
    DocumentStore,
    Mask,
    aligned,
    document_schema,
    is_before,
    key_rows,
    mask,
    tombstones,
    version_is_below,
)
from penstock.model.lsn import Position

Keys = list[tuple[str, ...]]
_FETCHED_AT_ONCE = 2000


class DocumentWriter:
    """Writes rows of the stream to a store. Used on executors.

    Changes of a table come in order, so one that is older than something that was found has been
    written before, and its row may be gone since. That is not so of the tables in ``replayed``:
    they hold rows that were copied later.
    """

    def __init__(self, store: DocumentStore, replayed: frozenset[int]) -> None:
        self._store = store
        self._replayed = replayed
        self._latest: dict[int, Position] = {}

    def put_rows(self, target: Target, rows: pa.Table) -> Keys:
        """Rows by key, with masks ``u…`` of columns that are to stay what they were, and where
        there are any, the key as ``k…``. Returns the keys of rows that nobody knows whole.
        """
        partial = _is_partial(rows)
        if not partial.any():
            self._store.put(target, _documents(target, rows))
            return []
        if not partial.all():
            self._store.put(target, _documents(target, _only(rows, ~partial)))
        parked: Keys = []
        for left in _pieces(_only(rows, partial)):
            found = self._found(target, _keys(target, left))
            is_open = version_is_below(found, left)
            parked += self._complete(target, _only(left, is_open), _only(found, is_open))
        return parked

    def move_rows(self, target: Target, rows: pa.Table) -> Keys:
        """Rows that come from the id ``from``, whose key is ``f…``, in whole or in part, no id
        twice; else as above.

        The new document is written before the old one goes: whoever does it again after a crash
        finds one or the other.
        """
        return [key for some in _pieces(rows) for key in self._move(target, some)]

    def _move(self, target: Target, rows: pa.Table) -> Keys:
        left = [rows[f"f{index}"].combine_chunks() for index in target.key]
        sources = key_rows(target, rows["from"].combine_chunks(), left)
        old = self._found(target, sources)
        new = self._found(target, _keys(target, rows))
        is_open = version_is_below(new, rows)
        parked = self._complete(target, _only(rows, is_open), _only(old, is_open))
        gone = tombstones(target, sources, *_positions(rows))
        self._store.put(target, gone)
        return parked

    def _found(self, target: Target, keys: pa.Table) -> pa.Table:
        found = self._store.fetch(target, keys)
        if found.num_rows and target.oid not in self._replayed:
            latest = _latest(found)
            self._latest[target.oid] = max(latest, self._latest.get(target.oid, latest))
        return aligned(keys["id"].combine_chunks(), found)

    def _complete(self, target: Target, rows: pa.Table, found: pa.Table) -> Keys:
        """Put rows with what is unset taken from what was found; the keys of the others."""
        if not rows.num_rows:
            return []
        is_live = mask(pc.fill_null(pc.invert(found["deleted"]), False))
        is_there = (is_live & version_is_below(found, rows)) | ~_is_partial(rows)
        if is_there.any():
            made, base = _only(rows, is_there), _only(found, is_there)
            self._store.put(target, _completed(target, made, base))
        if is_there.all():
            return []
        lost = _only(rows, ~is_there)
        lost = _only(lost, ~self._is_passed(target, lost))
        key = [lost[f"k{index}"].to_pylist() for index in target.key]
        return list(zip(*key, strict=True))

    def _is_passed(self, target: Target, rows: pa.Table) -> Mask:
        is_older = is_before(rows, self._latest.get(target.oid, Position(0, 0)))
        return is_older | self._store.is_passed(target, _documents(target, rows))


def _pieces(rows: pa.Table) -> Iterator[pa.Table]:
    """Some at a time: each has values that are large, and all of them come back."""
    for start in range(0, rows.num_rows, _FETCHED_AT_ONCE):
        yield rows.slice(start, _FETCHED_AT_ONCE)


def _completed(target: Target, rows: pa.Table, found: pa.Table) -> pa.Table:
    made = _documents(target, rows)
    for index in range(len(target.columns)):
        if f"u{index}" in rows.column_names:
            place = made.schema.get_field_index(f"c{index}")
            taken = pc.if_else(rows[f"u{index}"], found[f"c{index}"], made.column(place))
            made = made.set_column(place, made.schema.field(place), taken)
    return made


def _is_partial(rows: pa.Table) -> Mask:
    found = np.zeros(rows.num_rows, bool)
    for name in rows.column_names:
        if name.startswith("u"):
            found |= mask(rows[name])
    return found


def _documents(target: Target, rows: pa.Table) -> pa.Table:
    return rows.select(document_schema(target).names)


def _keys(target: Target, rows: pa.Table) -> pa.Table:
    return rows.select(["id", *(f"c{index}" for index in target.key)])


def _positions(rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    return rows["commit_lsn"].to_numpy(), rows["ordinal"].to_numpy()


def _latest(rows: pa.Table) -> Position:
    lsn, ordinal = _positions(rows)
    last = lsn.max()
    return Position(int(last), int(ordinal[lsn == last].max()))


def _only(rows: pa.Table, wanted: Mask) -> pa.Table:
    return rows if wanted.all() else rows.filter(pa.array(wanted))
