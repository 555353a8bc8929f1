"""What the statements over staged rows are made of. Pure: texts only.

``s`` is the staging table, ``t`` the target; the parts of a batch are the parameter ``parts``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from psycopg import sql

from penstock.destination.postgres.staging.stage import Stage

Statement = sql.Composed


def identifier(*names: str) -> sql.Identifier:
    """A quoted name. All statements here have parameters, so a % in one would be taken for one."""
    return sql.Identifier(*(name.replace("%", "%%") for name in names))


def target(stage: Stage) -> sql.Identifier:
    """The stage's target in a statement that has parameters."""
    return identifier(*stage.target)


def staged_column(index: int) -> sql.Identifier:
    return identifier("s", f"c{index + 1}")


def column_name(stage: Stage, index: int) -> sql.Identifier:
    return identifier(stage.columns[index].name)


def value_of(stage: Stage, index: int, staged: sql.Composable | None = None) -> sql.Composable:
    """A staged value in the target's type."""
    staged = staged or staged_column(index)
    column = stage.columns[index]
    if not column.is_user_defined:
        return staged
    # As format_type() wrote it, qualified.
    return sql.SQL("{}::{}").format(staged, sql.SQL(column.type.replace("%", "%%")))


def as_staged(stage: Stage, index: int) -> sql.Composable:
    """A target's value in the staging table's type."""
    value = identifier("t", stage.columns[index].name)
    if stage.columns[index].is_user_defined:
        return sql.SQL("{}::text").format(value)
    return value


def is_unset(index: int, row: str = "s") -> sql.Composable:
    return sql.SQL("{} = ANY({})").format(sql.Literal(index + 1), identifier(row, "unset"))


def comma(parts: Iterable[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(parts)


def all_of(parts: Iterable[sql.Composable]) -> sql.Composed:
    return sql.SQL(" AND ").join(parts)


def same_key(stage: Stage, staged: Sequence[sql.Composable]) -> sql.Composed:
    """The target's row has the staged key."""
    return all_of(
        sql.SQL("{} = {}").format(
            identifier("t", stage.columns[index].name), value_of(stage, index, value)
        )
        for index, value in zip(stage.key, staged, strict=True)
    )


def key_after(stage: Stage) -> list[sql.Composable]:
    return [staged_column(index) for index in stage.key]


def key_before(stage: Stage, *, rekeys: bool) -> list[sql.Composable]:
    if not rekeys:
        return key_after(stage)
    return [
        sql.SQL("CASE s.op WHEN 'K' THEN {} ELSE {} END").format(
            identifier("s", f"k{place + 1}"), staged_column(index)
        )
        for place, index in enumerate(stage.key)
    ]


PARTS = sql.SQL("s.part = ANY(%(parts)s)")
