"""Rows that were copied, not streamed."""

from __future__ import annotations

from psycopg import sql

from penstock.decode.row_values import READ_ORDINAL
from penstock.destination.contract import TableRows
from penstock.destination.encode.copy_text import copy_lines
from penstock.destination.encode.text_bytes import text_bytes
from penstock.destination.postgres.session import Connection
from penstock.destination.postgres.stage import Stage
from penstock.lsn import format_lsn


def forget_chunks(conn: Connection, pipeline: str, stage: Stage) -> None:
    """Empty the target, and with it the record of what was copied."""
    conn.execute(sql.SQL("TRUNCATE {}").format(stage.target_id))
    conn.execute(
        "DELETE FROM penstock.copied_chunk WHERE pipeline = %s AND source_table = %s",
        [pipeline, stage.oid],
    )


def write_chunk(conn: Connection, pipeline: str, stage: Stage, rows: TableRows, chunk: str) -> None:
    """Add a chunk's rows, unless this very chunk was added before."""
    fresh = conn.execute(
        "INSERT INTO penstock.copied_chunk (pipeline, source_table, chunk) VALUES (%s, %s, %s)"
        " ON CONFLICT DO NOTHING",
        [pipeline, stage.oid, chunk],
    ).rowcount
    if not fresh:
        return
    places = {column.name: index for index, column in enumerate(rows.table.columns)}
    names = [column.name for column in stage.columns]
    texts = [rows.columns[places[name]] for name in names]
    if stage.kind == "history":
        names += ["_op", "_commit_lsn", "_ordinal"]
        texts += ["read", format_lsn(rows.snapshot.commit_lsn), str(READ_ORDINAL)]
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(
        stage.target_id, sql.SQL(", ").join(map(sql.Identifier, names))
    )
    with conn.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(text_bytes(copy_lines(texts, len(rows))))
