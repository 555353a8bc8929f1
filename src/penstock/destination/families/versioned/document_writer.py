"""What becomes of documents that a store cannot simply put: those that are not known whole.

The changes of a table come here in order, by one writer at a time; copied rows come beside them, by
others. Nobody waits for anybody: who finds that a document was written meanwhile looks again.

A change that leaves columns unset takes them from the document that it finds. Where there is none,
the row was not copied yet, and the document lacks them until it is. A row that moves to another key
takes along what it lacks, and leaves a sign under ``>`` and its first id that says where it is now.
Signs are tombstones, so readers see none.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.destination.families.target import Target
from penstock.destination.families.versioned.documents import (
    HEAD,
    DocumentStore,
    Mask,
    aligned,
    lack_text,
    mask,
    tombstones,
    version_is_below,
)


class DocumentWriter:
    """Writes rows of the stream and copied rows to a store. Used on executors."""

    def __init__(self, store: DocumentStore) -> None:
        self._store = store

    def put_rows(self, target: Target, rows: pa.Table) -> None:
        """Rows by key, with masks ``u…`` of columns that are to stay what they were."""
        partial = _is_partial(rows)
        whole = rows.filter(pa.array(~partial))
        if whole.num_rows:
            self._store.put(target, _documents(target, whole))
        left = rows.filter(pa.array(partial))
        while left.num_rows:
            found = aligned(_ids(left), self._store.fetch(target, _ids(left)))
            left = left.filter(pa.array(version_is_below(found, left)))
            if not left.num_rows:
                break
            found = aligned(_ids(left), found.filter(pc.is_valid(found["id"])))
            made = _completed(target, left, found, _ids(left))
            stored = self._store.replace(target, made, _tokens(found))
            left = left.filter(pa.array(~stored))

    def move_rows(self, target: Target, rows: pa.Table) -> None:
        """Rows that come from the id ``from``, in whole or in part, no id twice.

        The new document is written before the old one goes: whoever does it again after a crash
        finds one or the other.
        """
        left = rows
        while left.num_rows:
            ids, sources = _ids(left), left["from"].combine_chunks()
            old = aligned(sources, self._store.fetch(target, sources))
            new = aligned(ids, self._store.fetch(target, ids))
            made = _completed(target, left, old, sources)
            # One that was written before a crash may become whole now, if its row was copied since.
            is_open = version_is_below(new, left) | (
                mask(pc.is_valid(new["lacks"]))
                & ~version_is_below(left, new)
                & _is_there(old, left)
            )
            self._leave_signs(target, made.filter(pa.array(is_open)))
            done = ~is_open
            done[is_open] = self._store.replace(
                target, made.filter(pa.array(is_open)), _tokens(new).filter(pa.array(is_open))
            )
            goes = done & version_is_below(old, left)
            gone = left.filter(pa.array(goes))
            done[goes] = self._store.replace(
                target,
                tombstones(_documents(target, gone), gone["from"].combine_chunks()),
                _tokens(old).filter(pa.array(goes)),
            )
            left = left.filter(pa.array(~done))

    def put_copied(self, target: Target, documents: pa.Table) -> None:
        """Copied rows. One that is older than what stands there may still have what that lacks."""
        stored = self._store.put(target, documents)
        if not stored.all() and self._store.lacking(target):
            for row in documents.filter(pa.array(~stored)).to_pylist():
                self._fill(target, documents.schema, row)

    def _leave_signs(self, target: Target, made: pa.Table) -> None:
        lacking = made.filter(pc.is_valid(made["lacks"]))
        if not lacking.num_rows:
            return
        lacks = [json.loads(text) for text in lacking["lacks"].to_pylist()]
        ids = pa.array([f">{lack['of']}" for lack in lacks])
        texts = [
            json.dumps({"to": to, "left": lack["left"]})
            for to, lack in zip(lacking["id"].to_pylist(), lacks, strict=True)
        ]
        self._store.put(target, tombstones(lacking, ids, texts))

    def _fill(self, target: Target, schema: pa.Schema, copied: dict[str, Any]) -> None:
        """Rare: give what a copied row has to the document that lacks it."""
        version = [copied["commit_lsn"], copied["ordinal"]]
        while True:
            at = self._find(target, copied["id"])
            sign = self._find(target, f">{copied['id']}")
            if sign is not None and version < (where := json.loads(sign["lacks"]))["left"]:
                at = self._find(target, where["to"])
            if at is None or at["lacks"] is None or at["deleted"]:
                return
            lacks = json.loads(at["lacks"])
            if lacks["of"] != copied["id"] or version >= lacks.get("left", [np.inf]):
                return
            for name in lacks["columns"]:
                column = f"c{target.columns.index(name)}"
                at[column] = copied[column]
            filled = pa.Table.from_pylist([{**at, "lacks": None}], schema=schema)
            if self._store.replace(target, filled, pa.array([at["token"]])).all():
                return

    def _find(self, target: Target, key: str) -> dict[str, Any] | None:
        found: list[dict[str, Any]] = self._store.fetch(target, pa.array([key])).to_pylist()
        return found[0] if found else None


def _completed(target: Target, rows: pa.Table, found: pa.Table, sources: pa.Array) -> pa.Table:
    """Rows with what is unset taken from the documents that were found; what those do not have
    either is lacking.
    """
    is_there = _is_there(found, rows)
    made = _documents(target, rows)
    lacks: dict[int, list[str]] = {}
    before = _lacks(found, is_there)
    for index, name in enumerate(target.columns):
        unset = _unset(rows, index)
        if not unset.any():
            continue
        place = made.schema.get_field_index(f"c{index}")
        taken = pc.if_else(pa.array(unset & is_there), found[f"c{index}"], made.column(place))
        made = made.set_column(place, made.schema.field(place), taken)
        for row in np.flatnonzero(unset).tolist():
            # Few: rows that were not copied when they changed.
            if not is_there[row] or name in before.get(row, {}).get("columns", ()):
                lacks.setdefault(row, []).append(name)
    if not lacks:
        return made
    ids = sources.to_pylist()
    texts: list[str | None] = [None] * rows.num_rows
    moves = "from" in rows.column_names
    for row, names in lacks.items():
        earlier = before.get(row, {})
        more = {"left": earlier["left"]} if "left" in earlier else {}
        if moves and not more:
            position = [rows["commit_lsn"][row].as_py(), rows["ordinal"][row].as_py()]
            more = {"left": position}
        texts[row] = lack_text(names, earlier.get("of", ids[row]), **more)
    place = made.schema.get_field_index("lacks")
    return made.set_column(place, made.schema.field(place), pa.array(texts, pa.string()))


def _is_there(found: pa.Table, rows: pa.Table) -> Mask:
    """Where the row stood that a change found."""
    is_live = mask(pc.fill_null(pc.invert(found["deleted"]), False))
    return is_live & version_is_below(found, rows)


def _lacks(found: pa.Table, is_there: Mask) -> dict[int, dict[str, Any]]:
    lacking = is_there & mask(pc.is_valid(found["lacks"]))
    rows = np.flatnonzero(lacking).tolist()
    return {row: json.loads(found["lacks"][row].as_py()) for row in rows}


def _is_partial(rows: pa.Table) -> Mask:
    found = np.zeros(rows.num_rows, bool)
    for name in rows.column_names:
        if name.startswith("u"):
            found |= mask(rows[name])
    return found


def _unset(rows: pa.Table, index: int) -> Mask:
    name = f"u{index}"
    return mask(rows[name]) if name in rows.column_names else np.zeros(rows.num_rows, bool)


def _documents(target: Target, rows: pa.Table) -> pa.Table:
    return rows.select([*HEAD.names, *(f"c{index}" for index in range(len(target.columns)))])


def _ids(rows: pa.Table) -> pa.Array:
    return rows["id"].combine_chunks()


def _tokens(found: pa.Table) -> pa.Array:
    return found["token"].combine_chunks()
