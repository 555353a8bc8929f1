"""The statements for changes that are replayed over copied rows. Pure: texts only."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from penstock.destination.postgres.merging.merge_sql import insert
from penstock.destination.postgres.merging.sql_pieces import (
    PARTS,
    Statement,
    all_of,
    column_name,
    comma,
    identifier,
    key_after,
    same_key,
    staged_column,
    target,
    value_of,
)
from penstock.destination.postgres.staging.stage import Stage


def upsert(stage: Stage) -> Statement:
    """Put every whole row where it belongs, whether or not there is one. For replayed rows."""
    sets = comma(
        sql.SQL("{0} = excluded.{0}").format(column_name(stage, index))
        for index in range(len(stage.columns))
        if index not in stage.key
    )
    action = sql.SQL("UPDATE SET {}").format(sets) if sets.as_string(None) else sql.SQL("NOTHING")
    return sql.SQL("{} AND s.unset IS NULL ON CONFLICT ({}) DO {}").format(
        insert(stage, "U"), comma(column_name(stage, index) for index in stage.key), action
    )


def delete_outdated(stage: Stage, unique: Sequence[int]) -> Statement:
    """Remove rows that have what whole staged ones of another key take. For replayed rows.

    Such a row is of another time than the staged one, and a change of it is still to come.
    """
    return sql.SQL(
        "DELETE FROM {} t USING {} s WHERE {} AND s.op = 'U' AND s.unset IS NULL AND {}"
        " AND NOT ({})"
    ).format(
        target(stage),
        stage.staging_id,
        PARTS,
        all_of(
            sql.SQL("{} = {}").format(
                identifier("t", stage.columns[index].name), value_of(stage, index)
            )
            for index in unique
        ),
        same_key(stage, key_after(stage)),
    )


def park(stage: Stage) -> Statement:
    """Remember the keys of replayed rows that are not known whole, after ``complete``."""
    key = comma(sql.SQL("{}::text").format(staged_column(index)) for index in stage.key)
    return sql.SQL(
        "INSERT INTO penstock.parked_key (pipeline, source_table, key)"
        " SELECT %(pipeline)s, {}, ARRAY[{}] FROM {} s"
        " WHERE {} AND (s.op = 'P' OR s.op = 'U' AND s.unset IS NOT NULL)"
    ).format(sql.Literal(stage.oid), key, stage.staging_id, PARTS)


def forget_parked(stage: Stage) -> Statement:
    """Let staged rows do nothing that were parked."""
    return sql.SQL(
        "UPDATE {} s SET op = '-' WHERE {} AND s.op = 'U' AND s.unset IS NOT NULL"
    ).format(stage.staging_id, PARTS)
