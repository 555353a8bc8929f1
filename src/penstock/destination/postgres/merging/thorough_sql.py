"""The statements of the thorough way: rows one by one, as they were before. Pure: texts only."""

from __future__ import annotations

from psycopg import sql

from penstock.destination.postgres.merging.sql_pieces import (
    PARTS,
    Statement,
    comma,
    identifier,
    key_after,
    key_before,
    same_key,
    staged_column,
    target,
)
from penstock.destination.postgres.staging.stage import Stage


def row_ids(stage: Stage) -> Statement:
    """The rows that ``insert`` would add, by their ctid."""
    if stage.kind == "keyed":
        wanted = sql.SQL("s.op IN ('I', 'U', 'K')")
    else:
        wanted = sql.SQL("s.n > 0" if stage.kind == "counted" else "true")
    return sql.SQL("SELECT s.ctid::text FROM {} s WHERE {} AND {} ORDER BY s.ctid").format(
        stage.staging_id, PARTS, wanted
    )


def forget_row(stage: Stage) -> Statement:
    """Let a staged row do nothing."""
    return sql.SQL("UPDATE {} s SET op = '-' WHERE s.ctid = %(row)s::tid").format(stage.staging_id)


def staged_row(stage: Stage) -> Statement:
    """One staged row for a person: its position, how many of it, its op, its values as texts.

    A value that is not known is null, and its column among the unset ones.
    """
    is_counted = stage.kind == "counted"
    op = sql.SQL("CASE WHEN s.n > 0 THEN 'I' ELSE 'D' END" if is_counted else "s.op")
    number = sql.SQL("abs(s.n)" if is_counted else "1")
    unset = sql.SQL("s.unset" if stage.kind == "keyed" else "NULL::smallint[]")
    values = [
        sql.SQL("{}::text").format(staged_column(index)) for index in range(len(stage.columns))
    ]
    return sql.SQL("SELECT {} FROM {} s WHERE s.ctid = %(row)s::tid").format(
        comma(
            [
                sql.SQL("s.commit_lsn, s.ordinal"),
                number,
                unset,
                sql.SQL("{}::text").format(op),
                *values,
            ]
        ),
        stage.staging_id,
    )


BEFORE = sql.Identifier("pg_temp", "penstock_before")
"""Rows of the target as they were, while they are made anew."""


def save_before(stage: Stage) -> Statement:
    """Keep the rows as they are in the target, by the ctid of their staged row."""
    return sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS {}").format(
        BEFORE, _before(stage, "'U', 'K'")
    )


def save_in_the_way(stage: Stage) -> Statement:
    """Keep also rows that stand where a new one is to be put."""
    return sql.SQL("INSERT INTO {} {}").format(BEFORE, _before(stage, "'I'"))


def _own_columns(stage: Stage) -> list[str]:
    return [*(column.name for column in stage.columns), *stage.extras]


def _before(stage: Stage, ops: str) -> Statement:
    names = [identifier("t", name) for name in _own_columns(stage)]
    return sql.SQL("SELECT {} FROM {} t JOIN {} s ON {} WHERE {} AND s.op IN ({})").format(
        comma([sql.SQL("s.ctid::text AS _row"), *names]),
        target(stage),
        stage.staging_id,
        same_key(stage, key_before(stage, rekeys=True)),
        PARTS,
        sql.SQL(ops),
    )


def restore_before(stage: Stage) -> Statement:
    """Put one row back as it was."""
    names = comma(map(identifier, _own_columns(stage)))
    return sql.SQL(
        "INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM {} WHERE _row = %(row)s"
    ).format(target(stage), names, names, BEFORE)


def delete_in_the_way(stage: Stage) -> Statement:
    """Remove rows that stand where staged ones are to be put."""
    return sql.SQL(
        "DELETE FROM {} t USING {} s WHERE {} AND s.op IN ('I', 'K', 'U') AND {}"
    ).format(target(stage), stage.staging_id, PARTS, same_key(stage, key_after(stage)))
