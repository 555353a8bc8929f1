"""What several tasks hold of the same rows, joined on the driver. Pure.

Rows of one part are net rows, so they happen at the same time: all of them leave their old keys
before any takes its new one. Parts come one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.destination.families.staged_merge.receipt import Kind
from penstock.destination.families.staged_merge.task_writer import PARK
from penstock.destination.families.staged_merge.typed_columns import ColumnTyping, RowPlaces
from penstock.destination.families.target import Target
from penstock.transform.net_rows import (
    DELETE,
    INSERT,
    REKEY,
    UPDATE,
    Fold,
    lineages,
    previous,
    text_codes,
)

Ints = npt.NDArray[np.int64]
Ops = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class MergedRows:
    """What a member applies to one table: one row a lineage, or a row image and how many of it.

    First the table is emptied, if ``emptied``. Then every row but an INSERT leaves the key
    ``before``, and only after that every row but a DELETE comes to the key in ``columns``; what is
    ``unset`` stays what it was under the key before.
    Where ``kind`` is replayed, an UPDATE puts its row whether or not there is one, a DELETE removes
    what is there, and a row that is not known whole is parked: a PARK always, an UPDATE with unset
    columns if it finds no row.
    Where it is counted, there are only ``columns`` and ``count``: rows to add or, below zero, to
    remove.
    ``key_texts`` are the columns of the key as Postgres texts: parked keys are told by them.
    """

    target: Target
    kind: Kind
    emptied: bool
    columns: tuple[pa.Array, ...]
    op: Ops = field(default_factory=lambda: np.zeros(0, np.uint8))
    before: tuple[pa.Array, ...] = ()
    unset: tuple[Mask | None, ...] = ()
    key_texts: tuple[pa.Array, ...] = ()
    count: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def __len__(self) -> int:
        return max(len(self.op), len(self.count))

    @property
    def after(self) -> tuple[pa.Array, ...]:
        """The columns of the key to which rows come."""
        return tuple(self.columns[index] for index in self.target.key)

    @property
    def is_partial(self) -> Mask:
        """Which rows have unset columns."""
        found = np.zeros(len(self.op), bool)
        for mask in self.unset:
            if mask is not None:
                found |= mask
        return found

    @property
    def is_all_inserts(self) -> bool:
        """Whether nothing that is there is touched: the cheapest statement will do."""
        return bool((self.op == INSERT).all() and (self.count >= 0).all())

    @property
    def is_plain(self) -> bool:
        """Whether each row of a table without a key is to be added once."""
        return bool((self.count == 1).all())

    def has(self, op: int) -> bool:
        return bool((self.op == op).any())

    def parked(self, rows: Mask) -> list[tuple[str, ...]]:
        """The keys of these rows, as the pipeline is told them."""
        mask = pa.array(rows)
        texts = [column.filter(mask).to_pylist() for column in self.key_texts]
        return list(zip(*texts, strict=True))


def joined(target: Target, kind: Kind, parts: Sequence[pa.Table], *, emptied: bool) -> MergedRows:
    """The rows of all parts, which come in position order, in one."""
    # Not every part has masks and old keys; where they are missing they become null.
    rows = pa.concat_tables(parts, promote_options="default").combine_chunks()
    columns = [_column(rows, f"c{index}") for index in range(len(target.columns))]
    if kind == "changes":
        return MergedRows(target, "counted", emptied, tuple(columns), count=np.ones(len(rows), int))
    if kind == "counted":
        return _counted(target, rows, columns, emptied=emptied)
    op = _column(rows, "op").to_numpy()
    before = _before(target, rows, op, "b" if _is_typed(target, rows) else "k", "c")
    texts = [_column(rows, f"{'t' if _is_typed(target, rows) else 'c'}{i}") for i in target.key]
    masks = [
        pc.fill_null(_column(rows, f"u{index}"), False).to_numpy(zero_copy_only=False)
        if f"u{index}" in rows.column_names
        else None
        for index in range(len(columns))
    ]
    if len(parts) == 1 and kind == "keyed":
        # One task folded them already.
        return MergedRows(
            target, kind, emptied, tuple(columns), op, tuple(before), tuple(masks), tuple(texts)
        )
    old_texts = _before(target, rows, op, "k", "t" if _is_typed(target, rows) else "c")
    fold = _fold(target, kind, op, old_texts, texts, [part.num_rows for part in parts])
    picked, unset = [], []
    for column, mask in zip(columns, masks, strict=True):
        pick, missing = fold.last_sent(mask)
        picked.append(column.take(pa.array(pick)))
        unset.append(missing)
    first, last = pa.array(fold.first), pa.array(fold.last)
    merged = MergedRows(
        target,
        kind,
        emptied,
        tuple(picked),
        fold.op,
        tuple(column.take(first) for column in before),
        tuple(unset),
        tuple(text.take(last) for text in texts),
    )
    if kind == "replayed":
        parked = (op[fold.first] == PARK) & merged.is_partial & (fold.op != DELETE)
        merged.op[:] = np.where(parked, PARK, np.where(fold.op == DELETE, DELETE, UPDATE))
    return merged


def key_codes(target: Target, parts: Sequence[pa.Table]) -> tuple[Ops, Ints, Ints]:
    """Of all rows of all parts: the op, and numbers for the keys they come to and leave. Nothing
    but these columns is read.
    """
    names = [f"{kind}{index}" for kind in "tck" for index in target.key]
    typed = _is_typed(target, parts[0])
    wanted = {name for name in names if name[0] != ("c" if typed else "t")} | {"op"}
    keys = [part.select([n for n in part.column_names if n in wanted]) for part in parts]
    rows = pa.concat_tables(keys, promote_options="default").combine_chunks()
    new = "t" if typed else "c"
    op = _column(rows, "op").to_numpy()
    texts = [_column(rows, f"{new}{index}") for index in target.key]
    if not (op == REKEY).any():
        codes = text_codes(texts, target.qualified_name)
        return op, codes, codes
    return op, *_codes(target, texts, _before(target, rows, op, "k", new))


def _codes(
    target: Target, after: Sequence[pa.Array], before: Sequence[pa.Array]
) -> tuple[Ints, Ints]:
    both = [pa.concat_arrays([a, b]) for a, b in zip(after, before, strict=True)]
    codes = text_codes(both, target.qualified_name)
    return codes[: len(after[0])], codes[len(after[0]) :]


def _is_typed(target: Target, rows: pa.Table) -> bool:
    return f"t{target.key[0]}" in rows.column_names


def _before(target: Target, rows: pa.Table, op: Ops, old: str, new: str) -> list[pa.Array]:
    """The columns of the key before, which only rows that moved say apart."""
    after = [_column(rows, f"{new}{index}") for index in target.key]
    if not op.size or f"{old}{target.key[0]}" not in rows.column_names:
        return after
    moved = pa.array(op == REKEY)
    befores = [_column(rows, f"{old}{index}") for index in target.key]
    return [pc.if_else(moved, b, a) for b, a in zip(befores, after, strict=True)]


def _fold(
    target: Target,
    kind: Kind,
    op: Ops,
    before: Sequence[pa.Array],
    after: Sequence[pa.Array],
    sizes: Sequence[int],
) -> Fold:
    puts, takes = _codes(target, after, before)
    if kind == "replayed":
        return _last_of_keys(op, puts)
    time = np.repeat(np.arange(len(sizes)), sizes)
    return lineages(op, takes, puts, previous(op, takes, puts, time))


def _last_of_keys(op: Ops, key: Ints) -> Fold:
    """Each key for itself: the last row decides, with what earlier ones of the same row sent."""
    order = np.argsort(key, kind="stable")
    keys, ops = key[order], op[order]
    begins = np.ones(len(order), bool)
    begins[1:] = (keys[1:] != keys[:-1]) | (ops[1:] != UPDATE) | (ops[:-1] == DELETE)
    end = np.flatnonzero(np.append(keys[1:] != keys[:-1], True)) + 1
    start = np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))[end - 1]
    return Fold(order, start, end, ops[end - 1].copy())


def _counted(
    target: Target, rows: pa.Table, columns: list[pa.Array], *, emptied: bool
) -> MergedRows:
    count = _column(rows, "n").to_numpy()
    texts = [_column(rows, "t")] if "t" in rows.column_names else columns
    codes = text_codes(texts, target.qualified_name, nullable=True, count=len(count))
    distinct, pick, inverse = np.unique(codes, return_index=True, return_inverse=True)
    total = np.zeros(len(distinct), np.int64)
    np.add.at(total, inverse, count)
    kept = np.flatnonzero(total)
    taken = tuple(column.take(pa.array(pick[kept])) for column in columns)
    return MergedRows(target, "counted", emptied, taken, count=total[kept])


def no_rows(target: Target, typing: ColumnTyping | None, *, emptied: bool) -> MergedRows:
    """Of a table that was only emptied."""
    kind: Kind = "keyed" if target.key else "counted"
    types = [pa.string()] * len(target.columns) if typing is None else typing.schema(target)
    columns = tuple(pa.array([], kind) for kind in types)
    before, unset = tuple(columns[index] for index in target.key), (None,) * len(columns)
    texts = tuple(pa.array([], pa.string()) for _ in target.key)
    return MergedRows(target, kind, emptied, columns, before=before, unset=unset, key_texts=texts)


def removed(
    target: Target, keys: Sequence[tuple[str, ...]], typing: ColumnTyping | None
) -> MergedRows:
    """Rows that remove what stands under these keys, if there is something."""
    texts = tuple(pa.array(texts, pa.string()) for texts in zip(*keys, strict=True))
    before = texts
    types = [pa.string()] * len(target.columns)
    if typing is not None:
        types = typing.schema(target)
        where = RowPlaces(texts)
        before = tuple(
            typing.column(target, index, text, where)[0]
            for index, text in zip(target.key, texts, strict=True)
        )
    places = dict(zip(target.key, before, strict=True))
    columns = tuple(
        places[index] if index in places else pa.nulls(len(keys), kind)
        for index, kind in enumerate(types)
    )
    op = np.full(len(keys), DELETE, np.uint8)
    unset = (None,) * len(columns)
    return MergedRows(target, "replayed", False, columns, op, before, unset, texts)


def _column(rows: pa.Table, name: str) -> pa.Array:
    chunks = rows.column(name)
    return chunks.chunk(0) if chunks.num_chunks else pa.array([], chunks.type)
