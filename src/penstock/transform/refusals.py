"""Why a table is put aside under the rules. None of it shows a value."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.model.errors import RowsRefused, TableRefused
from penstock.model.table_definition import TableDefinition


def unfit_rule(table: str, column: str, why: str, oid: int) -> TableRefused:
    """A rule cannot be followed; ``why`` shows no value."""
    return TableRefused(
        f"table {table}, column {column}: its rule cannot be followed: {why}",
        remedy="correct the rule in the part transform of the pipeline file (`penstock transform "
        "check FILE` tells more), start `penstock run` again, and run `penstock tables retry` "
        f"for {table}",
        table=oid,
    )


def uncovered_columns(table: str, columns: list[str], oid: int) -> TableRefused:
    """Strict mode misses rules."""
    return TableRefused(
        f"table {table} has columns without a rule: {', '.join(columns)}; transform.mode is "
        "strict, so nothing of the table is delivered",
        remedy="give each a rule or list it under keep in the part transform of the pipeline file, "
        f"start `penstock run` again, and run `penstock tables retry` for {table}",
        table=oid,
    )


def absent_columns(table: str, columns: list[str], oid: int) -> TableRefused:
    """A rule for just this table names what it does not have."""
    return TableRefused(
        f"table {table} has no column {', '.join(columns)}, which a rule names: if it was renamed, "
        "its values would leave as they are, so nothing of the table is delivered",
        remedy="correct the name in the part transform of the pipeline file, start `penstock run` "
        f"again, and run `penstock tables retry` for {table}",
        table=oid,
    )


def bare_columns(table: TableDefinition, columns: list[str]) -> TableRefused:
    """Values that a rule covered would leave as they are."""
    return TableRefused(
        f"table {table.qualified_name}: no rule changes column {', '.join(columns)} any more: its "
        "values would leave as they are, so nothing of the table is delivered",
        remedy="give the column a rule by its name of now, in the part transform of the pipeline "
        "file (or, if its values may leave as they are, list both names under keep), start "
        f"`penstock run` again, and run `penstock tables retry` for {table.qualified_name}",
        table=table.oid,
    )


def unsuited_key(table: str, column: str, why: str, remedy: str, oid: int) -> TableRefused:
    """A unique index or a foreign key came that a column's rule does not suit."""
    return TableRefused(
        f"table {table}, column {column}: {why}, so nothing of the table is delivered any more",
        remedy=f"{remedy} Do so in the part transform of the pipeline file, or drop the index or "
        f"constraint; then start `penstock run` again, and run `penstock tables retry` for {table}",
        table=oid,
    )


@contextmanager
def source_unquoted(table: str) -> Iterator[None]:
    """Rows of a table with rules are read inside of the block. What the source says of one that it
    refuses may quote a value (`invalid input syntax for type integer: "…"`), so it is left out.
    """
    try:
        yield
    except RowsRefused as error:
        raise RowsRefused(
            f"While reading table {table}, the source refused with SQLSTATE {error.sqlstate}; what "
            "it said is not shown, since it may quote a value that rules change.",
            remedy="Look into the source's own log. It is a right that the role lacks (42501), or "
            "a `where` of the pipeline file that does not fit this table.",
            sqlstate=error.sqlstate,
            table=error.table,
        ) from None
