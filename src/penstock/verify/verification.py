"""`penstock verify`: one pipeline's source and destination, compared at one position."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg

from penstock.changelog.barrier import Barrier
from penstock.changelog.changelog import ChangeLog
from penstock.config.models import PipelineConfig
from penstock.config.table_patterns import split_name
from penstock.destination.contract import Destination
from penstock.destination.postgres.options import PostgresOptions
from penstock.destination.postgres.targets.table_names import TableNames
from penstock.destination.protocols import Verifiable
from penstock.destination.registry import make_destination
from penstock.model.errors import ConfigError, SourceError, SourceUnavailable
from penstock.model.lsn import Frontier, format_lsn, parse_lsn
from penstock.model.table_definition import TableDefinition
from penstock.model.table_name import TableName
from penstock.model.watermarks import Watermarks
from penstock.pipeline.run.batch_committer import Delivered
from penstock.pipeline.run.engine import MakeEngine
from penstock.pipeline.run.filtering import pipeline_filter, pipeline_transform
from penstock.pipeline.run.pipeline import Observers, Pipeline
from penstock.source.contract import Subscription
from penstock.source.postgres.catalogue.definitions import read_definitions
from penstock.source.postgres.connect import connect
from penstock.source.postgres.pipeline_lock import RETAKEN_SECONDS, PipelineLock
from penstock.source.postgres.source_errors import source_errors
from penstock.source.postgres.subscription.subscription import SLOT_WAIT_SECONDS, find_subscription
from penstock.source.registry import expect_postgres
from penstock.verify.compare import (
    DEFAULT_PARALLEL,
    DEFAULT_SHOWN,
    Observe,
    compare_snapshots,
    ignore,
)
from penstock.verify.constraints import check_constraints
from penstock.verify.engine_sums import EngineVerdict, not_at
from penstock.verify.report import TableComparison, VerifyReport
from penstock.verify.rewritten import rewritten_since, without_rewritten
from penstock.verify.snapshot import ComparedSnapshot
from penstock.verify.source_point import SourcePoint, source_point
from penstock.verify.table_pair import TablePair
from penstock.verify.target_point import TargetPoint

DEFAULT_WAIT_SECONDS = 600.0

_NARROWED = "filter.rows has a condition for it: the destination holds some of its rows"
_log = logging.getLogger(__name__)


def verify(
    config: PipelineConfig,
    file: Path,
    *,
    parallel: int = DEFAULT_PARALLEL,
    shown: int = DEFAULT_SHOWN,
    wait: float = DEFAULT_WAIT_SECONDS,
    slot_wait: float = SLOT_WAIT_SECONDS,
    make_engine: MakeEngine | None = None,
    observe: Observe = ignore,
) -> VerifyReport:
    """Compare the pipeline's tables at a position of now.

    A running pipeline pauses there until the destination's rows are pinned in a snapshot, and goes
    on while these are compared. One that does not run is run up to there, by Spark unless
    ``make_engine`` says otherwise. ``wait`` is how many seconds the destination may take to get
    there.
    """
    expect_postgres(config, "verify")
    destination = _verified(config)
    application = f"penstock {config.delivery} verify"
    log = ChangeLog.of(config.change_log)
    with ExitStack() as stack:
        conn = stack.enter_context(connect(config.source.url, application_name=application))
        stack.enter_context(PipelineLock(conn, config.delivery, what="verify"))
        subscription = _subscription(conn, config.name)
        # First a point that is certain to come before the slot's: so that the pipeline cannot pass
        # the slot's while it is being made.
        reader = config.delivery if config.is_one_of_many else None
        with Barrier(log, _insert_lsn(conn), reader) as barrier:
            barrier.wait_noticed()
            source = stack.enter_context(source_point(config.source.url, application, slot_wait))
            barrier.move(source.lsn)
            _move_wal(conn)
            _log.info(
                "comparing at %s; waiting for the destination to get there", format_lsn(source.lsn)
            )
            deadline = time.monotonic() + wait
            driver = _Driver(config, file, conn, source.lsn, deadline, make_engine)
            options, engine = destination.options, None
            if isinstance(options, PostgresOptions):
                target = TargetPoint(options.url, application, config.delivery)
                snapshot, progress, drove = target.reach(source.lsn, driver, deadline)
                stack.callback(snapshot.close)
            else:
                stack.callback(destination.close)
                engine = EngineVerdict(destination, source.lsn)
                drove = engine.reach(driver, deadline)
                at = stack.enter_context(engine.pinned())
        if engine is not None:
            return _by_engine(config, engine, source, subscription, at, drove=drove)
        definitions = _definitions(config, source, subscription)
        transform = pipeline_transform(config)
        changed = {} if transform is None else {t.oid: transform.differing(t) for t in definitions}
        names = TableNames(options.target_schema, options.tables)
        behind = progress.watermarks.behind if progress.watermarks else {}
        set_aside = _not_compared(definitions, names, behind, subscription.insert_only)
        # Constraints hold of rows that were changed, too.
        held = [_pair(table, names) for table in definitions if table.oid not in set_aside]
        set_aside |= _transformed(definitions, names, changed, set_aside)
        set_aside |= _narrowed(definitions, names, config.filter.rows, set_aside)
        pairs = [
            _without(_pair(table, names), changed.get(table.oid, set()))
            for table in definitions
            if table.oid not in set_aside
        ]
        compared = compare_snapshots(
            source.snapshot, snapshot, pairs, parallel=parallel, shown=shown, observe=observe
        )
        constraints = check_constraints(snapshot, held, parallel=parallel)
        # Last: what was rewritten after this look was compared before.
        compared = _without_rewritten(compared, pairs, source.snapshot, snapshot)
        return VerifyReport(
            config.delivery,
            source.lsn,
            drove,
            tuple(sorted([*compared, *set_aside.values()], key=lambda table: table.source)),
            tuple(constraints),
        )


def _by_engine(
    config: PipelineConfig,
    engine: EngineVerdict,
    source: SourcePoint,
    subscription: Subscription,
    at: Watermarks,
    *,
    drove: bool,
) -> VerifyReport:
    """The report where the destination's engine counts and sums. Its snapshot is pinned."""
    definitions = _definitions(config, source, subscription)
    transform = pipeline_transform(config)
    set_aside = not_at(definitions, at.behind, subscription.insert_only)
    narrowed = {split_name(name) for name in config.filter.rows}
    for table in definitions:
        if transform is not None and transform.differing(table):
            reason = "rules change its values, and sums would differ"
        elif (table.schema, table.name) in narrowed:
            reason = _NARROWED
        else:
            continue
        name = table.qualified_name
        set_aside.setdefault(table.oid, TableComparison(name, name, skipped=reason))
    tables = [table for table in definitions if table.oid not in set_aside]
    compared = [*engine.compare(source.snapshot, tables), *set_aside.values()]
    ordered = tuple(sorted(compared, key=lambda table: table.source))
    return VerifyReport(config.delivery, source.lsn, drove, ordered, ())


