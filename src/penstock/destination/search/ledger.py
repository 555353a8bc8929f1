"""The notes of a pipeline, as one document of an index of our own, fenced by sequence numbers."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.destination.families.ledger import Ledger, fenced
from penstock.destination.search.client import SearchClient, part

_INDEX = {
    # Notes are read by their id alone: nothing of them is searched.
    "settings": {"index.number_of_shards": 1, "index.auto_expand_replicas": "0-1"},
    "mappings": {"dynamic": False},
}


@dataclass(frozen=True)
class _Kept:
    """The document as it was read, and what tells whether it was written since."""

    driver: int
    identity: str
    notes: dict[str, str]
    written: Mapping[str, str]


class SearchLedger(Ledger):
    """All notes are in one document: they are written together, or not at all."""

    def __init__(self, client: SearchClient, index: str, pipeline: str) -> None:
        self._client = client
        self._index = index
        self._pipeline = pipeline

    def take_over(self) -> int:
        self._make()
        while True:
            kept = self._read() or _Kept(0, uuid.uuid4().hex, {}, {"op_type": "create"})
            if self._write(kept, kept.driver + 1, kept.notes):
                return kept.driver + 1

    @property
    def identity(self) -> str:
        """Of this ledger alone: whoever makes another after it was forgotten has another."""
        kept = self._read()
        return "" if kept is None else kept.identity

    def read(self, prefix: str = "") -> dict[str, str]:
        kept = self._read()
        notes = {} if kept is None else kept.notes
        return {name: text for name, text in notes.items() if name.startswith(prefix)}

    def write(self, driver: int, notes: Mapping[str, str | None]) -> None:
        while True:
            kept = self._read()
            if kept is None or kept.driver != driver:
                raise fenced("search", self._pipeline)
            merged: dict[str, str | None] = {**kept.notes, **notes}
            left = {name: text for name, text in merged.items() if text is not None}
            if left == kept.notes or self._write(kept, driver, left):
                return

    def forget(self) -> bool:
        answer = self._client.call("DELETE", self._path, doing="forgetting", allowed=(404,))
        return answer.status != 404

    @property
    def _path(self) -> str:
        return f"{part(self._index)}/_doc/{part(self._pipeline)}"

    def _read(self) -> _Kept | None:
        answer = self._client.call("GET", self._path, doing="reading the ledger", allowed=(404,))
        if answer.status == 404:
            return None
        source: dict[str, Any] = answer.body["_source"]
        written = {
            "if_seq_no": str(answer.body["_seq_no"]),
            "if_primary_term": str(answer.body["_primary_term"]),
        }
        return _Kept(source["driver"], source["identity"], source["notes"], written)

    def _write(self, kept: _Kept, driver: int, notes: Mapping[str, str]) -> bool:
        """False where somebody wrote it since, be it this very write whose answer was lost."""
        body = {"driver": driver, "identity": kept.identity, "notes": notes}
        answer = self._client.call(
            "PUT", self._path, body, doing="writing the ledger", allowed=(409,), query=kept.written
        )
        return answer.status != 409

    def _make(self) -> None:
        self._client.call(
            "PUT",
            part(self._index),
            _INDEX,
            doing=f"making the index {self._index}",
            allowed=(400,),
        )
