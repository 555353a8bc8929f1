"""Which changes, events and copied rows go on to the destination, and with which columns.

Tables and operations are decided first, from what is known without decoding a value. Then come the
conditions, which decode the columns that they need, and columns that are not wanted go last, so
that a condition may use them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.config.filter_config import FilterColumnsConfig, FilterConfig
from penstock.config.table_patterns import split_name
from penstock.decode.changes import (
    ChangeSet,
    MessageEvent,
    TableChanges,
    TruncateEvent,
    take_rows,
)
from penstock.decode.given_image import GivenColumn, Values
from penstock.decode.image import Mask
from penstock.decode.row_values import RowValues
from penstock.model.errors import ConfigError, DecodeError
from penstock.model.table_definition import TableDefinition
from penstock.model.table_rows import ChunkReader, TableRows
from penstock.model.table_schema import TableSchema
from penstock.pgoutput import tuples
from penstock.pgoutput.tuples import ROW_OPS, Ints
from penstock.transform.changed_chunk import ChangedChunkReader, EmptyChunkReader
from penstock.transform.row_condition import RowCondition
from penstock.transform.step import Step

_NO_ROWS: Ints = np.zeros(0, np.int64)


Reason = Literal["table", "operation", "row"]
"""What kept something out: its table, its operation, or the condition for rows."""


@dataclass(frozen=True)
class _Plan:
    """What becomes of one table. ``columns`` None: all of them."""

    wanted: bool
    condition: RowCondition | None = None
    columns: tuple[int, ...] | None = None


class Filter(Step):
    """The part ``filter`` of the pipeline file at work. Can be pickled.

    ``filtered`` counts what did not pass since it was made, by table and reason: changes, copied
    rows, messages (of no table), and a truncate once for each of its tables. A copy that was
    unpickled begins at zero.

    ``holds_rows``: the destination holds the rows that meet the conditions. It is told of one that
    begins to meet its condition as inserted, and of one that ceases to as deleted.

    ``hides`` tells of a table whether its values must not show in errors; it can be pickled.
    """

    def __init__(
        self,
        config: FilterConfig,
        *,
        holds_rows: bool = False,
        hides: Callable[[str, str], bool] | None = None,
    ) -> None:
        self._holds_rows = holds_rows
        self._hides = hides
        self._patterns = config.tables.patterns
        self._operations = config.operations.passing
        self._columns = {split_name(table): rule for table, rule in config.columns.items()}
        self._conditions = {
            split_name(table): RowCondition.parse(text) for table, text in config.rows.items()
        }
        self.filtered: Counter[tuple[str, str]] = Counter()
        self._plans: dict[TableSchema, _Plan] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "filtered": Counter(), "_plans": {}}

    # -- before rows come

    def passes_table(self, schema: str, table: str) -> bool:
        """Whether anything of the table can pass."""
        return self._patterns.matches(schema, table)

    def passes_schema_event(self, schema: str, table: str) -> bool:
        """Whether events about schema changes of the table pass."""
        return "schema" in self._operations and self.passes_table(schema, table)

    @property
    def passes_truncates(self) -> bool:
        return "truncate" in self._operations

    def passing_columns(self, table: TableSchema) -> TableSchema:
        """The table with the columns that pass. Raises ConfigError where columns or conditions do
        not suit it.
        """
        columns = self._plan(table).columns
        return table if columns is None else _narrowed(table, columns)

    def definition(self, table: TableDefinition) -> TableDefinition:
        """The table without the columns that do not pass. Raises ConfigError where the key by which
        its rows are found is among them, or where it has a condition and Postgres does not send
        whole old rows.
        """
        if self._narrows_rows(table):
            if table.replica_identity != "f":
                raise _without_old_rows(table.qualified_name)
            table = self.marked(table)
        passing = self._passing_names(table)
        if passing is not None:
            _check_key(table.qualified_name, passing, table.merge_key)
        return self.narrowed(table)

    def narrowed(self, table: TableDefinition) -> TableDefinition:
        """The same for those who do not look for rows by their key."""
        passing = self._passing_names(table)
        if passing is None:
            return table
        columns = (replace(c, ignored=c.ignored or c.name not in passing) for c in table.columns)
        return replace(table, columns=tuple(columns))

    def _passing_names(self, table: TableDefinition) -> Collection[str] | None:
        """The columns that pass; None for all."""
        rule = self._columns.get((table.schema, table.name))
        names = [column.name for column in table.columns]
        return None if rule is None else _passing(table.qualified_name, names, rule)

    def marked(self, table: TableDefinition) -> TableDefinition:
        if not self._narrows_rows(table):
            return replace(table, rows="")
        condition = self._conditions[table.schema, table.name]
        mark = hashlib.sha256(condition.text.encode()).hexdigest()[:16]
        return replace(table, rows=mark)

    def _narrows_rows(self, table: TableDefinition | TableSchema) -> bool:
        """Whether the destination holds some of the table's rows."""
        return self._holds_rows and (table.schema, table.name) in self._conditions

    # -- rows

    def take_filtered(self) -> Counter[tuple[str, str]]:
        """What did not pass since the last time; it is counted anew from here."""
        taken, self.filtered = self.filtered, Counter()
        return taken

    def apply(self, changes: ChangeSet) -> ChangeSet:
        """What passes. Raises ConfigError where columns or conditions do not suit a table."""
        return ChangeSet(
            self._tables(changes.tables),
            tuple(self._truncates(changes.truncates)),
            self._messages(changes.messages),
        )

    def copied(self, reader: ChunkReader) -> ChunkReader:
        """The chunk as far as it passes: the reader itself where all of it does."""
        plan = self._plan(reader.table)
        if not plan.wanted or "read" not in self._operations:
            return EmptyChunkReader(reader)
        if plan.condition is None and plan.columns is None:
            return reader
        return ChangedChunkReader(reader, self.passing_columns(reader.table), self.apply_rows)

    def read_again(self, rows: TableRows) -> TableRows:
        passing = self.apply_rows(rows)
        if passing is not None:
            return passing
        table = self.passing_columns(rows.table)
        return replace(
            rows,
            table=table,
            columns=tuple(pa.array([], pa.string()) for _ in table.columns),
            count=0,
        )

    def apply_rows(self, rows: TableRows) -> TableRows | None:
        """What passes of rows that were copied; None where nothing does."""
        plan = self._plan(rows.table)
        if not plan.wanted:
            self._keep_out(rows.table, "table", len(rows))
            return None
        if "read" not in self._operations:
            self._keep_out(rows.table, "operation", len(rows))
            return None
        if (passing := self._passing_rows(rows, plan.condition)) is not None and not passing.all():
            mask, count = pa.array(passing), int(np.count_nonzero(passing))
            self._keep_out(rows.table, "row", len(rows) - count)
            columns = tuple(column.filter(mask) for column in rows.columns)
            rows = replace(rows, columns=columns, count=count)
        if plan.columns is not None:
            rows = replace(
                rows,
                table=_narrowed(rows.table, plan.columns),
                columns=tuple(rows.columns[column] for column in plan.columns),
            )
        return rows if len(rows) else None

    def _passing_rows(self, rows: TableRows, condition: RowCondition | None) -> Mask | None:
        if condition is None:
            return None
        with self._shown(rows.table):
            return condition.passing_rows(rows)

    @contextmanager
    def _shown(self, table: TableSchema) -> Iterator[None]:
        """A condition is asked inside of the block. Raises DecodeError, without the value that is
        none of its type where the table's are to be hidden.
        """
        try:
            yield
        except (DecodeError, pa.ArrowInvalid) as error:
            if self._hides is None or not self._hides(table.schema, table.name):
                raise
            raise DecodeError(
                f"table {table.qualified_name}: its condition in filter.rows meets a value that is "
                "not what Postgres writes for the column's type; it is not shown, since rules "
                "change values of the table",
                remedy=getattr(error, "remedy", "") or "Correct the condition.",
            ) from None

    def _tables(self, tables: tuple[TableChanges, ...]) -> tuple[TableChanges, ...]:
        kept = take_rows(tables, [self._wanted(changes) for changes in tables])
        kept = tuple(changes for changes in kept if len(changes))
        if self._holds_rows:
            kept = tuple(map(self._told, kept))
        else:
            kept = take_rows(kept, [self._meeting(changes) for changes in kept])
        return tuple(self._narrow(changes) for changes in kept if len(changes))

    def _wanted(self, changes: TableChanges) -> Ints | None:
        """The changes that table and operation let pass; None for all."""
        if not self._plan(changes.table).wanted:
            self._keep_out(changes.table, "table", len(changes))
            return _NO_ROWS
        if self._operations >= set(ROW_OPS.values()):
            return None
        passing = np.zeros(256, bool)
        passing[[op for op, name in ROW_OPS.items() if name in self._operations]] = True
        rows = np.flatnonzero(passing[changes.op])
        self._keep_out(changes.table, "operation", len(changes) - len(rows))
        return None if len(rows) == len(changes) else rows

    def _meeting(self, changes: TableChanges) -> Ints | None:
        """The changes that the table's condition lets pass; None for all."""
        condition = self._plan(changes.table).condition
        if condition is None:
            return None
        with self._shown(changes.table):
            rows = np.flatnonzero(condition.passing(changes))
        self._keep_out(changes.table, "row", len(changes) - len(rows))
        return None if len(rows) == len(changes) else rows

    def _told(self, changes: TableChanges) -> TableChanges:
        """What is to be told of the table to who holds the rows that meet its condition."""
        condition = self._plan(changes.table).condition
        if condition is None:
            return changes
        has_old = np.zeros(len(changes), bool)
        has_old[changes.old_rows] = changes.old_is_full
        if not has_old[changes.op != tuples.INSERT].all():
            raise _without_old_rows(changes.table.qualified_name)
        with self._shown(changes.table):
            was_in, is_in = condition.membership(changes)
        rows = np.flatnonzero(was_in | is_in)
        self._keep_out(changes.table, "row", len(changes) - len(rows))
        came = was_in[rows] < is_in[rows]
        op = np.where(came, tuples.INSERT, np.where(is_in[rows], tuples.UPDATE, tuples.DELETE))
        changes = changes.take(rows) if len(rows) < len(changes) else changes
        if (op == changes.op).all():
            return changes
        return _completed(changes).told_as(op.astype(np.uint8))

    def _narrow(self, changes: TableChanges) -> TableChanges:
        columns = self._plan(changes.table).columns
        return changes if columns is None else changes.select(columns)

    def _truncates(self, events: tuple[TruncateEvent, ...]) -> Iterator[TruncateEvent]:
        for event in events:
            tables = tuple(table for table in event.tables if self._wants_truncate(table))
            if tables:
                yield replace(event, tables=tables) if len(tables) < len(event.tables) else event

    def _wants_truncate(self, table: TableSchema) -> bool:
        if not self._plan(table).wanted:
            self._keep_out(table, "table", 1)
            return False
        if "truncate" not in self._operations:
            self._keep_out(table, "operation", 1)
            return False
        return True

    def _messages(self, events: tuple[MessageEvent, ...]) -> tuple[MessageEvent, ...]:
        if "message" in self._operations:
            return events
        self._keep_out(None, "operation", len(events))
        return ()

    def _keep_out(self, table: TableSchema | None, reason: Reason, count: int) -> None:
        if count:
            self.filtered[table.qualified_name if table else "", reason] += count

    def _plan(self, table: TableSchema) -> _Plan:
        plan = self._plans.get(table)
        if plan is None:
            plan = self._plans[table] = self._made_plan(table)
        return plan

    def _made_plan(self, table: TableSchema) -> _Plan:
        if not self.passes_table(table.schema, table.name):
            return _Plan(wanted=False)
        name = table.schema, table.name
        condition, rule = self._conditions.get(name), self._columns.get(name)
        if condition is not None:
            condition.check(table)
        return _Plan(True, condition, None if rule is None else _selected(table, rule))


