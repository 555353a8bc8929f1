"""The statements for rows of tables without a key, which are counted. Pure: texts only."""

from __future__ import annotations

from collections.abc import Iterable

from psycopg import sql

from penstock.destination.postgres.merging.sql_pieces import (
    PARTS,
    Statement,
    comma,
    identifier,
    target,
    value_of,
)
from penstock.destination.postgres.staging.stage import Stage


def _image(stage: Stage, values: Iterable[sql.Composable]) -> sql.Composable:
    """A whole row as one text. Text tells more rows apart than =, which json and xml lack."""
    return sql.SQL("ROW({})::text").format(comma(values))


def _staged_image(stage: Stage) -> sql.Composable:
    return _image(stage, [value_of(stage, index) for index in range(len(stage.columns))])


def sum_counts(stage: Stage) -> Statement:
    """Let one of several equal rows stand for all of them, with their sum."""
    return sql.SQL(
        "UPDATE {staging} s SET n = CASE WHEN s.ctid = net.one THEN net.n ELSE 0 END FROM"
        " (SELECT {image} AS image, (array_agg(s.ctid))[1] AS one, sum(s.n) AS n"
        " FROM {staging} s WHERE {parts} GROUP BY 1 HAVING count(*) > 1) net"
        " WHERE {parts} AND {image} = net.image"
    ).format(staging=stage.staging_id, image=_staged_image(stage), parts=PARTS)


def count_counts(stage: Stage) -> Statement:
    """How many rows are to be added, and how many to be removed."""
    return sql.SQL(
        "SELECT coalesce(sum(s.n) FILTER (WHERE s.n > 0), 0)::bigint,"
        " coalesce(-sum(s.n) FILTER (WHERE s.n < 0), 0)::bigint FROM {} s WHERE {}"
    ).format(stage.staging_id, PARTS)


def remove_counted(stage: Stage) -> Statement:
    """Remove as many of each row as the staged counts say; of equal rows, any."""
    columns = [identifier("t", column.name) for column in stage.columns]
    return sql.SQL(
        "WITH gone AS MATERIALIZED (SELECT {image} AS image, -s.n AS n FROM {staging} s"
        " WHERE {parts} AND s.n < 0),"
        " found AS MATERIALIZED (SELECT t.tableoid AS part, t.ctid AS place, gone.n,"
        " row_number() OVER (PARTITION BY gone.image) AS number"
        " FROM {target} t JOIN gone ON {row} = gone.image)"
        " DELETE FROM {target} t USING found WHERE found.number <= found.n"
        " AND t.tableoid = found.part AND t.ctid = found.place"
    ).format(
        image=_staged_image(stage),
        staging=stage.staging_id,
        parts=PARTS,
        target=target(stage),
        row=_image(stage, columns),
    )
