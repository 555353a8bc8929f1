"""A position of the source, and a snapshot that holds what was committed before it.

Only a logical slot knows such a pair: pg_current_wal_lsn() beside an ordinary snapshot would not
do, for a commit stands in the WAL before others see it. The slot is temporary, and goes with the
connection that made it.
"""

from __future__ import annotations

import logging
import select
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import errors, pq, sql

from penstock.config.connection_url import ConnectionUrl
from penstock.model.errors import SlotError
from penstock.model.lsn import parse_lsn
from penstock.source.postgres.connect import connect
from penstock.source.postgres.source_errors import source_errors
from penstock.source.postgres.subscription.open_transactions import describe_open_writers
from penstock.source.postgres.subscription.slot import PLUGIN

_log = logging.getLogger(__name__)

# When to say what a slot waits for: most need no waiting, and nobody reads the same line often.
_FIRST_WORD_SECONDS = 3.0
_NEXT_WORD_SECONDS = 30.0
_TURN_SECONDS = 0.2
_CANCEL_SECONDS = 5.0


@dataclass(frozen=True)
class SlotSnapshot:
    """``name`` is for SET TRANSACTION SNAPSHOT: it shows every commit before ``lsn``, and no other.

    A transaction belongs to the snapshot if its commit record lies before ``lsn``, else to the
    stream.
    """

    name: str
    lsn: int


@contextmanager
def slot_snapshot(
    url: ConnectionUrl,
    *,
    application: str,
    wait: float,
    check: Callable[[], None],
    waits: Callable[[str], None] = _log.warning,
) -> Iterator[SlotSnapshot]:
    """A snapshot of now, for as long as the block; whoever needs it longer imports it inside.

    The slot has to wait for transactions that have written and are open: ``waits`` is told which
    after some seconds, and now and then after that. ``check`` is called several times a second
    meanwhile; what it raises ends the wait. After ``wait`` seconds SlotError does.
    """
    # closing: what psycopg's own `with` does at the end is not for replication connections.
    with closing(connect(url, replication=True, application_name=application)) as conn:
        yield _created(conn, url, application, wait, waits, check)


def without_timeouts(conn: psycopg.Connection[Any]) -> None:
    """Keep the server from ending a transaction that only waits. Also for replication sessions."""
    settings = ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"]
    if conn.info.server_version >= 170000:
        settings.append("transaction_timeout")
    for setting in settings:
        conn.execute(sql.SQL("SET {} TO 0").format(sql.Identifier(setting)))


def _created(
    conn: psycopg.Connection[Any],
    url: ConnectionUrl,
    application: str,
    wait: float,
    waits: Callable[[str], None],
    check: Callable[[], None],
) -> SlotSnapshot:
    began = time.monotonic()
    next_word = began + _FIRST_WORD_SECONDS
    with source_errors("creating a temporary replication slot"):
        without_timeouts(conn)
        conn.pgconn.send_query(_command(conn))
        try:
            while not _answered(conn):
                check()
                now = time.monotonic()
                if now < min(next_word, began + wait):
                    continue
                # What is asked now and then needs no connection that stays.
                with connect(url, application_name=application) as asking:
                    writers = describe_open_writers(asking)
                if now >= began + wait:
                    raise SlotError(
                        f"A temporary replication slot could not be created within {wait:g} s: it "
                        f"waits for transactions that were open before. Open now: {writers}.",
                        remedy="End or commit them, then run the command again: SELECT pid, "
                        "usename, application_name FROM pg_stat_activity WHERE backend_xid IS NOT "
                        "NULL.",
                    )
                waits(
                    "A snapshot waits for transactions that were open before, since "
                    f"{now - began:.0f} s. Open now: {writers}."
                )
                next_word = now + _NEXT_WORD_SECONDS
        except BaseException:
            # The server would not notice that we are gone before those transactions end.
            with suppress(psycopg.Error):
                conn.cancel_safe(timeout=_CANCEL_SECONDS)
            raise
        return _result(conn)


def _command(conn: psycopg.Connection[Any]) -> bytes:
    # 15 brought the options in parentheses; what 14 knows is kept only for its sake.
    export = "(SNAPSHOT 'export')" if conn.info.server_version >= 150000 else "EXPORT_SNAPSHOT"
    return (
        sql.SQL("CREATE_REPLICATION_SLOT {} TEMPORARY LOGICAL {} {}")
        .format(
            sql.Identifier(f"penstock_snapshot_{uuid.uuid4().hex}"),
            sql.Identifier(PLUGIN),
            sql.SQL(export),
        )
        .as_bytes(conn)
    )


def _answered(conn: psycopg.Connection[Any]) -> bool:
    """Whether the command has ended; waits a little for it."""
    if conn.pgconn.is_busy() and select.select([conn.pgconn.socket], [], [], _TURN_SECONDS)[0]:
        conn.pgconn.consume_input()
    return not conn.pgconn.is_busy()


def _result(conn: psycopg.Connection[Any]) -> SlotSnapshot:
    result = conn.pgconn.get_result()
    if result is None:
        raise psycopg.OperationalError("the server gave no answer")
    if result.status != pq.ExecStatus.TUPLES_OK:
        raise errors.error_from_result(result)
    # The end of the command has to be taken, too, before the connection is in order again.
    while conn.pgconn.get_result() is not None:
        pass
    _, point, name = ((result.get_value(0, column) or b"").decode() for column in range(3))
    return SlotSnapshot(name, parse_lsn(point))
