"""What of the source's whole schema a destination lacks; without what writes there."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.destination.postgres.options import PostgresOptions
from penstock.destination.postgres.sessions.session import (
    destination_errors,
    open_session,
    session_name,
)
from penstock.destination.postgres.whole_schema.record import is_recorded, read_unrestored
from penstock.destination.protocols import Unrestored


def list_unrestored(options: PostgresOptions, pipeline: str) -> Sequence[Unrestored]:
    """`penstock status` calls it. Nothing where tables alone are made, or before the first run."""
    if options.whole is None:
        return ()
    with (
        open_session(options.url, session_name(pipeline, "status"), {}) as conn,
        destination_errors("reading what is missing"),
    ):
        return read_unrestored(conn, pipeline) if is_recorded(conn) else ()