def _definitions(
    config: PipelineConfig, source: SourcePoint, subscription: Subscription
) -> Sequence[TableDefinition]:
    """The tables that the pipeline follows, as they are at the position."""
    with source.snapshot.asked() as conn:
        definitions = read_definitions(conn, subscription.tables, subscription.publications)
    wanted = pipeline_filter(config, holds_rows=True)
    return definitions if wanted is None else wanted.definitions(definitions)


def _without_rewritten(
    compared: Sequence[TableComparison],
    pairs: Sequence[TablePair],
    source: ComparedSnapshot,
    target: ComparedSnapshot,
) -> list[TableComparison]:
    """The results, without those of tables that one side emptied under the snapshot."""
    gone = rewritten_since(source, [pair.source for pair in pairs])
    gone_there = rewritten_since(target, [pair.target for pair in pairs])
    changed = {str(p.source) for p in pairs if p.source in gone or p.target in gone_there}
    return without_rewritten(compared, changed)


def _verified(config: PipelineConfig) -> Destination:
    """The destination, which has rows to compare with. Raises ConfigError where it has none."""
    destination = make_destination(
        config.destination_type, config.destination_options, config.delivery
    )
    if not isinstance(destination.options, PostgresOptions) and not isinstance(
        destination, Verifiable
    ):
        raise ConfigError(
            f"`penstock verify` compares two databases; the destination of pipeline "
            f"{config.delivery} is {config.destination_type}.",
            remedy="Only postgres, ducklake, delta, iceberg, clickhouse, redshift, bigquery and "
            "snowflake can be verified.",
        )
    if not destination.capabilities.merges:
        raise ConfigError(
            f"Pipeline {config.delivery} keeps the history of its tables (destination.mode: "
            f"{destination.capabilities.mode}), not their rows, so there is nothing to compare "
            "with.",
            remedy="Only the mode merge can be verified.",
        )
    return destination


def _subscription(conn: psycopg.Connection[Any], name: str) -> Subscription:
    found = find_subscription(conn, name)
    if found is None:
        raise SourceError(
            f"Pipeline {name} has no publication and slot in the source, so nothing was ever "
            "replicated.",
            remedy="Start it with `penstock run FILE`.",
        )
    return found


