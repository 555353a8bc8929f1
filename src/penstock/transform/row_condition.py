"""Which changes and copied rows of a table a condition lets through.

A change passes unless the condition is known not to hold: what a condition needs and nobody sent,
or what has no Arrow form, is not decided, and nothing undecided is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.config.row_condition_tree import SUPPORTED, ConditionError, Node
from penstock.decode.changes import TableChanges
from penstock.decode.image import Mask
from penstock.decode.row_values import RowValues
from penstock.model.errors import ConfigError
from penstock.model.table_rows import TableRows
from penstock.model.table_schema import TableSchema
from penstock.transform.row_condition_evaluation import ConditionRows, evaluate
from penstock.transform.row_condition_values import Value


@dataclass(frozen=True)
class RowCondition:
    """One condition: its text, and the tree that was made of it. Can be pickled."""

    text: str
    tree: Node
    setting: str = "filter.rows"
    """Where the pipeline file has it."""

    @classmethod
    def parse(cls, text: str, setting: str = "filter.rows") -> RowCondition:
        """Raises ConditionError."""
        # Late: sqlglot takes its time, and executors get trees.
        from penstock.config.row_condition_syntax import parse_condition

        return cls(text, parse_condition(text), setting)

    def check(self, table: TableSchema) -> None:
        """Raises ConfigError where the table's columns or their types do not suit."""
        nothing = pa.array([], pa.string())
        self._evaluate(ConditionRows(table, 0, lambda _column: (nothing, None)))

    def passing(self, changes: TableChanges) -> Mask:
        """For each change whether it passes.

        Inserts pass by their new row, deletes by their old one, updates by either: also where a
        row only leaves the set. An old row speaks for an update only where it is known to meet
        the condition.
        """
        values = RowValues(changes)
        table, old_rows = changes.table, changes.old_rows
        gone = values.is_delete[old_rows]

        def after(column: int) -> tuple[pa.Array, Mask | None]:
            unset = values.unset(column)
            if gone.any():
                unset = np.zeros(len(changes), bool) if unset is None else unset
                unset[old_rows[gone]] = ~values.old_has(column)[gone]
            return values.text(column), unset

        def before(column: int) -> tuple[pa.Array, Mask | None]:
            return changes.old_text(column), ~values.old_has(column)

        found = self._evaluate(ConditionRows(table, len(changes), after))
        passing: Mask = found.true | found.odd
        if not gone.all():
            passing[old_rows] |= self._evaluate(ConditionRows(table, len(old_rows), before)).true
        return passing

    def membership(self, changes: TableChanges) -> tuple[Mask, Mask]:
        """For each change whether its row was among those that pass, and whether it is; all old
        rows have to be there whole. What is not decided counts as passing, as in a copy: that
        hangs on the row alone.
        """
        values = RowValues(changes)

        def after(column: int) -> tuple[pa.Array, Mask | None]:
            return values.text(column), values.unset(column)

        def before(column: int) -> tuple[pa.Array, Mask | None]:
            return changes.old_text(column), None

        is_in = self._evaluate(ConditionRows(changes.table, len(changes), after))
        old = self._evaluate(ConditionRows(changes.table, len(changes.old_rows), before))
        was_in = np.zeros(len(changes), bool)
        was_in[changes.old_rows] = old.true | old.odd
        return was_in, (is_in.true | is_in.odd) & ~values.is_delete

    def passing_rows(self, rows: TableRows) -> Mask:
        """For each copied row whether it passes."""
        found = self._evaluate(
            ConditionRows(rows.table, len(rows), lambda column: (rows.columns[column], None))
        )
        return found.true | found.odd

    def not_false(self, rows: ConditionRows) -> Mask:
        """For each row whether the condition is not known to be false: nulls count, too."""
        found = self._evaluate(rows)
        return found.true | found.odd | found.null

    def _evaluate(self, rows: ConditionRows) -> Value:
        try:
            return evaluate(self.tree, rows)
        except ConditionError as error:
            raise ConfigError(
                f"{self.setting}: the condition of {rows.table.qualified_name}, {self.text!r}, is "
                f"wrong at character {error.at}: {error.why}.",
                remedy=f"Conditions are made of {SUPPORTED}. docs/filters.md has examples.",
            ) from None
