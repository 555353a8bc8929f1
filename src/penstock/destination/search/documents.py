"""The documents of tables, as executors write and read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from penstock.decode.row_values import READ_ORDINAL
from penstock.destination.families.target import Target
from penstock.destination.families.versioned.documents import (
    DocumentStore,
    Mask,
    aligned,
    document_schema,
    is_before,
    mask,
    version_is_below,
)
from penstock.destination.search.bulk import BulkOutcome, BulkSender, GenerationClosed
from penstock.destination.search.client import SearchClient, part
from penstock.destination.search.dead_letters import DeadLetters
from penstock.destination.search.document_lines import (
    LAST_ORDINAL,
    delete_lines,
    documents_of,
    index_lines,
    row_versions,
    versions,
)
from penstock.destination.search.exact_json import write_exactly
from penstock.destination.search.failures import failure
from penstock.destination.search.generations import Generation, Generations
from penstock.destination.search.names import META, field_name
from penstock.destination.search.scan import scan
from penstock.destination.search.values import field_values
from penstock.failpoints import failpoint
from penstock.model.errors import TableRefused
from penstock.model.lsn import Position
from penstock.model.table_schema import PgType

_Result = TypeVar("_Result")
# What comes back may be large: columns are unset because they are.
_FETCHED_AT_ONCE = 200
_NEWER = "external"
_OR_EQUAL = "external_gte"


class SearchDocuments(DocumentStore):
    """``at`` are the generations that the driver knows. Whoever ``follows`` goes on in the one that
    came after it in the stream; a copy's chunks do not: they belong to one generation.
    """

    def __init__(
        self,
        client: SearchClient,
        generations: Generations,
        letters: DeadLetters,
        at: dict[int, Generation],
        *,
        follows: bool = True,
    ) -> None:
        self._client = client
        self._generations = generations
        self._letters = letters
        self._at = dict(at)
        self._follows = follows

    def values(self, text: pa.Array, pg_type: PgType) -> pa.Array:
        return field_values(text, pg_type, flat_json=self._client.options.json_as == "flat")

    def put(self, target: Target, documents: pa.Table) -> None:
        self._in_generation(target, lambda at: self._put(at, target, documents))

    def fetch(self, target: Target, keys: pa.Table) -> pa.Table:
        ids = keys["id"].combine_chunks()
        return self._in_generation(target, lambda at: self._found(at, target, ids))

    def is_passed(self, target: Target, documents: pa.Table) -> Mask:
        """A delete at the documents' own versions loses against a later one, and changes nothing
        else: there is no row to delete. A generation knows nothing of what came before it.

        Late changes of a large transaction share a version: there a delete at the version below
        loses against all of them. One of them has made the row that is missing, so another one has
        deleted it since.
        """
        return self._in_generation(target, lambda at: self._passed(at, documents))

    def forget_before(self, target: Target, position: Position) -> None:
        """A generation that readers see is exchanged for an empty one. One that they do not see may
        hold rows that were copied later: there, older ones are removed.
        """
        self._in_generation(target, lambda at: self._forget(at, target, position))

    # -- generations -----------------------------------------------------------------------------

    def _in_generation(self, target: Target, write: Callable[[Generation], _Result]) -> _Result:
        while True:
            at = self._at.get(target.oid)
            if at is None:
                raise _gone(target)
            try:
                return write(at)
            except GenerationClosed:
                after = self._generations.follow(at) if self._follows else None
                if after is None or after.index == at.index:
                    raise _gone(target) from None
                self._at[target.oid] = after

    def _forget(self, at: Generation, target: Target, position: Position) -> None:
        if at.floor >= position:
            return
        current = self._generations.follow(at)
        if current is None or current.index != at.index:
            raise GenerationClosed(at.index)
        if not current.is_shadow:
            made = self._generations.empty_like(current, position)
            self._at[target.oid] = self._generations.open(made, reads=True, closes=current)
            failpoint("search.emptied")
            self._generations.clean(self._at[target.oid])
            return
        # The floor says that this is done, whoever comes next.
        self._remove_older(current, position)
        self._at[target.oid] = self._generations.raise_floor(current, position)

    def _remove_older(self, at: Generation, position: Position) -> None:
        """Not by the server's own delete by query, which may never come to its end."""
        older = {"range": {f"{META}.lsn": {"lte": position.commit_lsn}}}
        for hits in scan(self._client, at.index, older):
            ids = [hit["_id"] for hit in hits if _position(hit) < position]
            if ids:
                lsn = np.full(len(ids), position.commit_lsn, np.int64)
                version = versions(lsn, np.full(len(ids), position.ordinal, np.int64))
                self._send(at, delete_lines(pa.array(ids, pa.string()), version, _OR_EQUAL))

    # -- writes ----------------------------------------------------------------------------------

    def _passed(self, at: Generation, documents: pa.Table) -> Mask:
        ids, version = documents["id"].combine_chunks(), row_versions(documents)
        version -= _share_versions(documents["ordinal"].to_numpy())
        outcome = self._send(at, delete_lines(ids, version, _OR_EQUAL))
        found: Mask = (outcome.status == 409) | is_before(documents, at.floor)
        return found

    def _send(self, at: Generation, lines: pa.Array) -> BulkOutcome:
        outcome = BulkSender(self._client, at.writers).send(lines)
        self.resent += outcome.resent
        failpoint("search.sent")
        return outcome

    def _put(self, at: Generation, target: Target, documents: pa.Table) -> None:
        rows = _from(documents, at.floor)
        if not rows.num_rows:
            return
        is_gone = mask(rows["deleted"])
        lines, order = _lines(target, rows, is_gone, _NEWER)
        outcome = self._send(at, lines)
        ordinal = rows["ordinal"].to_numpy()[order]
        # Here others of the same transaction have the same version.
        ties = (outcome.status == 409) & _share_versions(ordinal)
        if ties.any():
            self._settle(at, target, rows.take(pa.array(order[ties])))
        if refused := outcome.refused():
            self._refuse(at, target, rows.take(pa.array(order[refused])), outcome, refused)

    def _settle(self, at: Generation, target: Target, rows: pa.Table) -> None:
        """Rows of large transactions whose versions say nothing: compare positions. Where a row was
        deleted, the order in which a table's changes come decides.
        """
        ids = rows["id"].combine_chunks()
        there = aligned(ids, self._found(at, target, ids))
        rows = rows.filter(pa.array(version_is_below(there, rows)))
        if rows.num_rows:
            lines, _ = _lines(target, rows, mask(rows["deleted"]), _OR_EQUAL)
            self._send(at, lines)

    def _refuse(
        self,
        at: Generation,
        target: Target,
        rows: pa.Table,
        outcome: BulkOutcome,
        refused: list[int],
    ) -> None:
        """Keep them elsewhere; what stood under their ids is no longer what the source has."""
        texts = documents_of(target.columns, rows).to_pylist()
        letters = [
            (key, Position(lsn, ordinal), outcome.reasons.get(place, ""), text)
            for key, lsn, ordinal, place, text in zip(
                rows["id"].to_pylist(),
                rows["commit_lsn"].to_pylist(),
                rows["ordinal"].to_pylist(),
                refused,
                texts,
                strict=True,
            )
        ]
        if self._client.options.refused == "table":
            key, position, why, _ = letters[0]
            raise TableRefused(
                f"table {target.qualified_name}: the document {key} at {position} was refused: "
                f"{why}",
                remedy="see destination.mappings, then run `penstock tables resync` for "
                f"{target.qualified_name}; with destination.refused: dead_letters such documents "
                "are kept apart",
                table=target.oid,
            )
        self._letters.keep(target, letters)
        self._send(at, delete_lines(rows["id"].combine_chunks(), row_versions(rows), _OR_EQUAL))

    # -- reads -----------------------------------------------------------------------------------

    def _found(self, at: Generation, target: Target, ids: pa.Array) -> pa.Table:
        rows: list[dict[str, Any]] = []
        for start in range(0, len(ids), _FETCHED_AT_ONCE):
            some = ids.slice(start, _FETCHED_AT_ONCE).to_pylist()
            answer = self._client.call(
                "POST", f"{part(at.writers)}/_mget", {"ids": some}, doing="reading documents",
                is_exact=True, allowed=(404,),
            )  # fmt: skip
            if answer.status == 404:
                raise GenerationClosed(at.index)
            for document in answer.body["docs"]:
                if (error := document.get("error")) is not None:
                    if error.get("type") == "index_not_found_exception":
                        raise GenerationClosed(at.index)
                    url = self._client.options.url
                    raise failure(url, "reading documents", 503, document)
                if document["found"]:
                    rows.append(_row(target, document))
        return pa.Table.from_pylist(rows, schema=document_schema(target))


