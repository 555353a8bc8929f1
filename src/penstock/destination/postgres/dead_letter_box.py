"""The dead letters of a pipeline at a Postgres destination, for who looks after them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC

from penstock.destination.dead_letters import DeadLetter
from penstock.destination.postgres.options import PostgresOptions
from penstock.destination.postgres.sessions.session import (
    Connection,
    destination_errors,
    open_session,
    session_name,
)

_COLUMNS = (
    "id, source_table, op, commit_lsn::text, ordinal, sqlstate, cause, refused_at, row_values::text"
)
_LIST = (
    f"SELECT {_COLUMNS} FROM penstock.dead_letter WHERE pipeline = %s AND id > %s"  # noqa: S608
    " AND (%s::text IS NULL OR source_table = %s) ORDER BY id LIMIT %s"
)
_GET = f"SELECT {_COLUMNS} FROM penstock.dead_letter WHERE pipeline = %s AND id = %s"  # noqa: S608
_DISCARD = (
    "DELETE FROM penstock.dead_letter WHERE pipeline = %s AND id = ANY (%s::bigint[]) RETURNING id"
)


class PostgresDeadLetters:
    """Implements DeadLetterBox on the table penstock.dead_letter."""

    def __init__(self, options: PostgresOptions, pipeline: str) -> None:
        self._options = options
        self._pipeline = pipeline

    def list(
        self, *, table: str | None = None, after: int = 0, most: int = 100
    ) -> Sequence[DeadLetter]:
        with self._session("reading dead letters") as conn:
            if conn is None:
                return []
            values = [self._pipeline, after, table, table, most]
            return [_letter(row) for row in conn.execute(_LIST, values).fetchall()]

    def get(self, letter: int) -> DeadLetter | None:
        with self._session("reading a dead letter") as conn:
            if conn is None:
                return None
            row = conn.execute(_GET, [self._pipeline, letter]).fetchone()
            return None if row is None else _letter(row)

    def discard(self, letters: Sequence[int]) -> Sequence[int]:
        with self._session("discarding dead letters") as conn:
            if conn is None:
                return []
            with conn.transaction():
                rows = conn.execute(_DISCARD, [self._pipeline, [*letters]]).fetchall()
            return sorted(row[0] for row in rows)

    @contextmanager
    def _session(self, action: str) -> Iterator[Connection | None]:
        """A session; None before the pipeline first ran."""
        name = session_name(self._pipeline, "dead letters")
        with open_session(self._options.url, name, {}) as conn, destination_errors(action):
            row = conn.execute("SELECT to_regclass('penstock.dead_letter') IS NOT NULL").fetchone()
            yield conn if row and row[0] else None


def _letter(row: tuple[object, ...]) -> DeadLetter:
    number, table, op, lsn, ordinal, state, cause, at, values = row
    return DeadLetter(
        int(str(number)),
        str(table),
        str(op),
        str(lsn),
        int(str(ordinal)),
        str(state),
        str(cause),
        at.astimezone(UTC).isoformat(),  # type: ignore[attr-defined]
        json.loads(str(values)),
    )
