"""Rows of a Postgres database that are there before the stream."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from penstock.config.connection_url import ConnectionUrl
from penstock.config.models import CopyConfig, PipelineConfig
from penstock.model.errors import SourceUnavailable, TableRefused, TableRewritten
from penstock.model.lsn import Frontier
from penstock.model.table_definition import TableDefinition
from penstock.model.table_rows import TableRows
from penstock.model.table_schema import TableSchema
from penstock.source.contract import (
    CopyPlans,
    CopySource,
    Keys,
    LeafFile,
    OpenChunk,
    ReadByWorkers,
    ReadKeys,
)
from penstock.source.copy_plan import Chunk
from penstock.source.postgres.catalogue.definitions import read_definitions_by_oid
from penstock.source.postgres.catalogue.leaf_files import read_leaf_files
from penstock.source.postgres.catalogue.trust import Trust
from penstock.source.postgres.connect import connect
from penstock.source.postgres.snapshot.chunk_reader import SourceChunkReader
from penstock.source.postgres.snapshot.held_snapshots import HeldSnapshots
from penstock.source.postgres.snapshot.keys import read_keys
from penstock.source.postgres.snapshot.plan import plan_copy
from penstock.source.postgres.snapshot.reading import ExportedSnapshot
from penstock.source.postgres.snapshot.relations import CopyRelations, read_relations
from penstock.source.postgres.snapshot.slot_snapshot import slot_snapshot
from penstock.source.postgres.snapshot.snapshot_record import HeldSnapshot
from penstock.source.postgres.source_errors import source_errors
from penstock.source.postgres.source_status import read_source_status
from penstock.source.postgres.subscription.subscription import SLOT_WAIT_SECONDS, find_subscription
from penstock.source.postgres.whole_schema.dump import dump_schema, read_sequences
from penstock.source.schema_dump import DumpOptions, SchemaDump, SequenceValue

# A standby has the primary's identifier, and none of its snapshots.
_PLACE = """
SELECT concat_ws(' ', system_identifier, current_database(),
                 CASE WHEN pg_is_in_recovery() THEN 'standby' END)
  FROM pg_control_system()
"""


class PostgresCopySource(CopySource):
    """Connects for each question. May be used by several threads."""

    def __init__(self, config: PipelineConfig, file: Path, check: Callable[[], None]) -> None:
        self._config = config
        self._copy = config.source.copy_rows or CopyConfig()
        self._check = check
        self._application = f"penstock {config.delivery} copy"
        self._known: dict[int, CopyRelations] = {}
        self._lock = threading.Lock()
        self.snapshots = HeldSnapshots(config, file, self._copy.max_snapshot_age, check)

    def define(self, tables: Collection[int]) -> Mapping[int, TableDefinition]:
        with connect(self._config.source.url, application_name=self._application) as conn:
            subscription = find_subscription(conn, self._config.name)
            publications = subscription.publications if subscription else ()
            found = read_definitions_by_oid(conn, list(tables), publications)
            trust = Trust.read(conn, self._config.schema_changes.trust)
            return trust.all_judged(found)

    def leaf_files(self, tables: Collection[int]) -> Mapping[int, Mapping[int, LeafFile]]:
        with connect(self._config.source.url, application_name=self._application) as conn:
            return read_leaf_files(conn, tables)

    def plan(self, tables: Sequence[TableDefinition]) -> CopyPlans:
        with connect(self._config.source.url, application_name=self._application) as conn:
            subscription = find_subscription(conn, self._config.name)
            publications = subscription.publications if subscription else ()
            sources = read_relations(conn, tables, publications, self._copy.conditions)
        with self._lock:
            self._known |= sources.found
        size = self._copy.chunk_bytes
        return CopyPlans(
            {oid: plan_copy(found, size) for oid, found in sources.found.items()},
            {
                oid: TableRefused(error.message, remedy=error.remedy, table=oid)
                for oid, error in sources.refused.items()
            },
        )

    def layout(self, table: TableDefinition) -> TableSchema:
        return self._relations(table).table

    def opener(self, snapshot: HeldSnapshot) -> OpenChunk:
        return self.ticket_opener(self.snapshot_ticket(snapshot))

    def for_workers(self) -> ReadByWorkers:
        return self

    def place(self) -> str:
        with (
            connect(self._config.source.url, application_name=self._application) as conn,
            source_errors("asking which server it is"),
        ):
            row = conn.execute(_PLACE).fetchone()
        assert row is not None  # noqa: S101 (the function gives one row)
        return str(row[0])

    def snapshot_ticket(self, snapshot: HeldSnapshot) -> Mapping[str, Any]:
        return {"name": snapshot.name, "lsn": snapshot.lsn, "holder": list(snapshot.holder)}

    def ticket_opener(self, ticket: Mapping[str, Any]) -> OpenChunk:
        point = Frontier.before(ticket["lsn"])
        pid, start = ticket["holder"]
        snapshot = ExportedSnapshot(ticket["name"], point, (pid, start))
        return partial(_open_chunk, self._config.source.url, snapshot)

    @contextmanager
    def snapshot_of_now(self) -> Iterator[tuple[int, ReadKeys]]:
        url = self._config.source.url

        def read(table: TableDefinition, keys: Keys) -> TableRows:
            point = Frontier.before(now.lsn)
            return read_keys(url, self._relations(table), table, keys, now.name, point)

        with slot_snapshot(
            url, application=self._application, wait=SLOT_WAIT_SECONDS, check=self._check
        ) as now:
            yield now.lsn, read

    def retained_bytes(self) -> int | None:
        try:
            with connect(self._config.source.url, application_name="penstock budget") as conn:
                return read_source_status(conn, self._config.name).retained_bytes
        except SourceUnavailable:
            return None

    def dump_schema(self, snapshot: HeldSnapshot | None, options: DumpOptions) -> SchemaDump:
        return dump_schema(
            self._config.source.url,
            snapshot,
            options,
            self._check,
            application=f"penstock {self._config.name} schema",
        )

    def sequences(self) -> Sequence[SequenceValue]:
        return read_sequences(self._config.source.url, application=self._application)

    def _relations(self, table: TableDefinition) -> CopyRelations:
        if table.oid not in self._known:
            # It was planned by an earlier run.
            self.plan([table])
        if table.oid not in self._known:
            raise TableRewritten(
                f"Table {table.qualified_name} is gone from the source, or was changed.",
                table=table.oid,
            )
        return self._known[table.oid]


def _open_chunk(
    url: ConnectionUrl,
    snapshot: ExportedSnapshot,
    table: TableSchema,
    chunk: Chunk,
    where: str | None,
) -> SourceChunkReader:
    return SourceChunkReader(url, table, chunk, where, snapshot)
