"""Keys of rows that have to be read again, since a change did not say all of the row."""

from __future__ import annotations

import json
from collections.abc import Sequence

from psycopg import sql

from penstock.destination.postgres.copying.copied_rows import CopiedRows
from penstock.destination.postgres.sessions.session import Connection
from penstock.destination.postgres.staging.stage import Stage
from penstock.model.table_rows import TableRows

Key = tuple[str, ...]


def read_parked(conn: Connection, pipeline: str, table: int) -> list[Key]:
    found = conn.execute(
        "SELECT DISTINCT key FROM penstock.parked_key WHERE pipeline = %s AND source_table = %s",
        [pipeline, table],
    )
    return [tuple(key) for (key,) in found]


def settle(
    conn: Connection,
    pipeline: str,
    stage: Stage,
    rows: TableRows,
    keys: Sequence[Key],
    letters_of: str | None,
) -> None:
    """Put the rows in place of what stands under the keys, and forget these."""
    places = {column.name: index for index, column in enumerate(rows.table.columns)}
    columns = [rows.columns[places[stage.columns[index].name]] for index in stage.key]
    there = set(zip(*(column.to_pylist() for column in columns), strict=True))
    _remove(conn, stage, [key for key in keys if key not in there])
    copied = CopiedRows(conn, stage, list(places), over=True)
    copied.add_texts(rows, letters_of)
    conn.execute(
        "DELETE FROM penstock.parked_key p USING (SELECT ARRAY(SELECT jsonb_array_elements_text(k))"
        " AS key FROM jsonb_array_elements(%s::jsonb) k) AS settled"
        " WHERE p.pipeline = %s AND p.source_table = %s AND p.key = settled.key",
        [json.dumps(keys), pipeline, stage.oid],
    )


def _remove(conn: Connection, stage: Stage, keys: Sequence[Key]) -> None:
    if not keys:
        return
    same = sql.SQL(" AND ").join(
        sql.SQL("t.{} = (k.key ->> {})::{}").format(
            sql.Identifier(stage.columns[column].name),
            sql.Literal(place),
            # As format_type() wrote it, qualified.
            sql.SQL(stage.columns[column].type),
        )
        for place, column in enumerate(stage.key)
    )
    statement = sql.SQL(
        "DELETE FROM {} t USING jsonb_array_elements({}::jsonb) AS k (key) WHERE {}"
    ).format(stage.target_id, sql.Literal(json.dumps(keys)), same)
    conn.execute(statement)
