"""A position of the source together with the rows as they were there."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from penstock.config.connection_url import ConnectionUrl
from penstock.errors import SlotError
from penstock.lsn import parse_lsn
from penstock.postgres.connect import connect
from penstock.postgres.slot import PLUGIN
from penstock.postgres.source_errors import source_errors
from penstock.postgres.subscription import SLOT_WAIT_SECONDS
from penstock.verify.snapshot import Snapshot


@dataclass(frozen=True)
class SourcePoint:
    """``snapshot`` holds what was committed before ``lsn``, and nothing else."""

    lsn: int
    snapshot: Snapshot


@contextmanager
def source_point(
    url: ConnectionUrl, application: str, slot_wait: float = SLOT_WAIT_SECONDS
) -> Iterator[SourcePoint]:
    """A point of now, kept open for the block.

    Only a logical slot knows such a pair; a temporary one is made for it and goes at once. Reading
    pg_current_wal_lsn() beside an ordinary snapshot would not do: a commit is written to the WAL
    before others see it.
    """

    def session() -> psycopg.Connection[Any]:
        return connect(url, application_name=application)

    with connect(url, replication=True, application_name=application) as replication:
        lsn, exported = _create_slot(replication, slot_wait)
        # It has to be taken over before the replication connection does anything else.
        snapshot = Snapshot(session, source_errors, exported)
        snapshot.open()
    try:
        yield SourcePoint(lsn, snapshot)
    finally:
        snapshot.close()


def _create_slot(conn: psycopg.Connection[Any], slot_wait: float) -> tuple[int, str]:
    """The consistent point of a new temporary slot, and the name of its snapshot."""
    name = f"penstock_verify_{uuid.uuid4().hex}"
    command = sql.SQL("CREATE_REPLICATION_SLOT {} TEMPORARY LOGICAL {} EXPORT_SNAPSHOT").format(
        sql.Identifier(name), sql.Identifier(PLUGIN)
    )

    def give_up() -> None:
        with suppress(psycopg.Error):
            conn.cancel_safe()

    # A replication command knows no statement_timeout.
    timer = threading.Timer(slot_wait, give_up)
    timer.daemon = True
    timer.start()
    try:
        with source_errors("creating a temporary replication slot"):
            try:
                row = conn.execute(command).fetchone()
            except psycopg.errors.QueryCanceled:
                raise SlotError(
                    f"A temporary replication slot could not be created within {slot_wait:g} s: it "
                    "waits for transactions that were open before.",
                    remedy="End or commit them, then run the command again: SELECT pid, usename, "
                    "application_name FROM pg_stat_activity WHERE backend_xid IS NOT NULL.",
                ) from None
    finally:
        timer.cancel()
    assert row is not None  # noqa: S101 (the command returns one row or fails)
    return parse_lsn(row[1]), row[2]
