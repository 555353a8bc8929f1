"""Rows that the destination refused: what is said of them, and where they are kept if asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import errors, sql

from penstock.destination.postgres.sessions.session import (
    Connection,
    is_passing,
    is_refusal,
    said,
)
from penstock.destination.postgres.staging.stage import Stage
from penstock.model.errors import TableRefused
from penstock.model.lsn import Position, format_lsn

TABLES = (
    """CREATE TABLE IF NOT EXISTS penstock.dead_letter (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        pipeline text NOT NULL,
        source_table text NOT NULL,
        op text NOT NULL,
        commit_lsn pg_lsn NOT NULL,
        ordinal bigint NOT NULL,
        row_values json NOT NULL,
        sqlstate text NOT NULL,
        cause text NOT NULL,
        refused_at timestamptz NOT NULL DEFAULT now()
    )""",
    # Letters wait here, beside the staged rows of their part, until the part is merged.
    """CREATE UNLOGGED TABLE IF NOT EXISTS penstock.stage_dead_letter (
        pipeline text NOT NULL,
        part bigint NOT NULL,
        source_table text NOT NULL,
        op text NOT NULL,
        commit_lsn pg_lsn NOT NULL,
        ordinal bigint NOT NULL,
        row_values json NOT NULL,
        sqlstate text NOT NULL,
        cause text NOT NULL
    )""",
)

_COLUMNS = "source_table, op, commit_lsn, ordinal, row_values, sqlstate, cause"


@dataclass(frozen=True)
class Letter:
    """One row that was refused, whole: column → text, as far as it is known.

    ``times``: how many equal rows of a table without a key.
    """

    op: str
    values: dict[str, str | None]
    position: Position
    sqlstate: str
    cause: str
    times: int = 1


def refusal(stage: Stage, key: str | None, position: Position, cause: str) -> TableRefused:
    """The error that names table, key, position and cause.

    Without a key it is a row up to that position, and the cause tells which.
    """
    row = f"the row with {key}, changed at" if key is not None else "a row changed up to"
    return TableRefused(
        f"table {stage.source}: the destination refused {row} {position}: {cause}",
        remedy=f"mend the row or the target {'.'.join(stage.target)}, then run `penstock tables "
        f"retry` for {stage.source}; or set destination.dead_letter: true to go on without such "
        "rows",
        table=stage.oid,
    )


def target_refusal(
    role: str, stage: Stage, position: Position, error: psycopg.Error
) -> TableRefused:
    """Where not a row is at fault but its table: it is gone, or is somebody else's now."""
    target = stage.target_id.as_string(None)
    message = f"table {stage.source}: the destination refused its changes up to {position}"
    if isinstance(error, errors.InsufficientPrivilege):
        schema = sql.Identifier(stage.target[0]).as_string(None)
        to = f"TO {sql.Identifier(role).as_string(None)}"
        return TableRefused(
            f"{message}: {said(error)}",
            remedy=f"GRANT USAGE ON SCHEMA {schema} {to}; "
            f"GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON {target} {to}; "
            f"it is tried again by itself, and at once with `penstock tables retry` for "
            f"{stage.source}",
            table=stage.oid,
            may_pass=True,
        )
    return TableRefused(
        f"{message}: {said(error)}",
        remedy=f"mend the target {target}, then run `penstock tables retry` for {stage.source}",
        table=stage.oid,
    )


@contextmanager
def tables_refusals(
    conn: Connection, stage: Stage, position: Callable[[], Position]
) -> Iterator[None]:
    """A savepoint; what the server refuses inside of it is refused of this table alone."""
    try:
        with conn.transaction():
            yield
    except psycopg.Error as error:
        if is_passing(error):
            raise
        if is_refusal(error):
            raise refusal(stage, None, position(), said(error)) from error
        raise target_refusal(conn.info.user, stage, position(), error) from error


def stage_letter(conn: Connection, pipeline: str, stage: Stage, part: int, letter: Letter) -> None:
    """Keep a letter until its part is merged."""
    conn.execute(
        f"INSERT INTO penstock.stage_dead_letter (pipeline, part, {_COLUMNS})"  # noqa: S608
        " SELECT %s, %s, %s, %s, %s::pg_lsn, %s, %s::json, %s, %s FROM generate_series(1, %s)",
        [pipeline, part, *_values(conn, stage, letter)],
    )


def write_letter(conn: Connection, pipeline: str, stage: Stage, letter: Letter) -> None:
    """Deliver a letter, in the transaction of what goes on without its row."""
    conn.execute(
        f"INSERT INTO penstock.dead_letter (pipeline, {_COLUMNS})"  # noqa: S608
        " SELECT %s, %s, %s, %s::pg_lsn, %s, %s::json, %s, %s FROM generate_series(1, %s)",
        [pipeline, *_values(conn, stage, letter)],
    )


def deliver_letters(conn: Connection, parts: Sequence[tuple[str, int]]) -> int:
    """Move the letters of what is being merged, by source table and part; how many there were."""
    return conn.execute(
        "WITH found AS (DELETE FROM penstock.stage_dead_letter WHERE (source_table, part) IN"  # noqa: S608
        " (SELECT * FROM unnest(%s::text[], %s::bigint[])) RETURNING *)"
        f" INSERT INTO penstock.dead_letter (pipeline, {_COLUMNS})"
        f" SELECT pipeline, {_COLUMNS} FROM found",
        [[table for table, _ in parts], [part for _, part in parts]],
    ).rowcount


def forget_staged(conn: Connection, pipeline: str) -> None:
    """Remove letters whose parts were never merged."""
    conn.execute("DELETE FROM penstock.stage_dead_letter WHERE pipeline = %s", [pipeline])


def _values(conn: Connection, stage: Stage, letter: Letter) -> list[object]:
    # A character that the database cannot hold may be just why the row was refused; json, unlike
    # jsonb, takes it escaped.
    is_utf8 = conn.info.parameter_status("server_encoding") == "UTF8"
    return [
        stage.source,
        letter.op,
        format_lsn(letter.position.commit_lsn),
        letter.position.ordinal,
        json.dumps(letter.values, ensure_ascii=not is_utf8),
        letter.sqlstate,
        letter.cause,
        letter.times,
    ]
