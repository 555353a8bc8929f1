"""Postgres as the source of a pipeline."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from penstock.answer_limit import answered_within
from penstock.config.models import PipelineConfig
from penstock.config.table_patterns import Rules
from penstock.model.errors import SourceError, SourceUnavailable
from penstock.model.source_identity import SeenSource
from penstock.model.table_definition import TableDefinition
from penstock.model.table_name import TableName
from penstock.source.capture.child import CaptureChild
from penstock.source.contract import (
    Capture,
    CopySource,
    LeafFile,
    OnSegment,
    Reconciled,
    Source,
    SourceSession,
    Subscription,
)
from penstock.source.postgres.catalogue.definitions import (
    published_columns,
    read_definitions,
    read_definitions_by_oid,
)
from penstock.source.postgres.catalogue.described_tables import tables_in
from penstock.source.postgres.catalogue.leaf_files import read_leaf_files
from penstock.source.postgres.catalogue.tables import column_numbers, read_tables
from penstock.source.postgres.catalogue.trust import Trust
from penstock.source.postgres.connect import connect
from penstock.source.postgres.copy_source import PostgresCopySource
from penstock.source.postgres.pipeline_lock import KeptLock
from penstock.source.postgres.seen_source import seen_source
from penstock.source.postgres.silence import SILENCE_SECONDS
from penstock.source.postgres.source_errors import source_errors
from penstock.source.postgres.subscription.publications import read_membership
from penstock.source.postgres.subscription.reconcile import reconcile_publication
from penstock.source.postgres.subscription.slot import current_wal_lsn
from penstock.source.postgres.subscription.subscription import (
    ensure_subscription,
    find_subscription,
)
from penstock.source.postgres.subscription.table_selection import select_tables
from penstock.source.postgres.tracking.schema_tracking import NOT_TRACKED, ensure_tracking

_log = logging.getLogger(__name__)


class PostgresSource(Source):
    """A database that a pipeline file names."""

    def __init__(self, config: PipelineConfig) -> None:
        self._config = config

    def session(
        self, purpose: str, *, supervises: bool = False
    ) -> AbstractContextManager[SourceSession]:
        return PostgresSession(self._config, purpose, supervises=supervises)

    def capture(
        self, file: Path, on_segment: OnSegment | None = None, *, stands_by: bool = False
    ) -> Capture:
        return CaptureChild(file, on_segment, stands_by=stands_by)

    def copies(self, file: Path, check: Callable[[], None]) -> CopySource:
        return PostgresCopySource(self._config, file, check)


class PostgresSession(SourceSession):
    """Holds the pipeline's advisory lock, and asks through the same connection."""

    def __init__(self, config: PipelineConfig, purpose: str, *, supervises: bool = False) -> None:
        self._config = config
        name, what = (config.name, "supervisor") if supervises else (config.delivery, "run")
        self._application = f"penstock {name} {purpose}"
        self._lock = KeptLock(config.source.url, name, self._application, what=what)
        self._publications: tuple[str, ...] = ()
        self._seen: SeenSource | None = None

    def __enter__(self) -> Self:
        self._lock.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.__exit__(kind, error, trace)

    def keep(self) -> None:
        before = self._lock.conn
        self._lock.keep()
        if self._lock.conn is not before:
            self._seen = None

    def seen(self) -> SeenSource:
        if self._seen is None:
            url, name = self._config.source.url, self._config.name
            found = find_subscription(self._lock.conn, name)
            with connect(url, replication=True, application_name=self._application) as conn:
                self._seen = seen_source(conn, found.uuid if found else "", self._lock.limit)
        return self._seen

    def subscribe(self) -> Subscription:
        # First of all: what the slot brings is told completely.
        if self._config.schema_changes.track and not ensure_tracking(self._lock.conn):
            _log.warning(NOT_TRACKED)
        subscription = ensure_subscription(self._lock.conn, self._config)
        self._publications = subscription.publications
        self._seen = None
        return subscription

    def position(self) -> int:
        conn = self._lock.conn
        with source_errors("asking for the position"), answered_within(conn, self._lock.limit):
            return current_wal_lsn(conn)

    def published(self) -> Collection[int]:
        with source_errors("reading the publications"):
            return read_membership(self._lock.conn, self._config.name).homes

    def matching(self) -> list[TableDefinition]:
        conn = self._lock.conn
        selection = select_tables(read_tables(conn), self._config.source.tables.patterns)
        unlogged = [t for t in selection.skipped if t.kind in ("r", "p")]
        return self.definitions([t.table_name for t in (*selection.published, *unlogged)])

    def definitions(self, tables: Sequence[TableName]) -> list[TableDefinition]:
        found = read_definitions(self._lock.conn, list(tables), self._publications)
        return [self._trust.judged(table) for table in found]

    def definitions_of(self, tables: Sequence[int]) -> dict[int, TableDefinition]:
        found = read_definitions_by_oid(self._lock.conn, list(tables), self._publications)
        return self._trust.all_judged(found)

    def describer(self) -> Callable[[str], Mapping[int, TableDefinition]]:
        with source_errors("reading the columns that are published"):
            published = published_columns(self._lock.conn, self._publications)
        trust = self._trust

        return lambda document: trust.all_judged(tables_in(document, published))

    @cached_property
    def _trust(self) -> Trust:
        return Trust.read(self._lock.conn, self._config.schema_changes.trust)

    def reconcile(self, rules: Rules) -> Reconciled:
        conn = self._lock.conn
        try:
            with (
                source_errors("comparing the publications with source.tables"),
                answered_within(conn, max(self._lock.limit, SILENCE_SECONDS)),
            ):
                found = reconcile_publication(conn, self._config, rules)
                return replace(found, columns=column_numbers(conn, found.published))
        except SourceError as error:
            if isinstance(error.__cause__, psycopg.OperationalError):
                # A lock or a statement that took too long: it is tried again soon.
                raise SourceUnavailable(error.message, remedy=error.remedy) from error
            raise

    def leaf_files(self, tables: Collection[int]) -> dict[int, dict[int, LeafFile]]:
        return read_leaf_files(self._lock.conn, tables)

    def acknowledge(self, versions: Sequence[int]) -> None:
        with suppress(psycopg.Error):
            self._lock.conn.execute(
                "SELECT penstock_ddl.acknowledge(%s::bigint[])", [list(versions)]
            )
