"""A store for tests: it lives as long as its tables, and no longer than the process."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from penstock.config.table_patterns import Rule
from penstock.model.publication_state import PublicationState
from penstock.model.table_definition import TableDefinition
from penstock.model.table_name import TableName
from penstock.model.table_state import Errored, TableState
from penstock.source.copy_plan import CopyPlan
from penstock.store.contract import SchemaVersion, StateRecord, Store
from penstock.store.copies import ChunkDone, ChunkKey, CopyProgress, TableKey, Wish
from penstock.store.memory_jobs import JobRecords, MemoryJobs


@dataclass
class PipelineRecords:
    """What is kept of one pipeline."""

    states: dict[int, list[StateRecord]] = field(default_factory=dict)
    schemas: dict[int, dict[int, TableDefinition]] = field(default_factory=dict)
    notes: dict[int, tuple[str, ...]] = field(default_factory=dict)
    publication: PublicationState | None = None
    copies: dict[int, CopyProgress] = field(default_factory=dict)
    worker: str | None = None
    claims: dict[int, str] = field(default_factory=dict)
    wishes: dict[int, Wish] = field(default_factory=dict)
    rules: dict[TableKey, Rule] = field(default_factory=dict)
    jobs: JobRecords = field(default_factory=JobRecords)


# Stores of several threads may share their records, as connections share a database's.
_TURN = threading.Lock()


class MemoryStore(MemoryJobs, Store):
    """Stores that are given the same ``records`` share them, as connections share a database."""

    def __init__(
        self,
        pipeline: str,
        records: dict[str, PipelineRecords] | None = None,
        *,
        rules_of: str | None = None,
    ) -> None:
        super().__init__(pipeline, rules_of)
        self._records = {} if records is None else records

    @property
    def _mine(self) -> PipelineRecords:
        return self._records.setdefault(self.pipeline, PipelineRecords())

    @property
    def _kept_rules(self) -> dict[TableKey, Rule]:
        return self._records.setdefault(self.rules_of, PipelineRecords()).rules

    @property
    def _kept_jobs(self) -> JobRecords:
        return self._mine.jobs

    @property
    def _current_driver(self) -> str | None:
        return self._mine.worker

    def _read_states(self) -> dict[int, StateRecord]:
        return {table: chain[-1] for table, chain in self._mine.states.items()}

    def _write_states(self, states: Mapping[int, TableState]) -> dict[int, StateRecord]:
        chains = {table: self._mine.states.get(table, []) for table in states}
        for table, state in states.items():
            chain = chains[table]
            current = chain[-1].state if chain else None
            self._next_state(table, current, state)
            if current != state:
                # What follows an error, another one or a new beginning, takes its place.
                kept = chain[:-1] if isinstance(current, Errored) else chain
                chains[table] = [*kept, StateRecord(state, datetime.now(UTC))]
        self._mine.states.update(chains)
        return {table: chain[-1] for table, chain in chains.items()}

    def _take_back_state(self, table: int, *, only_errored: bool) -> StateRecord:
        chain = self._mine.states.get(table, [])
        previous = self._require_previous(table, chain, only_errored=only_errored)
        record = StateRecord(previous.state, datetime.now(UTC))
        self._mine.states[table] = [*chain[:-2], record]
        return record

    def _read_schemas(self) -> dict[int, list[SchemaVersion]]:
        return {
            table: [SchemaVersion(lsn, versions[lsn]) for lsn in sorted(versions)]
            for table, versions in self._mine.schemas.items()
        }

    def load_schema_versions(self, table: int) -> list[SchemaVersion]:
        return self._read_schemas().get(table, [])

    def load_table_names(self) -> dict[int, TableName]:
        newest = {table: found[-1].definition for table, found in self._read_schemas().items()}
        return {table: TableName(each.schema, each.name) for table, each in newest.items()}

    def _write_schemas(self, definitions: Sequence[TableDefinition], lsn: int) -> None:
        for definition in definitions:
            versions = self._mine.schemas.setdefault(definition.oid, {})
            versions.pop(lsn, None)
            before = max((held for held in versions if held < lsn), default=None)
            if before is None or not versions[before].says_the_same(definition):
                versions[lsn] = definition

    def _read_notes(self) -> dict[int, tuple[str, ...]]:
        return dict(self._mine.notes)

    def _write_notes(self, table: int, notes: Sequence[str]) -> None:
        self._mine.notes[table] = tuple(notes)

    def _read_publication(self) -> PublicationState | None:
        return self._mine.publication

    def _write_publication(self, state: PublicationState) -> None:
        self._mine.publication = state

    # -- copies ----------------------------------------------------------------------------------

    def _read_copies(self) -> dict[int, CopyProgress]:
        return dict(self._mine.copies)

    def _write_new_copies(
        self, plans: Mapping[int, CopyPlan], ids: Mapping[int, str], lsn: int
    ) -> datetime:
        now = datetime.now(UTC)
        for table, plan in plans.items():
            self._mine.copies[table] = CopyProgress(table, ids[table], lsn, lsn, 1, plan, now)
        return now

    def _write_snapshot(self, ids: Mapping[int, str], lsn: int) -> None:
        self._require_copies(ids)
        for table in ids:
            copy = self._mine.copies[table]
            self._mine.copies[table] = replace(copy, last_lsn=lsn, snapshots=copy.snapshots + 1)

    def _write_plan(self, copy: CopyProgress) -> None:
        held = self._mine.copies.get(copy.table)
        if held is not None and held.copy_id == copy.copy_id:
            self._mine.copies[copy.table] = replace(held, plan=copy.plan)

    def _write_chunks(self, ids: Mapping[int, str], done: Mapping[ChunkKey, ChunkDone]) -> None:
        self._require_copies(ids)
        for (table, number), chunk in done.items():
            copy = self._mine.copies[table]
            self._mine.copies[table] = replace(copy, done={**copy.done, number: chunk})

    def _remove_copies(self, tables: Collection[int]) -> None:
        for table in tables:
            self._mine.copies.pop(table, None)

    def _require_copies(self, ids: Mapping[int, str]) -> None:
        for table, copy_id in ids.items():
            copy = self._mine.copies.get(table)
            if copy is None or copy.copy_id != copy_id:
                raise self._copy_is_gone(table)

    def _write_worker(self, worker: str) -> None:
        with _TURN:
            if self._mine.worker != worker:
                self._mine.worker = worker
                self._mine.claims.clear()

    def _take_claims(self, worker: str, tables: Collection[int]) -> set[int]:
        with _TURN:
            if self._mine.worker != worker:
                raise self._fenced(worker, self._mine.worker)
            self._mine.claims.update(dict.fromkeys(tables, worker))
            return set(tables)

    def _read_claims(self) -> dict[int, str]:
        return dict(self._mine.claims)

    def _remove_claims(self, worker: str, tables: Collection[int] | None) -> None:
        with _TURN:
            for table, holder in list(self._mine.claims.items()):
                if holder == worker and (tables is None or table in tables):
                    del self._mine.claims[table]

    def _read_wishes(self) -> dict[int, Wish]:
        return dict(self._mine.wishes)

    def _write_wishes(self, wishes: Mapping[int, Wish | None]) -> None:
        for table, wish in wishes.items():
            if wish is None:
                self._mine.wishes.pop(table, None)
            else:
                self._mine.wishes[table] = wish

    def _remove_wishes(self, wishes: Mapping[int, Wish]) -> None:
        for table, wish in wishes.items():
            if self._mine.wishes.get(table) == wish:
                del self._mine.wishes[table]

    def _read_rules(self) -> dict[TableKey, Rule]:
        return dict(self._kept_rules)

    def _write_rules(self, rules: Mapping[TableKey, Rule | None]) -> None:
        for name, rule in rules.items():
            if rule is None:
                self._kept_rules.pop(name, None)
            else:
                self._kept_rules[name] = rule

    # -- whole tables, and the pipeline as a whole ------------------------------------------------

    def _remove_tables(self, tables: Collection[int]) -> None:
        mine = self._mine
        kept: tuple[dict[int, Any], ...] = (
            mine.states,
            mine.schemas,
            mine.notes,
            mine.copies,
            mine.claims,
            mine.wishes,
        )
        for of_tables in kept:
            for table in tables:
                of_tables.pop(table, None)

    def _remove_pipeline(self, *, with_rules: bool) -> bool:
        removed = self._records.pop(self.pipeline, PipelineRecords())
        if not with_rules:
            self._mine.rules.update(removed.rules)
        return removed != PipelineRecords(rules=self._mine.rules)
