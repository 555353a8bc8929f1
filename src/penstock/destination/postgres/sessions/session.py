"""Connections to the destination, and its errors as errors for people."""

from __future__ import annotations

import select
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import errors, sql
from psycopg.pq import ConnStatus, ExecStatus

from penstock.config.connection_url import ConnectionUrl
from penstock.destination.postgres.sessions.pooler import refuse_transaction_pool
from penstock.model.errors import DestinationError, DestinationUnavailable
from penstock.source.postgres.answer_watch import next_result
from penstock.source.postgres.connect import Party, connect, watch_answers
from penstock.source.postgres.silence import has_rested

DESTINATION = Party("destination.url", DestinationError, DestinationUnavailable, found_by_name=True)

Connection = psycopg.Connection[tuple[Any, ...]]

# The forms in which capture asks the source for its values, so that every text means the same here.
_SETTINGS = {
    "client_encoding": "UTF8",
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "lc_monetary": "C",
    "xmloption": "content",
    "search_path": "pg_catalog",
    "standard_conforming_strings": "on",
    "array_nulls": "on",
    "row_security": "off",
    # A transaction has to see what tasks stage while it is open.
    "default_transaction_isolation": "read committed",
    # Ours is work that must end by itself, however long the defaults of the role allow.
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "jit": "off",
    "work_mem": "64MB",
}
_SETTINGS_SINCE_17 = {"transaction_timeout": "0"}
# Says whose settings a server connection has, for who may have got another one.
_MARK = "penstock.session"
_PIECE_BYTES = 2**18
# Shutdown, crash and start of the server; no connection, memory or disk left; a deadlock or a
# cancelled statement: all of them pass.
_PASSING = ("57P", "57014", "08", "53", "40", "55P03", "25006")


def open_session(url: ConnectionUrl, application: str, settings: dict[str, str]) -> Connection:
    """A connection in autocommit mode whose texts mean what the source's mean.

    Raises DestinationError where a pooler stands in between that would lose the settings.
    """
    conn = connect(url, application_name=application, party=DESTINATION)
    try:
        with destination_errors("preparing the connection"):
            wanted = _SETTINGS | settings | {_MARK: application}
            if conn.info.server_version >= 170000:
                wanted |= _SETTINGS_SINCE_17
            if not _make_settings(conn, wanted, only_on=conn.info.backend_pid):
                # A pooler invents the numbers that it gives its clients.
                refuse_transaction_pool(conn, url, DESTINATION)
                _make_settings(conn, wanted)
                row = conn.execute("SELECT pg_catalog.pg_backend_pid()", prepare=False).fetchone()
                watch_answers(conn, url, application, row[0] if row else 0)
    except BaseException:
        conn.close()
        raise
    # Plans are kept from the second use on: every batch has the same statements.
    conn.prepare_threshold = 2
    conn.prepared_max = None
    return conn


def run(conn: Connection, statement: sql.Composed) -> None:
    """Run what holds text of the source's catalogue, by the extended protocol: the server takes a
    single statement, whatever the text holds.
    """
    conn.execute(statement, binary=True)


def _make_settings(conn: Connection, wanted: dict[str, str], *, only_on: int | None = None) -> bool:
    """Whether they were made: not if another backend than ``only_on`` answers."""
    made = conn.execute(
        # Behind a pooler the role's search path still holds.
        "SELECT pg_catalog.set_config(name, CASE WHEN name OPERATOR(pg_catalog.=) %s::text"
        " THEN pg_catalog.concat(value, ' ', pg_catalog.pg_backend_pid()) ELSE value END, false)"
        " FROM ROWS FROM (pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::text[]))"
        " AS wanted (name, value)"
        " WHERE %s::int IS NULL OR pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) %s::int",
        [_MARK, list(wanted), list(wanted.values()), only_on, only_on],
        prepare=False,
    )
    return made.rowcount > 0


def has_settings(conn: Connection, application: str) -> bool:
    """Whether the server connection that serves us now is the one whose settings we made."""
    row = conn.execute(
        "SELECT current_setting(%s, true) = %s::text || ' ' || pg_backend_pid()",
        [_MARK, application],
    ).fetchone()
    return row == (True,)


def is_passing(error: psycopg.Error) -> bool:
    """Whether another try may succeed: the connection or the server is at fault, not the data."""
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.sqlstate.startswith(_PASSING)


