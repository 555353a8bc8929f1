"""In which steps the changes of a table are written.

A row that moves to another key, and of which columns are unset, takes them from the document under
its old id. So what came before has to be written, and what comes after has to wait. That holds for
rows that have to do with each other through such moves; others need not wait, and of those that
have nothing to do with each other the first steps are taken together, then the second ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.changes import TableChanges
from penstock.decode.row_values import RowValues
from penstock.destination.families.target import Target
from penstock.destination.families.versioned.documents import document_ids, mask
from penstock.pgoutput import tuples
from penstock.transform.key_events import moves
from penstock.transform.net_rows import old_key_text

Ints = npt.NDArray[np.int64]
Kind = Literal["put", "move"]


class DocumentStep(NamedTuple):
    """Changes, by their places, that can be written at once: folded by key, or each a move."""

    kind: Kind
    places: Ints


def write_steps(
    target: Target, places: Sequence[int], changes: TableChanges
) -> Iterator[DocumentStep]:
    """The steps, in their order."""
    values = RowValues(changes)
    unset = np.zeros(len(changes), bool)
    for place in places:
        found = values.unset(place)
        unset |= False if found is None else found
    everything = np.arange(len(changes))
    if not unset.any():
        yield DocumentStep("put", everything)
        return
    key = [places[index] for index in target.key]
    news = [values.text(column) for column in key]
    olds = [old_key_text(changes, values, column) for column in key]
    moved = moves(changes, olds, news)
    odd = moved & unset
    if not odd.any():
        yield DocumentStep("put", everything)
        return
    old, new = document_ids(olds), document_ids(news)
    # Under which id each change finds its row.
    ids = pc.if_else(pa.array((changes.op == tuples.DELETE) | moved), old, new)
    groups = _groups(old, new, moved, odd)
    tied = mask(pc.is_in(ids, pa.array(groups, pa.string())))
    if not tied.all():
        yield DocumentStep("put", np.flatnonzero(~tied))
    yield from _rounds(np.flatnonzero(tied), ids, odd, groups)


def _groups(
    old: pa.Array, new: pa.Array, moved: npt.NDArray[np.bool_], odd: npt.NDArray[np.bool_]
) -> dict[str, str]:
    """For each id that rows move from or to its group, of groups in which a move is odd."""
    parents: dict[str, str] = {}

    def root(key: str) -> str:
        parents.setdefault(key, key)
        while parents[key] != key:
            parents[key] = key = parents[parents[key]]
        return key

    at = pa.array(np.flatnonzero(moved))
    pairs = list(zip(old.take(at).to_pylist(), new.take(at).to_pylist(), strict=True))
    for one, other in pairs:
        parents[root(one)] = root(other)
    is_odd = odd[moved].tolist()
    wanted = {root(one) for (one, _), found in zip(pairs, is_odd, strict=True) if found}
    return {key: root(key) for key in parents if root(key) in wanted}


def _rounds(
    places: Ints, ids: pa.Array, odd: npt.NDArray[np.bool_], groups: dict[str, str]
) -> Iterator[DocumentStep]:
    last: dict[str, tuple[int, Kind]] = {}
    steps: dict[tuple[int, Kind], list[int]] = {}
    for place, key in zip(places.tolist(), ids.take(pa.array(places)).to_pylist(), strict=True):
        kind: Kind = "move" if odd[place] else "put"
        number, before = last.get(groups[key], (0, "put"))
        if kind == "move" or before == "move":
            number += 1
        last[groups[key]] = number, kind
        steps.setdefault((number, kind), []).append(place)
    for (_, kind), found in sorted(steps.items()):
        yield DocumentStep(kind, np.array(found, np.int64))
