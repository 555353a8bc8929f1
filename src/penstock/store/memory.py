"""A store for tests: it lives as long as its tables, and no longer than the process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from penstock.pipeline.table_state import Errored, TableState
from penstock.store.contract import SchemaVersion, StateRecord, Store
from penstock.table_definition import TableDefinition


@dataclass
class PipelineRecords:
    """What is kept of one pipeline."""

    states: dict[int, list[StateRecord]] = field(default_factory=dict)
    schemas: dict[int, dict[int, TableDefinition]] = field(default_factory=dict)
    mappings: dict[int, str] = field(default_factory=dict)


class MemoryStore(Store):
    """Stores that are given the same ``records`` share them, as connections share a database."""

    def __init__(self, pipeline: str, records: dict[str, PipelineRecords] | None = None) -> None:
        super().__init__(pipeline)
        self._records = {} if records is None else records

    @property
    def _mine(self) -> PipelineRecords:
        return self._records.setdefault(self.pipeline, PipelineRecords())

    def _read_states(self) -> dict[int, StateRecord]:
        return {table: chain[-1] for table, chain in self._mine.states.items()}

    def _write_states(self, states: Mapping[int, TableState]) -> dict[int, StateRecord]:
        chains = {table: self._mine.states.get(table, []) for table in states}
        for table, state in states.items():
            chain = chains[table]
            current = chain[-1].state if chain else None
            self._next_state(table, current, state)
            if current != state:
                # After an error there can only be another one, which takes its place.
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

    def _write_schemas(self, definitions: Sequence[TableDefinition], lsn: int) -> None:
        for definition in definitions:
            versions = self._mine.schemas.setdefault(definition.oid, {})
            versions.pop(lsn, None)
            before = max((held for held in versions if held < lsn), default=None)
            if before is None or versions[before] != definition:
                versions[lsn] = definition

    def _read_mappings(self) -> dict[int, str]:
        return dict(self._mine.mappings)

    def _write_mappings(self, mappings: Mapping[int, str]) -> None:
        self._mine.mappings.update(mappings)

    def _remove_pipeline(self) -> bool:
        return self._records.pop(self.pipeline, PipelineRecords()) != PipelineRecords()
