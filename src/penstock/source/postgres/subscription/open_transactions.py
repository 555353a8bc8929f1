"""Transactions that are open: a new logical slot waits for those that were there before it."""

from __future__ import annotations

from typing import Any

import psycopg


def describe_open_writers(conn: psycopg.Connection[Any]) -> str:
    """Who has a transaction open that has written, in words for a person."""
    # From pg_locks, which shows every session to every role, unlike pg_stat_activity.
    rows = conn.execute(
        "SELECT DISTINCT l.pid, a.usename, a.application_name"
        "  FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid"
        " WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted"
    ).fetchall()
    texts = [
        f"pid {pid} (user {user}, application {application or 'unknown'})"
        if pid is not None
        else "a prepared transaction (see pg_prepared_xacts)"
        for pid, user, application in rows
    ]
    return ", ".join(texts) or "none any more"