def _share_versions(ordinal: np.ndarray[Any, np.dtype[np.int64]]) -> Mask:
    """Which changes have the version of others of their transaction."""
    found: Mask = (ordinal >= LAST_ORDINAL) & (ordinal < READ_ORDINAL)
    return found


def _position(hit: dict[str, Any]) -> Position:
    return Position(hit["_source"][META]["lsn"], hit["_source"][META]["ordinal"])


def _row(target: Target, document: dict[str, Any]) -> dict[str, Any]:
    source = document["_source"]
    values = (source.get(field_name(name)) for name in target.columns)
    return {
        "id": document["_id"],
        "commit_lsn": source[META]["lsn"],
        "ordinal": source[META]["ordinal"],
        "deleted": False,
        **{
            f"c{index}": None if value is None else write_exactly(value)
            for index, value in enumerate(values)
        },
    }


def _lines(
    target: Target, rows: pa.Table, is_gone: Mask, kind: str
) -> tuple[pa.Array, np.ndarray[Any, np.dtype[np.int64]]]:
    """Lines that put or delete, and for each the row that it is of."""
    ids, version = rows["id"].combine_chunks(), row_versions(rows)
    if not is_gone.any():
        texts = documents_of(target.columns, rows)
        return index_lines(ids, texts, version, kind), np.arange(rows.num_rows)
    kept, gone = np.flatnonzero(~is_gone), np.flatnonzero(is_gone)
    lines = [delete_lines(ids.take(pa.array(gone)), version[gone], kind)]
    if len(kept):
        texts = documents_of(target.columns, rows.take(pa.array(kept)))
        lines.append(index_lines(ids.take(pa.array(kept)), texts, version[kept], kind))
    return pa.concat_arrays(lines), np.concatenate([gone, kept])


def _from(rows: pa.Table, floor: Position) -> pa.Table:
    """Those that are not older than a generation."""
    is_older = is_before(rows, floor)
    return rows.filter(pa.array(~is_older)) if is_older.any() else rows


def _gone(target: Target) -> TableRefused:
    return TableRefused(
        f"table {target.qualified_name}: the index that its rows go to is gone, or no longer the "
        "one that is written",
        remedy=f"run `penstock tables resync` for {target.qualified_name}",
        table=target.oid,
    )
