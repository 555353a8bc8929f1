"""What a pipeline keeps beside its Iceberg tables: a small table of notes, committed last."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import NestedField, StringType

from penstock.destination.families.ledger import Ledger, fenced, once_alone
from penstock.destination.iceberg.commits import IcebergCommits
from penstock.destination.iceberg.live_rows import LiveRows
from penstock.destination.iceberg.snapshots import Change
from penstock.destination.iceberg.tables import make_table
from penstock.destination.iceberg.written_files import FileWriter

NAMESPACE = "_penstock"
_INCARNATION = "incarnation"
_SCHEMA = Schema(NestedField(1, "name", StringType()), NestedField(2, "note", StringType()))


class IcebergControlTable(Ledger):
    """All notes are written anew with each commit: there are few of them, and a commit that does
    not follow on the last one is refused.
    """

    def __init__(self, commits: IcebergCommits, pipeline: str) -> None:
        self._commits = commits
        self._pipeline = pipeline
        self.identifier = (NAMESPACE, pipeline)
        self._read: tuple[int, dict[str, str]] = (0, {})

    def take_over(self) -> int:
        return once_alone(self._take_over)

    def _take_over(self) -> int:
        with self._commits.tables.explained(".".join(self.identifier)):
            table = make_table(self._commits.tables, self.identifier)
            notes = self._notes(table)
            notes.setdefault(_INCARNATION, uuid.uuid4().hex)
            self._commits.incarnation = notes[_INCARNATION]
            self._commits.driver = self._commits.state(table).driver + 1
            self._put(notes, table)
        return self._commits.driver

    def read(self, prefix: str = "") -> dict[str, str]:
        if not self._commits.tables.is_there:
            return {}
        table = self._commits.tables.find(self.identifier)
        if table is None:
            return {}
        notes = self._notes(table)
        return {name: note for name, note in notes.items() if name.startswith(prefix)}

    def write(self, driver: int, notes: Mapping[str, str | None]) -> None:
        with self._commits.tables.explained(".".join(self.identifier)):
            table = self._commits.tables.find(self.identifier)
            before = {} if table is None else self._notes(table)
            if table is None or self._commits.state(table).driver != driver:
                raise fenced("iceberg", self._pipeline)
            if notes:
                now = {**before, **notes}
                self._put({name: note for name, note in now.items() if note is not None}, table)

    def forget(self) -> bool:
        if not self._commits.tables.is_there:
            return False
        with self._commits.tables.explained(".".join(self.identifier)):
            if self._commits.tables.find(self.identifier) is None:
                return False
            self._commits.tables.catalog.purge_table(self.identifier)
        return True

    def _notes(self, table: Table) -> dict[str, str]:
        snapshot = table.current_snapshot()
        wanted = 0 if snapshot is None else snapshot.snapshot_id
        # Looked at once: other threads read, too, and an older snapshot may be what they found.
        known, notes = self._read
        if known != wanted:
            notes = _read_notes(table) if wanted else {}
            self._read = wanted, notes
        self._commits.incarnation = notes.get(_INCARNATION, "")
        return dict(notes)

    def _put(self, notes: Mapping[str, str], table: Table) -> None:
        rows = pa.table([list(notes), list(notes.values())], names=["name", "note"])
        is_new = not table.schema().fields
        removed = frozenset() if is_new else frozenset(LiveRows(table).paths)
        files = FileWriter(table.io, table.location(), _SCHEMA).data(rows)
        change = Change(files, removed, schema=_SCHEMA if is_new else None)
        self._commits.commit(table, change, self._commits.state(table))


def _read_notes(table: Table) -> dict[str, str]:
    live = LiveRows(table)
    notes: dict[str, str] = {}
    for entry in live.data:
        for group, rows in live.rows(entry):
            found = live.table_rows(group, rows).to_pydict()
            notes |= dict(zip(found["name"], found["note"], strict=True))
    return notes