def is_refusal(error: psycopg.Error) -> bool:
    """Whether the server refused a row: a value, a constraint or a limit is at fault."""
    if error.sqlstate is None or is_passing(error):
        return False
    # Whatever is wrong with a line: a regclass that names nothing here has the code of a statement
    # that does.
    lines = (error.diag.context or "").splitlines()
    return error.sqlstate[:2] in ("22", "23", "44", "54", "P0") or any(
        line.startswith("COPY ") for line in lines
    )


def said(error: psycopg.Error) -> str:
    """What the server said, on one line, without the statement that it quotes."""
    primary = error.diag.message_primary or str(error)
    detail = f" ({error.diag.message_detail})" if error.diag.message_detail else ""
    return " ".join(f"{primary}{detail}".split()).rstrip(".")


@contextmanager
def destination_errors(action: str) -> Iterator[None]:
    """Turn psycopg errors inside the block into DestinationError or DestinationUnavailable."""
    try:
        yield
    except psycopg.Error as error:
        raise as_destination_error(error, action) from error


def as_destination_error(error: psycopg.Error, action: str) -> DestinationError:
    if is_passing(error):
        return DestinationUnavailable(
            f"While {action}, the destination was lost: {said(error)}",
            remedy="check that the server is up; Penstock tries again by itself",
        )
    remedy = "the message says what it refused; docs/destinations/postgres.md lists what it needs"
    if isinstance(error, errors.InsufficientPrivilege):
        remedy = (
            "grant the right that the message names; docs/destinations/postgres.md lists what the "
            "role needs"
        )
    return DestinationError(
        f"While {action}, the destination refused: {said(error)}", remedy=remedy
    )


def copy_in(conn: Connection, loads: Sequence[tuple[bytes, Iterator[memoryview]]]) -> list[int]:
    """Run several COPY … FROM STDIN in one request, each with its data; how many rows each added.
    In one transaction: the caller's, or one of their own.

    By libpq itself: for many small tables, the way through a cursor costs more than the rows.
    """
    pgconn = conn.pgconn
    statements = b";".join(statement for statement, _ in loads)
    counts: list[int] = []
    result = None
    if loads:
        pgconn.send_query(statements)
        _flush(conn)
        result = next_result(conn)
    for _, data in loads:
        if result is None or result.status != ExecStatus.COPY_IN:
            break
        try:
            for part in data:
                _put(conn, part)
        except BaseException:
            with suppress(psycopg.Error):
                pgconn.put_copy_end(b"what was to be copied could not be made")
                _flush(conn)
                while next_result(conn) is not None:
                    pass
            raise
        pgconn.put_copy_end()
        _flush(conn)
        result = next_result(conn)
        if result is None or result.status != ExecStatus.COMMAND_OK:
            break
        counts.append(result.command_tuples or 0)
        result = next_result(conn)
    while (following := next_result(conn)) is not None:
        result = result or following
    if pgconn.status != ConnStatus.OK:
        raise psycopg.OperationalError(pgconn.get_error_message())
    if result is not None and result.status != ExecStatus.COMMAND_OK:
        raise errors.error_from_result(result)
    return counts


def _put(conn: Connection, data: memoryview) -> None:
    """Send data of a COPY, piece by piece: libpq holds what the server has not taken yet."""
    for first in range(0, len(data), _PIECE_BYTES):
        piece = data[first : first + _PIECE_BYTES]
        while not conn.pgconn.put_copy_data(piece):
            _await_room(conn)
        _flush(conn)


def _flush(conn: Connection) -> None:
    while conn.pgconn.flush():
        _await_room(conn)


def _await_room(conn: Connection) -> None:
    """Wait here, and not in libpq, which holds up all threads of the process meanwhile."""
    poll = select.poll()
    poll.register(conn.pgconn.socket, select.POLLIN | select.POLLOUT)
    if any(event & ~select.POLLOUT for _, event in poll.poll()):
        conn.pgconn.consume_input()


def session_name(pipeline: str, purpose: str) -> str:
    """What the server shows of a session; those of a purpose are found by it."""
    return f"penstock {pipeline} {purpose}"


def is_lost(conn: Connection) -> bool:
    """Whether the server has ended a session that nobody uses at the moment, or may have, since it
    was idle for long; closes it then.
    """
    if has_rested(conn):
        conn.close()
        return True
    poll = select.poll()
    poll.register(conn.fileno(), select.POLLIN)
    if not poll.poll(0):
        return False
    # Something came unasked: news of a setting, or the end.
    try:
        conn.execute("SELECT")
    except psycopg.OperationalError:
        conn.close()
        return True
    return False