def _insert_lsn(conn: psycopg.Connection[Any]) -> int:
    """Where the next WAL record begins."""
    with source_errors("asking for the source's WAL position"):
        row = conn.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None  # noqa: S101 (a SELECT without FROM has one row)
    return parse_lsn(row[0])


def _move_wal(conn: psycopg.Connection[Any]) -> None:
    """Commit something that capture sees: else an idle source would never get past the point."""
    with source_errors("writing a logical message"):
        conn.execute("SELECT pg_logical_emit_message(true, 'penstock.verify', '')")


class _Driver:
    """Runs the pipeline up to the barrier, if it does not run already."""

    def __init__(
        self,
        config: PipelineConfig,
        file: Path,
        conn: psycopg.Connection[Any],
        lsn: int,
        deadline: float,
        make_engine: MakeEngine | None,
    ) -> None:
        self._config = config
        self._file = file
        self._conn = conn
        self._lsn = lsn
        self._deadline = deadline
        self._make_engine = make_engine
        self._reached = False

    def __call__(self) -> bool:
        if self._is_running():
            return False
        from penstock.spark.engine import SparkEngine

        _log.info("the pipeline does not run; running it up to there")
        make_engine = self._make_engine or SparkEngine
        observers = Observers(delivered=self._observe)
        Pipeline(self._config, self._file, make_engine, observers=observers).run(self._is_over)
        return True

    def _is_over(self) -> bool:
        return self._reached or time.monotonic() > self._deadline

    def _is_running(self) -> bool:
        """Whether somebody holds the pipeline's lock. One whose connection was just cut takes it
        again: only a lock that stays free is nobody's.
        """
        last_look = time.monotonic() + RETAKEN_SECONDS
        while not self._is_locked():
            if time.monotonic() > last_look:
                return False
            time.sleep(0.1)
        return True

    def _is_locked(self) -> bool:
        try:
            with PipelineLock(self._conn, self._config.delivery, patience=0):
                return False
        except SourceUnavailable:
            raise
        except SourceError:
            return True

    def _observe(self, delivered: Delivered) -> None:
        self._reached = delivered.frontier.end_lsn >= self._lsn


def _pair(table: TableDefinition, names: TableNames) -> TablePair:
    """Every column but those that a publication's column list or the filter leaves out."""
    columns = [
        c.name
        for c in table.columns
        if c.is_delivered or (c.generated is not None and not c.ignored)
    ]
    return TablePair(
        TableName(table.schema, table.name),
        TableName(*names.target(table.schema, table.name)),
        tuple(columns),
        table.merge_key,
    )


def _without(pair: TablePair, changed: Collection[str]) -> TablePair:
    """The pair without the columns whose values rules change on the way."""
    return pair._replace(columns=tuple(name for name in pair.columns if name not in changed))


def _transformed(
    definitions: Sequence[TableDefinition],
    names: TableNames,
    changed: Mapping[int, Collection[str]],
    set_aside: Collection[int],
) -> dict[int, TableComparison]:
    """Tables whose rows cannot be brought together: rules change their keys, or any column by which
    they would be found.
    """
    found = {}
    for table in definitions:
        columns = changed.get(table.oid, ())
        key = table.merge_key or tuple(column.name for column in table.columns)
        if table.oid not in set_aside and any(name in columns for name in key):
            pair = _pair(table, names)
            found[table.oid] = TableComparison(
                str(pair.source),
                str(pair.target),
                skipped="rules change the columns that tell its rows apart; the others cannot be "
                "compared without them",
            )
    return found


def _narrowed(
    definitions: Sequence[TableDefinition],
    names: TableNames,
    conditions: Collection[str],
    set_aside: Collection[int],
) -> dict[int, TableComparison]:
    """Tables of which the destination holds some rows."""
    narrowed = {split_name(name) for name in conditions}
    found = {}
    for table in definitions:
        if table.oid not in set_aside and (table.schema, table.name) in narrowed:
            pair = _pair(table, names)
            found[table.oid] = TableComparison(
                str(pair.source), str(pair.target), skipped=_NARROWED
            )
    return found


def _not_compared(
    definitions: Sequence[TableDefinition],
    names: TableNames,
    behind: Mapping[int, Frontier],
    insert_only: Sequence[TableName],
) -> dict[int, TableComparison]:
    """The tables that are not at the position, or need not be the same, with the reason."""
    found = {}
    for table in definitions:
        pair = _pair(table, names)
        result = TableComparison(str(pair.source), str(pair.target))
        if table.oid in behind:
            reason = f"it stands at {format_lsn(behind[table.oid].end_lsn)}, behind the others"
            found[table.oid] = replace(result, not_compared=reason)
        elif pair.source in insert_only:
            reason = "only its inserts and truncates are followed"
            found[table.oid] = replace(result, skipped=reason)
    return found
