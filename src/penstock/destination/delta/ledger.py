"""What a pipeline keeps beside its Delta tables: a small Delta table of notes, committed last."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.destination.delta.commits import PipelineCommits
from penstock.destination.delta.delta_rs import delta_rs
from penstock.destination.delta.places import DeltaPlace
from penstock.destination.families.ledger import Ledger, fenced, once_alone
from penstock.destination.families.table_folders import folder_name

if TYPE_CHECKING:
    from deltalake import DeltaTable

_INCARNATION = "incarnation"
_SCHEMA = pa.schema([("name", pa.string()), ("note", pa.string())])


class ControlTable(Ledger):
    """All notes are written anew with each commit: there are few of them, and a commit that does
    not follow on the last one is refused.
    """

    def __init__(self, root: DeltaPlace, pipeline: str, commits: PipelineCommits) -> None:
        self._pipeline = pipeline
        self._commits = commits
        self.folder = root.below("_penstock", folder_name(pipeline))

    def take_over(self) -> int:
        return once_alone(self._take_over)

    def _take_over(self) -> int:
        with self._commits.explained(self.folder):
            if self.folder.found() is None:
                self.folder.create(schema=_SCHEMA)
            table = self.folder.table()
        notes = self._notes(table)
        self._commits.incarnation = notes.setdefault(_INCARNATION, uuid.uuid4().hex)
        self._commits.driver = (self._commits.read(table, "driver") or 0) + 1
        self._put(notes, table)
        return self._commits.driver

    def read(self, prefix: str = "") -> dict[str, str]:
        with self._commits.explained(self.folder):
            table = self.folder.found()
        notes = {} if table is None else self._notes(table)
        return {name: note for name, note in notes.items() if name.startswith(prefix)}

    def write(self, driver: int, notes: Mapping[str, str | None]) -> None:
        with self._commits.explained(self.folder):
            table = self.folder.table()
        before = self._notes(table)
        if self._commits.read(table, "driver") != driver:
            raise fenced("delta", self._pipeline)
        if notes:
            now = {**before, **notes}
            self._put({name: note for name, note in now.items() if note is not None}, table)

    def forget(self) -> bool:
        was_there = self.folder.exists()
        self.folder.remove()
        return was_there

    def _notes(self, table: DeltaTable) -> dict[str, str]:
        with self._commits.explained(self.folder):
            rows = table.to_pyarrow_table().to_pydict()
        notes = dict(zip(rows["name"], rows["note"], strict=True))
        self._commits.incarnation = notes.get(_INCARNATION, "")
        return notes

    def _put(self, notes: Mapping[str, str], table: DeltaTable) -> None:
        rows = pa.table([list(notes), list(notes.values())], schema=_SCHEMA)
        with self._commits.explained(self.folder):
            delta_rs().write_deltalake(
                table, rows, mode="overwrite", commit_properties=self._commits.properties({})
            )
