"""The statements that bring staged rows into their target. Pure: texts only.

All of them take the parts of the batch as their parameter ``parts``. ``s`` is the staging table,
``t`` the target.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from penstock.destination.postgres.merging.sql_pieces import (
    PARTS,
    Statement,
    all_of,
    as_staged,
    column_name,
    comma,
    identifier,
    is_unset,
    key_after,
    key_before,
    same_key,
    staged_column,
    target,
    value_of,
)
from penstock.destination.postgres.merging.thorough_sql import BEFORE
from penstock.destination.postgres.staging.stage import Stage


def count_parts(stages: Sequence[Stage]) -> Statement:
    """How many rows each part has in the staging table of each source table."""
    return sql.SQL(" UNION ALL ").join(
        sql.SQL(
            "SELECT {}::bigint, s.part, count(*) FROM {} s WHERE s.part = ANY(%(parts)s)"
            " GROUP BY s.part"
        ).format(sql.Literal(stage.oid), stage.staging_id)
        for stage in stages
    )


def copy_lines_in(stage: Stage) -> bytes:
    """COPY of lines that hold the target's columns."""
    names = comma(column_name(stage, index) for index in range(len(stage.columns)))
    return sql.SQL("COPY {} ({}) FROM STDIN").format(stage.target_id, names).as_bytes(None)


def count_ops(stage: Stage) -> Statement:
    """How many rows of each op are staged, and how many of the updates are incomplete."""
    return sql.SQL(
        "SELECT count(*) FILTER (WHERE s.op = 'I'), count(*) FILTER (WHERE s.op = 'U'),"
        " count(*) FILTER (WHERE s.op = 'K'), count(*) FILTER (WHERE s.op = 'D'),"
        " count(s.unset) FROM {} s WHERE {}"
    ).format(stage.staging_id, PARTS)


def complete(stage: Stage, *, only_rekeys: bool) -> Statement:
    """Fill unset columns from the target's row, while it is still there."""
    values = [
        sql.SQL("{} = CASE WHEN {} THEN {} ELSE {} END").format(
            identifier(f"c{index + 1}"),
            is_unset(index),
            as_staged(stage, index),
            staged_column(index),
        )
        for index in range(len(stage.columns))
        if index not in stage.key
    ]
    return sql.SQL(
        "UPDATE {} s SET {} FROM {} t WHERE {} AND s.unset IS NOT NULL AND s.op {} AND {}"
    ).format(
        stage.staging_id,
        comma([*values, sql.SQL("unset = NULL")]),
        target(stage),
        PARTS,
        sql.SQL("= 'K'" if only_rekeys else "IN ('U', 'K')"),
        same_key(stage, key_before(stage, rekeys=True)),
    )


def delete(stage: Stage, *, rekeys: bool, updates: bool = False) -> Statement:
    """Remove the rows that went or moved; with ``updates`` also those that changed."""
    ops = ["'D'"] + ["'K'"] * rekeys + ["'U'"] * updates
    return sql.SQL("DELETE FROM {} t USING {} s WHERE {} AND s.op IN ({}) AND {}").format(
        target(stage),
        stage.staging_id,
        PARTS,
        sql.SQL(", ".join(ops)),
        same_key(stage, key_before(stage, rekeys=rekeys)),
    )


def update(stage: Stage, *, incomplete: bool) -> Statement:
    """Change the rows that are there. They have more than a key."""
    values = []
    for index in range(len(stage.columns)):
        if index in stage.key:
            continue
        value = value_of(stage, index)
        if incomplete:
            value = sql.SQL("CASE WHEN {} THEN {} ELSE {} END").format(
                is_unset(index), identifier("t", stage.columns[index].name), value
            )
        values.append(sql.SQL("{} = {}").format(column_name(stage, index), value))
    return sql.SQL("UPDATE {} t SET {} FROM {} s WHERE {} AND s.op = 'U' AND {}").format(
        target(stage),
        comma(values),
        stage.staging_id,
        PARTS,
        same_key(stage, key_after(stage)),
    )


def insert(
    stage: Stage,
    ops: str = "",
    *,
    some_rows: bool = False,
    kept: bool | None = None,
) -> Statement:
    """Add staged rows: of a table with a key those of the given ops, else all that are to be added.

    With ``some_rows`` only those that the parameter ``rows`` names by their ctid. ``kept`` takes
    those for which a row was saved, each with its extras; False takes the others.
    """
    names, values = _insert_columns(stage, stage.extras if kept else ())
    wanted: list[sql.Composable] = [PARTS]
    times: sql.Composable = sql.SQL("")
    if stage.kind == "keyed":
        wanted.append(sql.SQL("s.op IN ({})").format(comma(map(sql.Literal, ops))))
    elif stage.kind == "counted":
        wanted.append(sql.SQL("s.n > 0"))
        times = sql.SQL(" CROSS JOIN LATERAL generate_series(1, s.n)")
    if some_rows:
        wanted.append(sql.SQL("s.ctid = ANY(%(rows)s::tid[])"))
    if kept:
        times = sql.SQL(" JOIN {} kept ON kept._row = s.ctid::text").format(BEFORE)
    elif kept is not None:
        other = sql.SQL("NOT EXISTS (SELECT FROM {} kept WHERE kept._row = s.ctid::text)")
        wanted.append(other.format(BEFORE))
    # Identity columns take the values that the source gave them.
    columns = sql.SQL("({}) OVERRIDING SYSTEM VALUE ").format(names) if stage.columns else None
    return sql.SQL("INSERT INTO {} {}SELECT {} FROM {} s{} WHERE {}").format(
        target(stage),
        columns or sql.SQL(""),
        values,
        stage.staging_id,
        times,
        all_of(wanted),
    )


HISTORY_COLUMNS = {
    "_op": "s.op",
    "_commit_lsn": "('0/0'::pg_lsn + s.commit_lsn)",
    "_ordinal": "s.ordinal",
    "_commit_time": "s.committed",
    "_xid": "s.xid",
    "_unset": "s.unset",
    "_old": "s.old",
}
"""The columns that a history table has beside the source's, and where they come from."""


def _insert_columns(stage: Stage, extras: Sequence[str]) -> tuple[sql.Composed, sql.Composed]:
    numbers = range(len(stage.columns))
    names: list[sql.Composable] = [column_name(stage, index) for index in numbers]
    values = [value_of(stage, index) for index in numbers]
    if stage.kind == "history":
        names += [identifier(name) for name in HISTORY_COLUMNS]
        values += [sql.SQL(value) for value in HISTORY_COLUMNS.values()]
    names += [identifier(name) for name in extras]
    values += [identifier("kept", name) for name in extras]
    return comma(names), comma(values)


def unmatched(stage: Stage, *, incomplete: bool) -> Statement:
    """Rows that were there before the batch at the source, and are not in the target.

    With ``incomplete`` only those that cannot be made anew, since some columns were not sent.
    """
    wanted = (
        "s.op IN ('U', 'K') AND s.unset IS NOT NULL" if incomplete else "s.op IN ('U', 'K', 'D')"
    )
    return sql.SQL(
        "SELECT s.ctid::text FROM {} s WHERE {} AND {} AND NOT EXISTS"
        " (SELECT FROM {} t WHERE {}) ORDER BY s.commit_lsn, s.ordinal"
    ).format(
        stage.staging_id,
        PARTS,
        sql.SQL(wanted),
        target(stage),
        same_key(stage, key_before(stage, rekeys=True)),
    )
