"""Staged rows of one table in slices that can be joined one after the other. Pure.

Whatever concerns a key is in one slice. Rows that moved tie two keys together: these, and all rows
with one of their keys, are in the first slice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.destination.families.staged_merge.joined_rows import Ints, key_codes
from penstock.destination.families.staged_merge.receipt import Kind
from penstock.destination.families.target import Target
from penstock.transform.net_rows import REKEY


def sliced(
    target: Target, kind: Kind, parts: Sequence[pa.Table], most: int
) -> Iterator[Sequence[pa.Table]]:
    """The parts, again and again, each time with other rows: about ``most`` bytes of them."""
    count = -(-sum(part.nbytes for part in parts) // most)
    if count <= 1 or not (kind in ("keyed", "replayed") or _only_comes(kind, parts)):
        yield parts
        return
    ends = np.cumsum([part.num_rows for part in parts])
    slices = np.split(_slices(target, kind, parts, count, int(ends[-1])), ends[:-1])
    for number in range(count):
        picked = [
            part.take(pa.array(np.flatnonzero(slice_of == number)))
            for part, slice_of in zip(parts, slices, strict=True)
        ]
        if any(part.num_rows for part in picked):
            yield picked


def _only_comes(kind: Kind, parts: Sequence[pa.Table]) -> bool:
    """Whether rows without a key are only added: then it is all the same where equal ones are."""
    return kind == "changes" or all((part["n"].to_numpy() > 0).all() for part in parts)


def _slices(target: Target, kind: Kind, parts: Sequence[pa.Table], count: int, rows: int) -> Ints:
    if kind not in ("keyed", "replayed"):
        return np.arange(rows) * count // rows
    op, puts, takes = key_codes(target, parts)
    found: Ints = puts % count
    if kind == "keyed" and (op == REKEY).any():
        moved = np.unique(np.concatenate([puts[op == REKEY], takes[op == REKEY]]))
        found[np.isin(puts, moved)] = 0
    return found
