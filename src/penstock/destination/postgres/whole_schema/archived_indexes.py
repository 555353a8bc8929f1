"""Indexes and unique constraints of one table, made from the archive under their own names."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import psycopg

from penstock.destination.postgres.sessions.session import Connection, is_passing, said
from penstock.model.table_definition import TableDefinition
from penstock.source.postgres.whole_schema.archive import Entry
from penstock.source.schema_dump import DumpedIndex, DumpFacts

_INDEXES = """
SELECT n.nspname::text, c.relname::text, c.relispartition
  FROM unnest(%s::text[], %s::text[]) AS wanted (schema, name)
  JOIN pg_namespace n ON n.nspname = wanted.schema
  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name AND c.relkind IN ('i', 'I')
"""


class ArchivedIndexes:
    """Also those of partitions, which belong to their root. ``entries`` are the archive's."""

    def __init__(self, entries: Sequence[Entry], facts: DumpFacts) -> None:
        by_oid = {i.oid: i for i in facts.indexes}
        by_constraint = {i.constraint: i for i in facts.indexes if i.constraint}
        self._made_by: dict[int, DumpedIndex] = {}
        self._entries: dict[int, list[Entry]] = {}
        self._attached: dict[int, tuple[str, str]] = {}
        for entry in entries:
            found = None
            if entry.kind == "INDEX":
                found = by_oid.get(entry.oid)
            elif entry.kind == "CONSTRAINT":
                found = by_constraint.get(entry.oid)
            elif entry.kind == "INDEX ATTACH":
                roots = [self._made_by[n].table for n in entry.needs if n in self._made_by]
                if roots:
                    self._attached[entry.id] = (entry.schema, entry.name)
                    self._entries[roots[0]].append(entry)
                continue
            if found is not None:
                self._made_by[entry.id] = found
                self._entries.setdefault(found.table, []).append(entry)

    def of(self, table: int) -> list[Entry]:
        """All of a table (by its oid in the source), in the order in which they are made."""
        return self._entries.get(table, [])

    def key_of(self, table: TableDefinition) -> list[Entry]:
        """Those that rows of the table are found by."""
        wanted = set(table.merge_key)
        if not wanted:
            return []
        key = {
            entry.id
            for entry in self.of(table.oid)
            if (index := self._made_by.get(entry.id)) is not None and set(index.columns) == wanted
        }
        return [
            entry
            for entry in self.of(table.oid)
            if entry.id in key
            or (
                entry.id in self._attached
                and all(needed in key for needed in entry.needs if needed in self._made_by)
            )
        ]

    def named(self, table: TableDefinition) -> list[Entry]:
        """Those that the table still has, and what belongs to them in its partitions."""
        names = {index.name for index in table.indexes}
        names |= {constraint.name for constraint in table.constraints}
        # Those that `trust` would leave out: "index film_slug is left out: …".
        left_out = [text.partition(" is left out: ")[0] for text in table.left_out]
        names |= {text.partition(" ")[2] for text in left_out}
        kept: set[int] = set()
        for entry in self.of(table.oid):
            index = self._made_by.get(entry.id)
            parents = [needed for needed in entry.needs if needed in self._made_by]
            if index is None:
                if kept.issuperset(parents):
                    kept.add(entry.id)
            elif index.on_partition:
                kept |= {entry.id} if not parents or kept.intersection(parents) else set()
            elif index.name in names or (
                index.is_primary and set(index.columns) == set(table.primary_key)
            ):
                kept.add(entry.id)
        return [entry for entry in self.of(table.oid) if entry.id in kept]

    def missing(self, conn: Connection, entries: Collection[Entry]) -> list[Entry]:
        """Those of the entries that are not there yet; others than indexes always are."""
        names = {entry.id: self._name(entry) for entry in entries}
        known = [name for name in names.values() if name is not None]
        found = {
            (schema, name): is_attached
            for schema, name, is_attached in conn.execute(
                _INDEXES, [[schema for schema, _ in known], [name for _, name in known]]
            )
        }
        return [
            entry
            for entry in entries
            if (name := names[entry.id]) is None
            or (not found.get(name) if entry.id in self._attached else name not in found)
        ]

    def make(
        self, conn: Connection, pipeline: str, table: TableDefinition, entries: Sequence[Entry]
    ) -> list[str]:
        """Make what is missing, one transaction each, and record it as ours; what was refused."""
        notes = []
        for entry in self.missing(conn, entries):
            try:
                with conn.transaction():
                    # pg_dump's own statements, which name all things with their schema.
                    conn.execute(entry.statement.encode(), prepare=False)
                    self._record(conn, pipeline, table, entry)
            except psycopg.Error as error:
                if is_passing(error):
                    raise
                notes.append(f"{entry.title} is not there: {said(error)}")
        return notes

    def _record(
        self, conn: Connection, pipeline: str, table: TableDefinition, entry: Entry
    ) -> None:
        """As TargetObjects does, so that it is dropped and changed as if that had made it."""
        index = self._made_by.get(entry.id)
        if index is None or index.is_primary or index.on_partition:
            return
        conn.execute(
            "INSERT INTO penstock.target_object VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
            [
                pipeline,
                table.oid,
                "constraint" if index.constraint else "index",
                index.name,
                index.name,
            ],
        )

    def _name(self, entry: Entry) -> tuple[str, str] | None:
        if entry.id in self._attached:
            return self._attached[entry.id]
        index = self._made_by.get(entry.id)
        return None if index is None else (index.schema, index.name)
