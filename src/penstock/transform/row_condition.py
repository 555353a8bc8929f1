"""Which changes and copied rows of a table a condition lets through.

A change passes unless the condition is known not to hold: what a condition needs and nobody sent,
or what has no Arrow form, is not decided, and nothing undecided is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from penstock.config.row_condition_tree import SUPPORTED, ConditionError, Node
from penstock.decode.changes import TableChanges
from penstock.decode.image import Mask
from penstock.decode.row_values import RowValues
from penstock.decode.typed import TypedColumn, decode_text
from penstock.model.errors import ConfigError, DecodeError
from penstock.model.table_rows import TableRows
from penstock.model.table_schema import TableSchema
from penstock.pgoutput import tuples
from penstock.pgoutput.tuples import Ints
from penstock.transform.row_condition_binding import bind
from penstock.transform.row_condition_operators import Run


@dataclass(frozen=True)
class RowCondition:
    """One condition: its text, and the tree that was made of it. Can be pickled."""

    text: str
    tree: Node

    @classmethod
    def parse(cls, text: str) -> RowCondition:
        """Raises ConditionError."""
        # Late: sqlglot takes its time, and executors get trees.
        from penstock.config.row_condition_syntax import parse_condition

        return cls(text, parse_condition(text))

    def check(self, table: TableSchema) -> None:
        """Raises ConfigError where the table's columns or their types do not suit."""
        self._bound(table)

    def passing(self, changes: TableChanges) -> Mask:
        """For each change whether it passes.

        Inserts pass by their new row, deletes by their old one, updates by either: also where a
        row only leaves the set. An old row speaks for an update only where it is known to meet
        the condition.
        """
        run = self._bound(changes.table)
        new = run(_NewRows(changes))
        passing = np.zeros(len(changes), bool)
        passing[changes.new_rows] = new.true | new.odd
        if len(changes.old_rows):
            old = run(_OldRows(changes))
            is_delete = changes.op[changes.old_rows] == tuples.DELETE
            passing[changes.old_rows] |= old.true | (old.odd & is_delete)
        return passing

    def passing_rows(self, rows: TableRows) -> Mask:
        """For each copied row whether it passes."""
        found = self._bound(rows.table)(_CopiedRows(rows))
        return found.true | found.odd

    def _bound(self, table: TableSchema) -> Run:
        try:
            return bind(self.tree, table)
        except ConditionError as error:
            raise ConfigError(
                f"filter.rows: the condition of {table.qualified_name}, {self.text!r}, is wrong at "
                f"character {error.at}: {error.why}.",
                remedy=f"Conditions are made of {SUPPORTED}. docs/filters.md has examples.",
            ) from None


class _NewRows:
    """Rows after inserts and updates; what was not sent is taken from the old row if that has it,
    since it did not change.
    """

    def __init__(self, changes: TableChanges) -> None:
        self._changes = changes

    @property
    def count(self) -> int:
        return len(self._changes.new_rows)

    def text(self, column: int) -> tuple[pa.Array, Mask | None]:
        changes = self._changes
        source, unset = self._source(column)
        if source is None:
            return changes.new_text(column), unset
        texts = pa.concat_arrays([changes.new_text(column), changes.old_text(column)])
        return texts.take(source), unset

    def typed(self, column: int) -> tuple[TypedColumn, Mask | None]:
        changes = self._changes
        source, unset = self._source(column)
        new = changes.new_typed(column)
        if source is None:
            return new, unset
        old = changes.old_typed(column)
        values = pa.concat_arrays([new.values, old.values]).take(source)
        if new.unrepresentable is None and old.unrepresentable is None:
            return TypedColumn(values), unset
        odd = [_odd(new), _odd(old)]
        return TypedColumn(values, pa.concat_arrays(odd).take(source)), unset

    def _source(self, column: int) -> tuple[pa.Array | None, Mask | None]:
        """Which image each row takes the column from, new ones counted before old ones, where
        that is not always the new one; and where none has it.
        """
        unset = self._changes.new_unset(column)
        if not unset.any():
            return None, None
        has_old = self._old_of_new >= 0
        fill = unset & has_old
        fill[fill] = self._values.old_has(column)[self._old_of_new[fill]]
        if not fill.any():
            return None, unset
        places = np.where(fill, self.count + self._old_of_new, np.arange(self.count))
        return pa.array(places), unset & ~fill

    @cached_property
    def _values(self) -> RowValues:
        return RowValues(self._changes)

    @cached_property
    def _old_of_new(self) -> Ints:
        """The old image of the same change for each new one; -1 where there is none."""
        changes = self._changes
        number = np.full(len(changes), -1, np.int64)
        number[changes.old_rows] = np.arange(len(changes.old_rows))
        return number[changes.new_rows]


class _OldRows:
    """Rows before updates and deletes, as far as the replica identity has them."""

    def __init__(self, changes: TableChanges) -> None:
        self._changes = changes
        self._values = RowValues(changes)

    @property
    def count(self) -> int:
        return len(self._changes.old_rows)

    def text(self, column: int) -> tuple[pa.Array, Mask | None]:
        return self._changes.old_text(column), ~self._values.old_has(column)

    def typed(self, column: int) -> tuple[TypedColumn, Mask | None]:
        return self._changes.old_typed(column), ~self._values.old_has(column)


class _CopiedRows:
    """Rows that were copied: all columns are there."""

    def __init__(self, rows: TableRows) -> None:
        self._rows = rows

    @property
    def count(self) -> int:
        return len(self._rows)

    def text(self, column: int) -> tuple[pa.Array, Mask | None]:
        return self._rows.columns[column], None

    def typed(self, column: int) -> tuple[TypedColumn, Mask | None]:
        table = self._rows.table
        definition = table.columns[column]
        try:
            text = self._rows.columns[column]
            return decode_text(text, definition.type, definition.typmod), None
        except DecodeError as error:
            place = f"table {table.qualified_name}, column {definition.name}"
            raise DecodeError(f"{place}: {error.message}", remedy=error.remedy) from None


def _odd(column: TypedColumn) -> pa.Array:
    if column.unrepresentable is None:
        return pa.array(np.zeros(len(column.values), bool))
    return column.unrepresentable
