"""What a destination is told of a table whose values change: nothing that shows them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from penstock.model.table_definition import (
    ColumnDefinition,
    ConstraintDefinition,
    IndexDefinition,
    TableDefinition,
)

Missing = Callable[[ColumnDefinition], str | None]

# A number that is no part of a name: 123456789, not line_2 or int4.
_NUMBER = re.compile(r"(?<![\w$])\.?\d")
_QUOTED_NAME = re.compile(r'"(?:[^"]|"")*"')
# Of an index, such as WITH (fillfactor='70'): no values of rows.
_STORAGE = re.compile(r" WITH \((?:\w+='?[\w.]*'?(?:, )?)+\)")


def shown_definition(
    table: TableDefinition, covered: set[str], missing: Missing
) -> TableDefinition:
    """The table without what shows values of ``covered`` columns, or would not hold of those that
    come: defaults, checks, and indexes, exclusions and generated columns with constants in them.
    ``missing`` gives the value of rows that are older than a column.
    """
    columns = tuple(_column(column, covered, missing) for column in table.columns)
    gone = [
        f"generated column {old.name}"
        for old, new in zip(table.columns, columns, strict=True)
        if old.generated is not None and new.generated is None and not new.is_delivered
    ]
    gone += [f"index {i.name}" for i in table.indexes if _shows(i, table, covered)]
    gone += [
        f"{c.kind} constraint {c.name}" for c in table.constraints if _shows(c, table, covered)
    ]
    told = [text for text in table.left_out if not any(mentions(text, c) for c in covered)]
    told += [f"{what} is not made: its SQL is about values that rules change" for what in gone]
    return replace(
        table,
        columns=columns,
        indexes=tuple(i for i in table.indexes if not _shows(i, table, covered)),
        constraints=tuple(c for c in table.constraints if not _shows(c, table, covered)),
        left_out=tuple(told),
    )


def _column(column: ColumnDefinition, covered: set[str], missing: Missing) -> ColumnDefinition:
    if column.name in covered:
        # A sequence counts on at the destination, and shows nothing. What is generated and sent
        # has a rule of its own, and is what that makes of it.
        default = column.default if column.sequence is not None else None
        generated = None if column.is_delivered else column.generated
        column = replace(column, default=default, missing=missing(column), generated=generated)
    said = column.generated
    if said is None or column.is_delivered or not has_constant(said):
        return column
    # Neither computed nor sent: the destination goes without it.
    is_about = any(mentions(said, name) for name in covered)
    return replace(column, generated=None, published=False) if is_about else column


def _shows(
    found: IndexDefinition | ConstraintDefinition, table: TableDefinition, covered: set[str]
) -> bool:
    """Whether its SQL may show values of covered columns, or ask something of them."""
    asks = isinstance(found, ConstraintDefinition) and found.kind == "check"
    if not asks and not has_constant(found.definition):
        return False
    # A whole row goes by the table's name.
    return any(mentions(found.definition, name) for name in (*covered, table.name))


def has_constant(definition: str) -> bool:
    """Whether SQL holds a text or a number that somebody wrote, as far as its text tells."""
    plain = _STORAGE.sub("", _QUOTED_NAME.sub("", definition))
    return "'" in plain or _NUMBER.search(plain) is not None


def mentions(definition: str, column: str) -> bool:
    """Whether SQL names a column, as far as its text tells."""
    written = re.escape(column.replace('"', '""'))
    return re.search(rf"(?<![\w$]){written}(?![\w$])", definition) is not None
