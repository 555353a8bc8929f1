"""How many dead letters of a pipeline lie at the destination; without what writes there."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.destination.postgres.options import PostgresOptions
from penstock.destination.postgres.sessions.session import (
    Connection,
    destination_errors,
    open_session,
    session_name,
)


def count_dead_letters(options: PostgresOptions, pipeline: str) -> Mapping[str, int]:
    """The rows of each source table; none before the pipeline first ran.

    `penstock status` calls it. Raises DestinationError where the destination does not answer.
    """
    with (
        open_session(options.url, session_name(pipeline, "status"), {}) as conn,
        destination_errors("counting dead letters"),
    ):
        row = conn.execute("SELECT to_regclass('penstock.dead_letter') IS NOT NULL").fetchone()
        return count_letters(conn, pipeline) if row and row[0] else {}


def count_letters(conn: Connection, pipeline: str) -> dict[str, int]:
    """How many rows of each source table lie there."""
    return dict(
        conn.execute(
            "SELECT source_table, count(*) FROM penstock.dead_letter WHERE pipeline = %s"
            " GROUP BY 1 ORDER BY 1",
            [pipeline],
        ).fetchall()
    )
