"""The driver's side of the `clickhouse` destination."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

from penstock.destination.clickhouse.changes import ClickHouseChanges, ClickHouseReads
from penstock.destination.clickhouse.client import ClickHouseClient
from penstock.destination.clickhouse.ledger import ClickHouseLedger
from penstock.destination.clickhouse.names import (
    RowsTable,
    literal,
    own_comment,
    quoted,
    view_name,
)
from penstock.destination.clickhouse.options import ClickHouseOptions
from penstock.destination.clickhouse.rows import ClickHouseRows
from penstock.destination.clickhouse.server import check_server
from penstock.destination.clickhouse.sums import sum_query
from penstock.destination.clickhouse.tables import (
    alter_in_place,
    copy_rows,
    create_latest,
    create_table,
    create_view,
)
from penstock.destination.clickhouse.types import held
from penstock.destination.contract import Capabilities, ChunkWriter, SchemaChange, TaskWriter
from penstock.destination.families.change_tables.definition import is_change_table
from penstock.destination.families.change_tables.latest import latest_schema
from penstock.destination.families.kept_tables import Notes
from penstock.destination.families.staged_merge.unfit_policy import Unfit
from penstock.destination.families.target import Target
from penstock.destination.families.versioned.destination import VersionedDestination
from penstock.destination.families.versioned.task_writer import VersionedChunkWriter
from penstock.destination.protocols import CopiedByWorkers, TableSum, Ticket, Verifiable
from penstock.failpoints import failpoint
from penstock.model.errors import TableRefused, refused_alone
from penstock.model.lsn import Position
from penstock.model.schema_change import TableChange
from penstock.model.stored import Stored
from penstock.model.table_definition import TableDefinition

_NEVER = Position(0, 0)


@dataclass(frozen=True)
class _Whereabouts(Stored):
    """Of a table: where its rows are written, where readers see them, how many tables were made for
    it so far, and the last schema change that it followed.
    """

    written: RowsTable | None = None
    shown: RowsTable | None = None
    made: int = 0
    followed: Position = _NEVER


class ClickHouseDestination(VersionedDestination, CopiedByWorkers, Verifiable):
    """Holds every version of a row in a ReplacingMergeTree; readers see the last by a view. Or it
    holds every change, once, in another; readers see them, and the rows that they leave.
    """

    name = "clickhouse"
    options_model = ClickHouseOptions
    options: ClickHouseOptions
    chunks_stand = True
    failpoints = ("clickhouse.inserted", "clickhouse.emptied", "clickhouse.copy_shown")
    capabilities = Capabilities(
        mode="merge",
        exactly_once=True,
        remembers=True,
        atomic=False,
        batch_age=1.0,
        sends_at_once=True,
        older_loses=True,
    )

    def __init__(self, options: ClickHouseOptions, pipeline: str) -> None:
        super().__init__(options, pipeline)
        self.capabilities = replace(
            self.capabilities, mode=options.mode, older_loses=options.mode == "merge"
        )
        self._client = ClickHouseClient(options)
        self._position = _NEVER
        # Replaced, never changed, as the targets are.
        self._at: dict[int, RowsTable] = {}
        self._sums: dict[int, tuple[Target, TableSum]] = {}

    @cached_property
    def ledger(self) -> ClickHouseLedger:
        return ClickHouseLedger(self._client, self.pipeline)

    @property
    def store(self) -> ClickHouseRows:
        return ClickHouseRows(self._client, self.ledger, self._at, self._driver)

    def writer(self) -> TaskWriter:
        if self.capabilities.merges:
            return super().writer()
        return ClickHouseChanges(self.store, self._targets)

    def catchup_writer(self, tables: Collection[int]) -> TaskWriter:
        if self.capabilities.merges:
            return super().catchup_writer(tables)
        return ClickHouseChanges(self.store, {oid: self._targets[oid] for oid in tables})

    @property
    def unfit_policy(self) -> Unfit:
        return self.options.unfit

    def check(self) -> Sequence[str]:
        return check_server(self._client)

    def prepare(self, definitions: Sequence[TableDefinition]) -> None:
        super().prepare(definitions)
        with self._lock:
            for table in definitions:
                self._set(table.oid, self._whereabouts(table.oid).written)

    # -- tables ----------------------------------------------------------------------------------

    def create(self, table: TableDefinition, target: Target) -> None:
        """A table that is written, and shown to readers at once."""
        made = self._make(target)
        self._note(target.oid, written=made)
        self._show(target)

    def drop(self, target: Target) -> None:
        for name in self._own(target.oid):
            self._client.run(f"DROP TABLE IF EXISTS {name} SYNC", doing=f"dropping {name}")
        self._note(target.oid, written=None, shown=None)

    def fit_table(self, table: TableDefinition, former: Sequence[TableDefinition]) -> None:
        """Nothing that readers see: the copy has a table of its own, made for what it is now. A
        change table keeps what it has.
        """
        if not self.capabilities.merges:
            super().fit_table(table, former)
            return
        with self._changing() as notes:
            notes[f"table/{table.oid}"] = Target.of(table).to_text()

    def begin_copy(self, table: TableDefinition, target: Target) -> None:
        """A change table keeps its rows: they are history."""
        if not self.capabilities.merges:
            return
        made = self._make(target)
        self._note(target.oid, written=made)
        self._clean(target.oid)

    def chunk_writer(self, table: TableDefinition, *, again: bool = False) -> ChunkWriter:
        store = ClickHouseRows(self._client, self.ledger, self._at, None)
        target = self._targets[table.oid]
        if self.capabilities.merges:
            return VersionedChunkWriter(store, target)
        return ClickHouseReads(store, target, again)

    def chunk_ticket(self, table: TableDefinition, *, again: bool = False) -> Ticket:
        return {
            "table": self._at[table.oid].to_json(),
            "again": again,
            "target": self._targets[table.oid].to_text(),
        }

    def ticket_writer(self, table: TableDefinition, ticket: Ticket) -> ChunkWriter:
        """Into just the table that the driver made for this copy, or nowhere."""
        target = Target.of(table)
        if not self.capabilities.merges:
            target = replace(Target.from_text(ticket["target"]), source=target)
        self._targets = {**self._targets, table.oid: target}
        self._set(table.oid, RowsTable.from_json(ticket["table"]))
        return self.chunk_writer(table, again=ticket["again"])

    def complete_table(self, table: TableDefinition) -> None:
        """Readers see the table from now on, in place of what they saw before. A change table they
        see all the time.
        """
        if not self.capabilities.merges:
            return
        with self._changing():
            self._show(Target.of(table))
            failpoint("clickhouse.copy_shown")

    def has_foreign_rows(self, table: TableDefinition) -> bool:
        view = view_name(self.options, table.schema, table.name)
        if self._comment(view) in (None, self._own_comment(table.oid)):
            return False
        sql = f"SELECT 1 AS found FROM {_sql(view)} LIMIT 1"  # noqa: S608
        return bool(self._client.read(sql, doing=f"reading {_sql(view)}").num_rows)

    # -- verify ----------------------------------------------------------------------------------

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """ClickHouse has no snapshot that stays: all tables are added up while the pipeline stands
        still. Change tables are not: the source has nothing like them.
        """
        for oid, target in self._known().items() if self.capabilities.merges else ():
            if (shown := self._whereabouts(oid).shown) is not None:
                query = sum_query(held(target), shown)
                (found,) = self._client.read(query, doing=f"adding up {shown.sql}").to_pylist()
                self._sums[oid] = target, TableSum(int(found["rows"]), int(found["checksum"]))
        yield
        self._sums.clear()

    def table_sum(self, table: TableDefinition) -> TableSum | None:
        target, found = self._sums.get(table.oid, (None, None))
        return found if target == Target.of(table) else None

    # -- schema changes --------------------------------------------------------------------------

    def _alter(self, change: SchemaChange, targets: Mapping[int, Target], notes: Notes) -> None:
        self._position = change.position
        super()._alter(change, targets, notes)

    def alter(self, change: TableChange, before: Target, after: Target) -> None:
        """In place where the engine can. Else rows are carried over into another table, unless they
        are about to be copied anew.
        """
        there = self._whereabouts(after.oid)
        if there.written is None or there.followed >= self._position or change.before is None:
            return
        old_key = [before.columns[index] for index in before.key]
        if change.after is None or change.renamed.names(tuple(old_key)) != change.after.merge_key:
            raise TableRefused(
                f"table {after.qualified_name}: its key is another one, and so is the order of its "
                "rows",
                remedy=f"run `penstock tables resync` for {after.qualified_name}",
                table=after.oid,
            )
        with refused_alone(after.oid):
            self._follow_layout(change, before, after, there)
        self._note(after.oid, followed=self._position)

    def refit(self, change: TableChange, before: Target, after: Target) -> None:
        """Whatever was followed before."""
        there = self._whereabouts(after.oid)
        if there.written is not None:
            with refused_alone(after.oid):
                self._follow_layout(change, before, after, there)

    def _follow_layout(
        self, change: TableChange, before: Target, after: Target, there: _Whereabouts
    ) -> None:
        assert there.written is not None  # noqa: S101 (alter has seen it)
        doing = f"following a schema change of {after.qualified_name}"
        in_place = alter_in_place(change, before, after, there.written)
        if in_place:
            self._client.run(in_place, doing=doing)
        is_shown = there.shown == there.written
        if in_place is None:
            made = self._make(after)
            is_carried = is_change_table(after) or not change.is_rewrite
            if is_carried:
                sql = copy_rows(change, before, after, there.written, made)
                self._client.run(sql, doing=doing)
            self._note(after.oid, written=made)
            is_shown = is_shown and is_carried
        if is_shown:
            self._show(after)

    # -- where rows are --------------------------------------------------------------------------

    def _make(self, target: Target) -> RowsTable:
        """A new empty table. Its number is noted before, so that none has it again."""
        view = view_name(self.options, target.schema, target.name)
        self._expect_own(view, target)
        number = self._whereabouts(target.oid).made + 1
        made = RowsTable(*view, number)
        sql = create_table(target, made, self._own_comment(target.oid))
        self._note(target.oid, made=number)
        doing = f"making the table {made.sql}"
        with refused_alone(target.oid):
            self._client.run(f"CREATE DATABASE IF NOT EXISTS {quoted(view[0])}", doing=doing)
            self._client.run(f"DROP TABLE IF EXISTS {made.sql} SYNC", doing=doing)
            self._client.run(sql, doing=doing)
        return made

    def _show(self, target: Target) -> None:
        """Let readers see what is written, and remove what they saw before, also under another
        name.
        """
        there = self._whereabouts(target.oid)
        if there.written is None:
            raise TableRefused(
                f"table {target.qualified_name}: the table that it was copied into is gone",
                remedy=f"run `penstock tables resync` for {target.qualified_name}",
                table=target.oid,
            )
        comment, written = self._own_comment(target.oid), there.written
        shown, latest = (
            view_name(self.options, schema, target.name)
            for schema in (target.schema, latest_schema(target))
        )
        views = {shown: create_view(target, written, _sql(shown), comment)}
        if (sql := create_latest(target, written, _sql(latest), comment)) is not None:
            views[latest] = sql
        for view, sql in views.items():
            self._expect_own(view, target)
            database = quoted(view[0])
            self._client.run(f"CREATE DATABASE IF NOT EXISTS {database}", doing="making a view")
            self._client.run(sql, doing=f"letting {_sql(view)} be read")
        self._note(target.oid, shown=written)
        for name, is_view in self._own(target.oid).items():
            if is_view and name not in map(_sql, views):
                self._client.run(f"DROP VIEW IF EXISTS {name} SYNC", doing=f"dropping {name}")
        self._clean(target.oid)

    def _clean(self, oid: int) -> None:
        """Remove tables of earlier copies and layouts, which nobody reads or writes any more."""
        there = self._whereabouts(oid)
        kept = {table.sql for table in (there.written, there.shown) if table is not None}
        for name, is_view in self._own(oid).items():
            if not is_view and name not in kept:
                self._client.run(f"DROP TABLE IF EXISTS {name} SYNC", doing=f"dropping {name}")

    def _own_comment(self, oid: int) -> str:
        return own_comment(self.options, self.pipeline, oid)

    def _own(self, oid: int) -> dict[str, bool]:
        """What the pipeline made for a table, views first, and whether it is a view."""
        sql = (
            "SELECT database, name, engine = 'View' AS is_view FROM system.tables "  # noqa: S608
            f"WHERE comment = {literal(self._own_comment(oid))} ORDER BY is_view DESC"
        )
        found = self._client.read(sql, doing="looking for tables").to_pylist()
        return {_sql((row["database"], row["name"])): bool(row["is_view"]) for row in found}

    def _comment(self, view: tuple[str, str]) -> str | None:
        """What the comment of a table or view says; None where there is none of the name."""
        sql = (
            f"SELECT comment FROM system.tables WHERE database = {literal(view[0])} "  # noqa: S608
            f"AND name = {literal(view[1])}"
        )
        found: list[str] = self._client.read(sql, doing="looking for tables")[0].to_pylist()
        return found[0] if found else None

    def _expect_own(self, view: tuple[str, str], target: Target) -> None:
        if self._comment(view) not in (None, self._own_comment(target.oid)):
            raise TableRefused(
                f"table {target.qualified_name}: {_sql(view)} is there already, and this pipeline "
                "did not make it",
                remedy="rename or drop it, or set destination.database to another pattern; then "
                f"run `penstock tables resync` for {target.qualified_name}",
                table=target.oid,
            )

    def _whereabouts(self, oid: int) -> _Whereabouts:
        name = f"at/{oid}"
        found = self.ledger.read(name).get(name)
        return _Whereabouts.from_json(json.loads(found)) if found else _Whereabouts()

    def _note(self, oid: int, **what: object) -> None:
        noted = replace(self._whereabouts(oid), **what)  # type: ignore[arg-type]
        self.ledger.write(self._driver, {f"at/{oid}": json.dumps(noted.to_json())})
        self._set(oid, noted.written)

    def _set(self, oid: int, written: RowsTable | None) -> None:
        others = {table: at for table, at in self._at.items() if table != oid}
        self._at = others if written is None else {**others, oid: written}


def _sql(view: tuple[str, str]) -> str:
    return f"{quoted(view[0])}.{quoted(view[1])}"
