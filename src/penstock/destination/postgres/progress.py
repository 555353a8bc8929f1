"""Where a pipeline stands, kept in the destination beside the rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import errors

from penstock.destination.postgres.sessions.pooler import pooled
from penstock.destination.postgres.sessions.session import (
    Connection,
    has_settings,
    session_name,
)
from penstock.model.errors import DestinationUnavailable, Fenced
from penstock.model.lsn import format_lsn
from penstock.model.watermarks import Watermarks
from penstock.source.postgres.logged_in import as_logged_in

DRIVER, PIECES = "driver", "pieces"
"""What the sessions are for on which the position moves."""

_PATIENCE = "15s"

TABLE = """CREATE TABLE IF NOT EXISTS penstock.progress (
    pipeline text PRIMARY KEY,
    epoch bigint NOT NULL,
    commit_lsn pg_lsn,
    end_lsn pg_lsn,
    behind jsonb NOT NULL DEFAULT '{}',
    committed_at timestamptz NOT NULL DEFAULT now(),
    source jsonb
)"""


@dataclass(frozen=True)
class Progress:
    """``watermarks`` is None before the first commit. ``epoch`` counts the drivers so far."""

    epoch: int
    watermarks: Watermarks | None

    def is_before(self, other: Progress) -> bool:
        """Whether it holds less than the other one."""
        if self.watermarks is None or other.watermarks is None:
            return self.watermarks is None and other.watermarks is not None
        return self.watermarks.frontier < other.watermarks.frontier


def add_source(conn: Connection) -> None:
    """Of which source a position is was not kept at first. Asked before: ALTER TABLE would wait for
    every commit that is under way.
    """
    row = conn.execute(
        "SELECT count(*) FROM pg_attribute WHERE attname = 'source'"
        " AND attrelid = to_regclass('penstock.progress')"
    ).fetchone()
    if row == (0,):
        conn.execute("ALTER TABLE penstock.progress ADD COLUMN source jsonb")


def read_progress(conn: Connection, pipeline: str, *, settled: bool = False) -> Progress | None:
    """``settled``: behind a commit that moves it just now."""
    # As JSON: whoever only looks may meet a table that has no such column yet.
    query = "SELECT to_jsonb(p) FROM penstock.progress p WHERE pipeline = %s"
    row = conn.execute(f"{query} FOR SHARE" if settled else query, [pipeline]).fetchone()
    if row is None:
        return None
    found = row[0]
    if found["commit_lsn"] is None:
        return Progress(found["epoch"], None)
    return Progress(found["epoch"], Watermarks.from_json({**found, "frontier": found}))


def take_over(conn: Connection, pipeline: str) -> int:
    """The epoch of a new driver; whoever drove before is fenced from now on.

    Waits a while for a commit that is under way; one that does not end belongs to a driver that is
    frozen, and is ended. Whatever else earlier drivers and their tasks have under way is of no use
    any more. A machine that is frozen would hold its locks for as long as it is: the sessions end.
    """
    try:
        epoch = _next_epoch(conn, pipeline, _PATIENCE)
    except errors.LockNotAvailable:
        _end_sessions(conn, pipeline, [DRIVER, PIECES])
        epoch = _next_epoch(conn, pipeline, "0")
    _end_sessions(conn, pipeline, ["tables", "task", "copy", PIECES])
    return epoch


def _end_sessions(conn: Connection, pipeline: str, purposes: Sequence[str]) -> None:
    with as_logged_in(conn):
        conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name ="
            " ANY (%s) AND datname = current_database() AND usename = session_user"
            " AND pid <> pg_backend_pid()",
            [[session_name(pipeline, purpose) for purpose in purposes]],
        )


def _next_epoch(conn: Connection, pipeline: str, patience: str) -> int:
    with conn.transaction():
        conn.execute("SELECT set_config('lock_timeout', %s, true)", [patience])
        row = conn.execute(
            "INSERT INTO penstock.progress AS p (pipeline, epoch) VALUES (%s, 1)"
            " ON CONFLICT (pipeline) DO UPDATE SET epoch = p.epoch + 1 RETURNING epoch",
            [pipeline],
        ).fetchone()
    return int(row[0]) if row else 0


def take_back(conn: Connection, pipeline: str, epoch: int) -> None:
    """Let this driver be the one again at a server that has forgotten it; no effect where a later
    one has come meanwhile.
    """
    conn.execute(
        "INSERT INTO penstock.progress AS p (pipeline, epoch) VALUES (%s, %s)"
        " ON CONFLICT (pipeline) DO UPDATE SET epoch = excluded.epoch"
        " WHERE p.epoch < excluded.epoch",
        [pipeline, epoch],
    )


def advance(
    conn: Connection, pipeline: str, held: Progress, to: Watermarks, session: str = DRIVER
) -> None:
    """Go on from ``held``, on the session for that purpose; raises Fenced where another driver goes
    on from there, DestinationUnavailable where the destination has to be asked again, because it
    went back, and DestinationError where a pooler has put us on a server connection without our
    settings.

    The row stays locked until the transaction ends, so a second driver waits for its outcome.
    """
    expected = None if held.watermarks is None else held.watermarks.frontier
    told = to.to_json()
    changed = conn.execute(
        "UPDATE penstock.progress SET commit_lsn = %s, end_lsn = %s, behind = %s, source = %s,"
        " committed_at = clock_timestamp() WHERE pipeline = %s AND epoch = %s"
        " AND commit_lsn IS NOT DISTINCT FROM %s::pg_lsn"
        " AND end_lsn IS NOT DISTINCT FROM %s::pg_lsn"
        " AND current_setting('penstock.session', true) = %s::text || ' ' || pg_backend_pid()",
        [
            format_lsn(to.frontier.commit_lsn),
            format_lsn(to.frontier.end_lsn),
            json.dumps(told["behind"]),
            json.dumps(told["source"]),
            pipeline,
            held.epoch,
            None if expected is None else format_lsn(expected.commit_lsn),
            None if expected is None else format_lsn(expected.end_lsn),
            session_name(pipeline, session),
        ],
    ).rowcount
    if changed != 1:
        if not has_settings(conn, session_name(pipeline, session)):
            raise pooled("before the destination")
        found = read_progress(conn, pipeline) or Progress(0, None)
        if found.epoch < held.epoch or (found.epoch == held.epoch and found.is_before(held)):
            raise DestinationUnavailable(
                f"destination postgres: pipeline {pipeline} does not stand where it was left: this "
                "server has lost commits; nothing of this batch was committed"
            )
        raise Fenced(
            f"destination postgres: another driver of pipeline {pipeline} has taken over; nothing "
            "of this batch was committed",
            remedy="stop this one; the other goes on where it stood",
        )