def _completed(changes: TableChanges) -> TableChanges:
    """The changes with what a new row left out, since it did not change, taken from the old one."""
    values, columns = RowValues(changes), list[int | GivenColumn](range(len(changes.table.columns)))
    for number in range(len(columns)):
        if changes.new_unset(number).any():
            text = values.text(number).take(pa.array(changes.new_rows))
            old = Values(changes.old_text(number), changes.old_unset(number))
            columns[number] = GivenColumn(Values(text), old)
    return changes.with_columns(changes.table, columns)


def _without_old_rows(table: str) -> ConfigError:
    return ConfigError(
        f"filter.rows: table {table} has a condition, and the destination holds its rows: whether "
        "a row that changes has met the condition before is known only if Postgres sends old rows "
        "whole.",
        remedy=f"ALTER TABLE {table} REPLICA IDENTITY FULL at the source (of a partitioned table "
        "also for each of its partitions); if changes have come before that, run `penstock tables "
        "resync` for it. Or leave the rows out with a WHERE clause of a publication of your own "
        "(Postgres 15 and later), or take the condition away.",
    )


def _selected(table: TableSchema, rule: FilterColumnsConfig) -> tuple[int, ...] | None:
    names = [column.name for column in table.columns]
    passing = _passing(table.qualified_name, names, rule)
    # Under FULL every column counts as one of the key: what is left of a row still tells it.
    if table.replica_identity != "f":
        key = [names[number] for number in table.key_columns]
        _check_key(table.qualified_name, passing, key)
    columns = tuple(number for number, name in enumerate(names) if name in passing)
    return None if len(columns) == len(names) else columns


def _passing(table: str, names: Sequence[str], rule: FilterColumnsConfig) -> Collection[str]:
    if rule.include is None:
        return set(names) - set(rule.exclude or ())
    for name in rule.include:
        if name not in names:
            raise ConfigError(
                f"filter.columns: {table} has no column {name}; it has {', '.join(names)}.",
                remedy="Correct or remove the name in the pipeline file.",
            )
    return rule.include


def _check_key(table: str, passing: Collection[str], key: Collection[str]) -> None:
    for name in key:
        if name not in passing:
            raise ConfigError(
                f"filter.columns: column {name} of {table} does not pass, but it belongs to the "
                "key, without which rows could not be found again.",
                remedy=f"Take {name} out of exclude, or put it into include.",
            )


def _narrowed(table: TableSchema, columns: Sequence[int]) -> TableSchema:
    return replace(table, columns=tuple(table.columns[column] for column in columns))
