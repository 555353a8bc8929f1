"""What a pipeline does about a schema change, kind by kind. Pure.

``apply`` lets the destination follow, ``ignore`` lets it stay as it is, ``stop`` sets the table
aside until a person has looked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from penstock.model.schema_change import ChangeKind, Difference, TableChange
from penstock.model.table_definition import ColumnDefinition, TableDefinition, TypeDefinition

Action = Literal["apply", "ignore", "stop"]

FOLLOWED: frozenset[ChangeKind] = frozenset(
    ("rename_table", "rename_column", "column_generated", "rewrite", "user_type")
)
"""Kinds that cannot be ignored: without them rows would not find their place, or be other rows."""

SHAPES_ROWS: frozenset[ChangeKind] = frozenset(
    (
        *("rename_table", "rename_column", "add_column", "drop_column", "column_published"),
        *("column_type", "column_generated", "user_type", "primary_key"),
    )
)
"""Kinds after which rows look otherwise, or have another key."""

_NO_CHOICE: frozenset[ChangeKind] = frozenset(("create_table", "drop_table", "replica_identity"))
"""Whether tables come and go is for the rules of the subscription."""


@dataclass(frozen=True)
class SchemaPolicy:
    """``default`` holds for all kinds that ``kinds`` does not name."""

    default: Action = "apply"
    kinds: Mapping[ChangeKind, Action] = field(default_factory=dict)

    def action(self, kind: ChangeKind) -> Action:
        if kind in _NO_CHOICE:
            return "apply"
        found = self.kinds.get(setting(kind))
        if found is None:
            found = "apply" if self.default == "ignore" and kind in FOLLOWED else self.default
        return found

    def stops_at(self, change: TableChange) -> Difference | None:
        """The first difference that a person has to look at."""
        found = (step for step in change.differences() if self.action(step.kind) == "stop")
        return next(found, None)

    def shapes_rows(self, change: TableChange) -> Difference | None:
        """The first difference that a destination has to follow, or rows would not fit any more."""
        found = (
            step
            for step in change.differences()
            if step.kind in SHAPES_ROWS and self.action(step.kind) == "apply"
        )
        return next(found, None)

    def resolved(self, change: TableChange) -> TableChange:
        """The change without what is ignored: what it leads to is what the destination has then."""
        if change.before is None or change.after is None:
            return change
        left_out = {column.attnum for column in change.before.columns if column.ignored}
        before, after = change.before, _ignoring(change.after, left_out)
        change = replace(change, after=after)
        ignored = [step for step in change.differences() if self.action(step.kind) == "ignore"]
        for step in ignored:
            before, after = _without(step, change, before, after)
        return replace(change, before=before, after=after)


def setting(kind: ChangeKind) -> ChangeKind:
    """Under which kind the pipeline file says what to do: a column that is published from now on is
    a new one.
    """
    return "add_column" if kind == "column_published" else kind


def _without(
    step: Difference, change: TableChange, before: TableDefinition, after: TableDefinition
) -> tuple[TableDefinition, TableDefinition]:
    """Both definitions as if a step of the change had not been taken."""
    old, new = step.before, step.after
    match step.kind:
        case "drop_column" if isinstance(old, ColumnDefinition):
            # From now on it is a column that only the destination has.
            kept = tuple(column for column in before.columns if column.attnum != old.attnum)
            return replace(before, columns=kept), after
        case "add_column" | "column_published" if isinstance(new, ColumnDefinition):
            # It stays out from then on, until the table is copied anew.
            return _ignoring(before, {new.attnum}), _ignoring(after, {new.attnum})
        case "primary_key":
            return before, replace(after, primary_key=change.renamed.names(before.primary_key))
        case "partitions":
            return before, replace(after, partitions=before.partitions)
        case "index":
            return before, replace(after, indexes=before.indexes)
        case "constraint":
            return before, replace(after, constraints=before.constraints)
        case _ if isinstance(old, ColumnDefinition) and isinstance(new, ColumnDefinition):
            return _without_column_step(step.kind, old, new, before, after)
    return before, after


_FIELDS: Mapping[str, tuple[str, ...]] = {
    "column_type": ("type", "collation"),
    "column_default": ("default",),
    "column_nullability": ("not_null",),
    "column_identity": ("identity", "sequence", "default"),
}


def _without_column_step(
    kind: ChangeKind,
    old: ColumnDefinition,
    new: ColumnDefinition,
    before: TableDefinition,
    after: TableDefinition,
) -> tuple[TableDefinition, TableDefinition]:
    now = next(column for column in after.columns if column.attnum == new.attnum)
    kept = {name: getattr(old, name) for name in _FIELDS.get(kind, ())}
    after = _with_column(after, replace(now, **kept))
    if kind == "column_type":
        # The old type may be one that nothing else needs any more.
        known = {(kind.schema, kind.name) for kind in after.types}
        more: tuple[TypeDefinition, ...] = tuple(
            kind for kind in before.types if (kind.schema, kind.name) not in known
        )
        after = replace(after, types=(*more, *after.types))
    return before, after


def _with_column(table: TableDefinition, column: ColumnDefinition) -> TableDefinition:
    columns = tuple(column if c.attnum == column.attnum else c for c in table.columns)
    return replace(table, columns=columns)


def _ignoring(table: TableDefinition, columns: Collection[int]) -> TableDefinition:
    if not columns:
        return table
    marked = tuple(replace(c, ignored=c.ignored or c.attnum in columns) for c in table.columns)
    return replace(table, columns=marked)
