"""The replication slot: its state as the server reports it, and whether we may go on with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

from penstock.model.errors import SlotError
from penstock.model.lsn import format_lsn, parse_lsn
from penstock.source.postgres.logged_in import as_logged_in
from penstock.source.postgres.source_errors import source_errors

PLUGIN = "pgoutput"
_END_MILLISECONDS = 5000

_START_OVER = (
    "What is in between cannot be had from this slot any more. Start over with `penstock destroy "
    "FILE` and `penstock run FILE`, and take the missed rows from the source by other means."
)


@dataclass(frozen=True)
class SlotState:
    """One row of pg_replication_slots, and the database that we are connected to.

    ``wal_status`` is reserved, extended, unreserved or lost. ``safe_wal_size`` is how many bytes
    may still be written before the slot can be lost; None without a limit. ``invalidation_reason``
    exists from Postgres 16 on (as ``conflicting``) and 17 on (in words).
    """

    name: str
    plugin: str | None
    database: str | None
    connected_database: str
    active: bool
    active_pid: int | None
    wal_status: str | None
    safe_wal_size: int | None
    confirmed_flush: int | None
    restart_lsn: int | None
    invalidation_reason: str | None

    @property
    def is_lost(self) -> bool:
        return self.wal_status == "lost" or self.invalidation_reason is not None


def slot_state(conn: psycopg.Connection[Any], slot: str) -> SlotState | None:
    """The slot's state now, or None where the server has no such slot."""
    with source_errors(f"reading the state of slot {slot}"):
        # As JSON, because each version of Postgres adds columns to this view.
        row = conn.execute(
            "SELECT to_jsonb(s), current_database() FROM pg_replication_slots s"
            " WHERE slot_name = %s",
            [slot],
        ).fetchone()
    return None if row is None else _state(*row)


def _state(row: dict[str, Any], connected_database: str) -> SlotState:
    reason = row.get("invalidation_reason")
    if reason is None and row.get("conflicting"):
        reason = "conflict with recovery"
    return SlotState(
        name=row["slot_name"],
        plugin=row["plugin"],
        database=row["database"],
        connected_database=connected_database,
        active=row["active"],
        active_pid=row["active_pid"],
        wal_status=row["wal_status"],
        safe_wal_size=row["safe_wal_size"],
        confirmed_flush=_lsn(row["confirmed_flush_lsn"]),
        restart_lsn=_lsn(row["restart_lsn"]),
        invalidation_reason=reason,
    )


def _lsn(text: str | None) -> int | None:
    return None if text is None else parse_lsn(text)


def end_own_walsender(conn: psycopg.Connection[Any], slot: str) -> int | None:
    """End the walsender that has the slot where it is one of ours, and wait for that; its pid.

    Only for who holds the pipeline's lock: a capture that lives would have it. Ours have the role
    and the application's name of ``conn``.
    """
    with source_errors(f"ending the walsender of slot {slot}"), as_logged_in(conn):
        row = conn.execute(
            "SELECT a.pid FROM pg_replication_slots s JOIN pg_stat_activity a"
            " ON a.pid = s.active_pid AND a.backend_type = 'walsender'"
            " AND a.usename = current_user"
            " AND a.application_name = current_setting('application_name')"
            " WHERE s.slot_name = %s",
            [slot],
        ).fetchone()
        if row is None:
            return None
        conn.execute("SELECT pg_terminate_backend(%s, %s)", [row[0], _END_MILLISECONDS])
    return int(row[0])


def current_wal_lsn(conn: psycopg.Connection[Any]) -> int:
    """Where the source writes next. For lag and display only: never a point to start from."""
    with source_errors("asking for the source's WAL position"):
        row = conn.execute("SELECT pg_current_wal_lsn()::text").fetchone()
    assert row is not None  # noqa: S101 (a SELECT without FROM has one row)
    return parse_lsn(row[0])


def judge_slot(state: SlotState | None, slot_name: str, *, expected_start: int) -> None:
    """Raise SlotError unless the slot can give us everything from ``expected_start`` on.

    ``expected_start`` is how far log or destination hold the changes already. Postgres silently
    skips to the slot's own position where that is further, so a slot beyond it means a gap.
    """
    if state is None:
        raise SlotError(
            f"The replication slot {slot_name} does not exist, though its pipeline was at "
            f"{format_lsn(expected_start)}: somebody dropped it, or the server failed over to one "
            "that never had it.",
            remedy=_START_OVER,
        )
    if state.plugin != PLUGIN or state.database != state.connected_database:
        raise SlotError(
            f"The replication slot {slot_name} is not ours: it uses plugin {state.plugin!r} in "
            f"database {state.database!r}; expected {PLUGIN!r} in {state.connected_database!r}.",
            remedy="Check source.url; if it is right, drop the foreign slot or rename the "
            "pipeline.",
        )
    if state.is_lost:
        reason = state.invalidation_reason or "the server removed WAL that it needed"
        raise SlotError(
            f"The replication slot {slot_name} is lost ({reason}); the pipeline was at "
            f"{format_lsn(expected_start)}.",
            remedy=_START_OVER + " Then raise max_slot_wal_keep_size, so that a slower pipeline "
            "keeps its slot.",
        )
    if state.confirmed_flush is not None and state.confirmed_flush > expected_start:
        raise SlotError(
            f"The replication slot {slot_name} was moved: changes between "
            f"{format_lsn(expected_start)} and {format_lsn(state.confirmed_flush)} are gone for "
            "us. Another consumer read from it, somebody advanced it, our change log was replaced "
            "by an older one, or the destination lost what it had confirmed.",
            remedy=_START_OVER,
        )
