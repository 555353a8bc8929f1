"""A source as a destination is to see it: tables as a step leaves them. Changes of tables and
columns that the filter leaves out still come, and are dropped by tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.config.table_patterns import Rules
from penstock.model.source_identity import SeenSource
from penstock.model.table_definition import TableDefinition
from penstock.model.table_name import TableName
from penstock.model.table_rows import TableRows
from penstock.model.table_schema import TableSchema
from penstock.source.contract import (
    Capture,
    CopyPlans,
    CopySource,
    Keys,
    LeafFile,
    OnSegment,
    OpenChunk,
    ReadByWorkers,
    ReadKeys,
    Reconciled,
    Source,
    SourceSession,
    Subscription,
)
from penstock.source.schema_dump import DumpOptions, SchemaDump, SequenceValue
from penstock.transform.step import Step


class FilteredSource(Source):
    """Filters what sessions and copies tell of tables; they raise ConfigError where a table's key
    would not pass.
    """

    def __init__(self, source: Source, wanted: Step) -> None:
        self._source = source
        self._filter = wanted

    @contextmanager
    def session(self, purpose: str, *, supervises: bool = False) -> Iterator[SourceSession]:
        with self._source.session(purpose, supervises=supervises) as session:
            yield FilteredSession(session, self._filter)

    def capture(
        self, file: Path, on_segment: OnSegment | None = None, *, stands_by: bool = False
    ) -> Capture:
        return self._source.capture(file, on_segment, stands_by=stands_by)

    def copies(self, file: Path, check: Callable[[], None]) -> CopySource:
        return _FilteredCopies(self._source.copies(file, check), self._filter)


class FilteredSession(SourceSession):
    """Tables that do not pass are not there, and definitions have no columns that do not."""

    def __init__(self, session: SourceSession, wanted: Step) -> None:
        self._session = session
        self._filter = wanted

    def keep(self) -> None:
        self._session.keep()

    def seen(self) -> SeenSource:
        return self._session.seen()

    def subscribe(self) -> Subscription:
        found = self._session.subscribe()
        return replace(found, tables=tuple(filter(self._passes, found.tables)))

    def position(self) -> int:
        return self._session.position()

    def published(self) -> Collection[int]:
        return self._session.published()

    def matching(self) -> list[TableDefinition]:
        return self._filter.definitions(self._session.matching())

    def definitions(self, tables: Sequence[TableName]) -> list[TableDefinition]:
        return self._filter.definitions(self._session.definitions(tables))

    def definitions_of(self, tables: Sequence[int]) -> dict[int, TableDefinition]:
        return _filtered(self._filter, self._session.definitions_of(tables))

    def describer(self) -> Callable[[str], Mapping[int, TableDefinition]]:
        describe = self._session.describer()
        return lambda document: _filtered(self._filter, describe(document))

    def reconcile(self, rules: Rules) -> Reconciled:
        found = self._session.reconcile(rules)
        return replace(
            found,
            published=self._passing(found.published),
            added=self._passing(found.added),
            moved=self._passing(found.moved),
        )

    def tables_come_in_stream(self) -> bool:
        return self._session.tables_come_in_stream()

    def leaf_files(self, tables: Collection[int]) -> dict[int, dict[int, LeafFile]]:
        return self._session.leaf_files(tables)

    def acknowledge(self, versions: Sequence[int]) -> None:
        self._session.acknowledge(versions)

    def _passing(self, tables: Mapping[int, TableName]) -> dict[int, TableName]:
        return {oid: name for oid, name in tables.items() if self._passes(name)}

    def _passes(self, table: TableName) -> bool:
        return self._filter.passes_table(table.schema, table.name)


class _FilteredCopies(CopySource):
    def __init__(self, copies: CopySource, wanted: Step) -> None:
        self._copies = copies
        self._filter = wanted
        self.snapshots = copies.snapshots

    def define(self, tables: Collection[int]) -> Mapping[int, TableDefinition]:
        return _filtered(self._filter, self._copies.define(tables))

    def leaf_files(self, tables: Collection[int]) -> Mapping[int, Mapping[int, LeafFile]]:
        return self._copies.leaf_files(tables)

    def plan(self, tables: Sequence[TableDefinition]) -> CopyPlans:
        return self._copies.plan(tables)

    def layout(self, table: TableDefinition) -> TableSchema:
        return self._copies.layout(table)

    def opener(self, snapshot: Any) -> OpenChunk:
        return self._copies.opener(snapshot)

    def for_workers(self) -> ReadByWorkers | None:
        return self._copies.for_workers()

    @contextmanager
    def snapshot_of_now(self) -> Iterator[tuple[int, ReadKeys]]:
        with self._copies.snapshot_of_now() as (point, read_keys):

            def read(table: TableDefinition, keys: Keys) -> TableRows:
                asked = self._filter.source_keys(table, keys)
                with self._filter.reading(table):
                    return self._filter.read_again(read_keys(table, asked))

            yield point, read

    def retained_bytes(self) -> int | None:
        return self._copies.retained_bytes()

    def dump_schema(self, snapshot: Any, options: DumpOptions) -> SchemaDump:
        return self._copies.dump_schema(snapshot, options)

    def sequences(self) -> Sequence[SequenceValue]:
        return self._copies.sequences()


def _filtered(wanted: Step, tables: Mapping[int, TableDefinition]) -> dict[int, TableDefinition]:
    return {oid: wanted.definition(table) for oid, table in tables.items()}
