"""``postgres``: tables that are what the source's tables were at a commit, exactly once."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import psycopg

from penstock.destination.contract import (
    Behind,
    Capabilities,
    Destination,
    Receipt,
    TableRows,
)
from penstock.destination.postgres import history
from penstock.destination.postgres.batch_merge import BatchMerge
from penstock.destination.postgres.copied_rows import forget_chunks, write_chunk
from penstock.destination.postgres.dead_letters import count_letters, forget_staged
from penstock.destination.postgres.merge import Odd, is_odd
from penstock.destination.postgres.options import PostgresOptions
from penstock.destination.postgres.own_tables import (
    check_rights,
    ensure_own_tables,
    forget_pipeline,
    has_own_tables,
    may_disable_triggers,
    refuse_actions,
)
from penstock.destination.postgres.progress import Progress, advance, read_progress, take_over
from penstock.destination.postgres.receipt import StagedBatch, total
from penstock.destination.postgres.session import (
    Connection,
    as_destination_error,
    destination_errors,
    is_passing,
    open_session,
)
from penstock.destination.postgres.stage import (
    LANES,
    Stage,
    StagedColumn,
    empty_stages,
    ensure_stages,
    staging_name,
)
from penstock.destination.postgres.table_names import TableNames
from penstock.destination.postgres.target_sequences import advance_sequences
from penstock.destination.postgres.target_table import TargetTable, ensure_targets
from penstock.destination.postgres.task_writer import PostgresWriter
from penstock.errors import DestinationError, DestinationUnavailable
from penstock.failpoints import failpoint
from penstock.lsn import Frontier, Position
from penstock.table_definition import TableDefinition
from penstock.table_schema import TableSchema

# A staging table that is scanned with less than this left over in it is not worth emptying.
_SWEEP_BYTES = 8 * 2**20
_SEQUENCES_SECONDS = 60.0


class PostgresDestination(Destination):
    """Executors stage, the driver merges: one transaction for all tables and the position."""

    name = "postgres"
    options_model = PostgresOptions
    capabilities = Capabilities(
        mode="merge",
        exactly_once=True,
        remembers=True,
        atomic=True,
        batch_age=0.1,
        tables_fail_alone=True,
    )

    def __init__(self, options: PostgresOptions, pipeline: str) -> None:
        super().__init__(options, pipeline)
        self._options = options
        self.capabilities = replace(self.capabilities, mode=options.mode)
        self._conn: Connection | None = None
        self._application = f"penstock {pipeline} driver"
        self._held = Progress(0, None, {})
        self._targets: dict[int, TargetTable] = {}
        self._lane = LANES[0]
        self._stages: dict[int, dict[int, Stage]] = {lane: {} for lane in LANES}
        self._left: dict[Stage, int] = {}
        self._sequences_due = 0.0

    # -- before the first batch ------------------------------------------------------------------

    def check(self) -> tuple[str, ...]:
        with self._session() as conn:
            return check_rights(conn, disable_triggers=self._options.disable_triggers)

    def open(self) -> None:
        with self._session() as conn:
            check_rights(conn, disable_triggers=self._options.disable_triggers)
            ensure_own_tables(conn)
            epoch = take_over(conn, self.pipeline, self._application)
            forget_staged(conn, self.pipeline)
            self._held = replace(self._progress(conn), epoch=epoch)

    def prepare(self, definitions: Sequence[TableDefinition]) -> None:
        names = TableNames(self._options.target_schema, self._options.tables)
        if self._options.mode == "append":
            definitions = [history.definition(table) for table in definitions]
        with self._session() as conn, conn.transaction():
            targets = ensure_targets(conn, definitions, names)
            if not self._triggers_are_off(conn):
                refuse_actions(conn, targets)
            extras = _extras(conn, targets)
            stages = {
                lane: [
                    self._stage(target, own, lane)
                    for target, own in zip(targets, extras, strict=True)
                ]
                for lane in LANES
            }
            ensure_stages(conn, [stage for lane in LANES for stage in stages[lane]])
        self._targets |= {target.source_oid: target for target in targets}
        for lane in LANES:
            self._stages[lane] |= {stage.oid: stage for stage in stages[lane]}

    def _stage(self, target: TargetTable, extras: tuple[str, ...], lane: int) -> Stage:
        columns = [column for column in target.columns if not column.is_generated]
        if self._options.mode == "append":
            columns = [column for column in columns if not history.is_own(column.name)]
        names = [column.name for column in columns]
        keyed = self._options.mode == "merge" and bool(target.merge_key)
        kind = "history" if self._options.mode == "append" else "keyed" if keyed else "counted"
        return Stage(
            oid=target.source_oid,
            source=target.source_qualified_name,
            target=(target.schema, target.name),
            staging=staging_name(self.pipeline, target.source_oid, lane),
            kind=kind,  # type: ignore[arg-type]
            columns=tuple(StagedColumn(c.name, c.type, c.is_user_defined) for c in columns),
            key=tuple(names.index(name) for name in target.merge_key) if keyed else (),
            extras=extras if keyed else (),
        )

    # -- batches ---------------------------------------------------------------------------------

    def committed(self) -> Frontier | None:
        return self._read().frontier

    def behind(self) -> Behind:
        return self._read().behind

    def task_writer(self) -> PostgresWriter:
        self._lane = LANES[(LANES.index(self._lane) + 1) % len(LANES)]
        return PostgresWriter(
            self._options.url,
            self.pipeline,
            self._lane,
            self._stages[self._lane],
            self._options.dead_letter,
        )

    def commit(
        self, receipts: Sequence[Receipt], frontier: Frontier, behind: Behind | None = None
    ) -> None:
        batch = StagedBatch.from_bytes(receipts)
        progress = Progress(self._held.epoch, frontier, dict(behind or {}))
        try:
            with self._session() as conn:
                try:
                    self._commit(conn, batch, progress, thorough=False)
                except (Odd, psycopg.Error) as error:
                    if not is_odd(error):
                        raise
                    self._commit(conn, batch, progress, thorough=True)
                self._held = progress
                # What is committed stays committed: a server that is lost here is lost to the next
                # batch.
                with suppress(DestinationUnavailable), destination_errors("tidying up"):
                    self._tidy(conn, batch)
        except psycopg.Error as error:
            raise as_destination_error(error, "committing a batch") from error

    def _commit(
        self, conn: Connection, batch: StagedBatch, progress: Progress, *, thorough: bool
    ) -> None:
        assert progress.frontier is not None  # noqa: S101 (a commit always has one)
        with conn.transaction():
            # First of all: it fences, and it holds a second driver up until we are done.
            advance(conn, self.pipeline, self._held, progress.frontier, progress.behind)
            if batch.runs:
                conn.execute("SET CONSTRAINTS ALL DEFERRED")
                merge = BatchMerge(
                    conn,
                    self.pipeline,
                    self._stages[batch.lane],
                    batch,
                    position=Position(progress.frontier.commit_lsn, 0),
                    strict=self._options.on_conflict == "error",
                    dead_letter=self._options.dead_letter,
                )
                merge.run(thorough=thorough)
            failpoint("postgres.merged")
        failpoint("postgres.committed")

    def _tidy(self, conn: Connection, batch: StagedBatch) -> None:
        """Empty staging tables that have grown, and let sequences follow now and then.

        A task that outlived its batch may still write to one: then it is left for later.
        """
        for oid, parts in batch.parts(with_truncated=True).items():
            stage = self._stages[batch.lane][oid]
            self._left[stage] = self._left.get(stage, 0) + total(parts, "bytes")
        # The other lane's are in use by the tasks of the next batch.
        stages = self._stages[batch.lane].values()
        full = [stage for stage in stages if self._left.get(stage, 0) > _SWEEP_BYTES]
        if full:
            with suppress(psycopg.errors.LockNotAvailable), conn.transaction():
                conn.execute("SET LOCAL lock_timeout = '200ms'")
                conn.execute("SET LOCAL synchronous_commit = off")
                empty_stages(conn, full)
                for stage in full:
                    del self._left[stage]
        if time.monotonic() > self._sequences_due:
            self._sequences_due = time.monotonic() + _SEQUENCES_SECONDS
            advance_sequences(conn, list(self._targets.values()))

    # -- copies ----------------------------------------------------------------------------------

    def truncate_table(self, table: TableSchema) -> None:
        if self._options.mode == "append":
            return
        with self._session() as conn, destination_errors("emptying a table"), conn.transaction():
            forget_chunks(conn, self.pipeline, self._stages[LANES[0]][table.oid])

    def write_table_rows(self, rows: TableRows, chunk: str) -> None:
        stage = self._stages[LANES[0]][rows.table.oid]
        with self._session() as conn, destination_errors("copying rows"), conn.transaction():
            write_chunk(conn, self.pipeline, stage, rows, chunk)

    # -- for people ------------------------------------------------------------------------------

    def dead_letters(self) -> Mapping[str, int]:
        with self._session() as conn, destination_errors("counting dead letters"):
            if not has_own_tables(conn):
                return {}
            return count_letters(conn, self.pipeline)

    def forget(self) -> Sequence[str]:
        with self._session() as conn, destination_errors("forgetting the pipeline"):
            return forget_pipeline(conn, self.pipeline)

    def close(self) -> None:
        if self._conn is None:
            return
        with suppress(psycopg.Error, DestinationError):
            if self._targets and not self._conn.closed:
                advance_sequences(self._conn, list(self._targets.values()))
        self._conn.close()
        self._conn = None

    # -- connection ------------------------------------------------------------------------------

    @contextmanager
    def _session(self) -> Iterator[Connection]:
        """The driver's connection, made again where it was lost."""
        if self._conn is None or self._conn.closed:
            self._conn = self._connect()
        try:
            yield self._conn
        except psycopg.Error as error:
            if is_passing(error):
                self._conn.close()
            raise
        except DestinationError:
            if self._conn.broken:
                self._conn.close()
            raise

    def _connect(self) -> Connection:
        # A commit must have reached the disk before it is confirmed to the source.
        conn = open_session(
            self._options.url,
            self._application,
            {"synchronous_commit": "on"},
        )
        with destination_errors("preparing the connection"):
            if self._triggers_are_off(conn):
                conn.execute("SET session_replication_role = replica")
        return conn

    def _triggers_are_off(self, conn: Connection) -> bool:
        return self._options.disable_triggers and may_disable_triggers(conn)

    def _read(self) -> Progress:
        with self._session() as conn, destination_errors("reading the position"):
            found = self._progress(conn)
        if found.epoch == self._held.epoch:
            # A commit whose answer was lost has happened, or has not: this tells.
            self._held = found
        return found

    def _progress(self, conn: Connection) -> Progress:
        found = read_progress(conn, self.pipeline) if has_own_tables(conn) else None
        return found or Progress(0, None, {})


def _extras(conn: Connection, targets: Sequence[TargetTable]) -> list[tuple[str, ...]]:
    """For each target the columns that only it has."""
    rows = conn.execute(
        "SELECT n.nspname, c.relname, array_agg(a.attname::text ORDER BY a.attnum)"
        " FROM unnest(%s::text[], %s::text[]) AS wanted (schema, name)"
        " JOIN pg_namespace n ON n.nspname = wanted.schema"
        " JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name"
        " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
        " AND a.attgenerated = '' GROUP BY 1, 2",
        [[target.schema for target in targets], [target.name for target in targets]],
    )
    columns = {(schema, name): names for schema, name, names in rows}
    return [
        tuple(
            name
            for name in columns.get((target.schema, target.name), ())
            if name not in {column.name for column in target.columns}
        )
        for target in targets
    ]
