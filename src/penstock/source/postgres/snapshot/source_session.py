"""Connections that executors read chunks through, kept for the next chunk.

Two kinds: through psycopg for the bytes of COPY as they are, and through ADBC, which turns COPY's
binary form into Arrow in native code. Between two chunks they hold no transaction: an idle one
would keep locks, and rows from being vacuumed.
"""

from __future__ import annotations

import atexit
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg
import pyarrow as pa
from adbc_driver_manager import Error as ArrowError
from adbc_driver_postgresql import StatementOptions
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.pq import ExecStatus

from penstock.config.connection_url import ConnectionUrl
from penstock.model.errors import SourceUnavailable
from penstock.model.value_settings import VALUE_SETTINGS
from penstock.source.postgres.answer_watch import next_result, wait_for_input
from penstock.source.postgres.connect import connect, without_secrets
from penstock.source.postgres.silence import IDLE_SECONDS, server_settings, session_parameters

APPLICATION = "penstock copy"
_UNKNOWN_CODE = "XX000"
# One piece of COPY's bytes; rows are joined until it is full.
_PIECE_BYTES = 256 * 1024
# One Arrow batch. Small enough for the caches, and for rows that are read in parallel.
_BATCH_BYTES = 4 * 1024 * 1024

# A copy ends by itself, however long the role's defaults allow. Rows that a policy hides must be
# an error. Other cores belong to other chunks.
_SETTINGS = {
    "row_security": "off",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "transaction_timeout": "0",
    "enable_tidscan": "on",
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
}
# Not every version has each of them.
_SET = sql.SQL(
    "SELECT count(set_config(s.name, wanted.value, false))"
    " FROM unnest({}::text[], {}::text[]) AS wanted (name, value)"
    " JOIN pg_catalog.pg_settings s ON s.name = wanted.name"
).format(sql.Literal(list(_SETTINGS)), sql.Literal(list(_SETTINGS.values())))


class SessionError(Exception):
    """What the server or the connection said; ``sqlstate`` is None where it was the connection."""

    def __init__(self, said: str, sqlstate: str | None) -> None:
        super().__init__(said)
        self.said = said
        self.sqlstate = sqlstate

    @property
    def is_loss(self) -> bool:
        """Whether the connection is gone; the server may have said farewell."""
        return self.sqlstate is None or self.sqlstate.startswith("57P")


class ReadSession(ABC):
    """A connection to the source whose texts are those of the stream."""

    idle_since = 0.0

    @abstractmethod
    def __init__(self, url: ConnectionUrl) -> None:
        """Connects."""

    def prepare(self) -> None:
        self.run("; ".join(VALUE_SETTINGS))
        self.row(_SET.as_string(None))

    @abstractmethod
    def run(self, statements: str) -> None:
        """Execute statements without a result."""

    @abstractmethod
    def row(self, query: str) -> tuple[Any, ...]:
        """The only row of a query."""

    @abstractmethod
    def close(self) -> None: ...


S = TypeVar("S", bound=ReadSession)


class CopySession(ReadSession):
    """Reads bytes."""

    def __init__(self, url: ConnectionUrl, application: str = APPLICATION) -> None:
        self._conn = connect(url, application_name=application)
        # Several statements in one request cannot be prepared.
        self._conn.prepare_threshold = None
        self.copied = 0

    def run(self, statements: str) -> None:
        with _psycopg_errors():
            self._conn.execute(statements.encode())

    def row(self, query: str) -> tuple[Any, ...]:
        with _psycopg_errors():
            (found,) = self._conn.execute(query.encode()).fetchall()
        return found

    def copy(self, statement: str) -> Iterator[bytes]:
        """What a COPY … TO STDOUT sends, in pieces of whole rows; ``copied`` then counts them."""
        # By libpq itself, which hands over one row a call: going through a cursor costs more than
        # what the server does for a row.
        with _psycopg_errors():
            self._conn.pgconn.send_query(statement.encode())
            result = next_result(self._conn)
            assert result is not None  # noqa: S101 (a statement has one)
            if result.status != ExecStatus.COPY_OUT:
                raise psycopg.errors.error_from_result(result)
            piece = self._piece()
            while len(piece) >= _PIECE_BYTES:
                yield piece
                piece = self._piece()
            if piece:
                yield piece
            while (following := next_result(self._conn)) is not None:
                result = following
            if result.status != ExecStatus.COMMAND_OK:
                raise psycopg.errors.error_from_result(result)
            self.copied = result.command_tuples or 0

    def _piece(self) -> bytes:
        """The next rows, until it is full; less than that is the last one."""
        read = self._conn.pgconn.get_copy_data
        rows: list[memoryview] = []
        size = 0
        while size < _PIECE_BYTES:
            length, data = read(1)
            if length < 0:
                break
            if length:
                rows.append(data)
                size += length
            else:
                wait_for_input(self._conn)
        return b"".join(rows)

    def close(self) -> None:
        self._conn.close()


class ArrowSession(ReadSession):
    """Reads Arrow.

    Releases of the driver that were built with optimisation read rows more than twice as fast as
    the later ones, but end the process where a statement begins on a connection that is gone. So a
    second connection looks first whether the server still has the first one. Losing it later, while
    rows come, is an error like any other.
    """

    def __init__(self, url: ConnectionUrl) -> None:
        # Seconds, with pandas in tow: not for those who read bytes, or hold a snapshot.
        from adbc_driver_postgresql import dbapi

        self._watch = CopySession(url, f"{APPLICATION} watch")
        parameters = session_parameters(url, APPLICATION)
        try:
            self._conn = dbapi.connect(make_conninfo(url.reveal(), **parameters), autocommit=True)
        except ArrowError as error:
            self._watch.close()
            raise SourceUnavailable(
                f"No connection to database {url.database!r} at {url.host}, port {url.port} "
                f"through ADBC: {without_secrets(str(error), url)}.",
                remedy="psycopg does connect: look for options of source.url that the libpq inside "
                "adbc-driver-postgresql does not know, such as GSSAPI.",
            ) from None
        self._cursor = self._conn.cursor()
        self._cursor.execute(f"{server_settings(url)}, pg_catalog.pg_backend_pid()")
        ((*_, backend),) = self._cursor.fetchall()
        self._is_there = (
            sql.SQL("SELECT count(*) FROM pg_catalog.pg_stat_get_activity({})")
            .format(backend)
            .as_string(None)
        )
        self._cursor.adbc_statement.set_options(
            **{StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(_BATCH_BYTES)}
        )

    def prepare(self) -> None:
        self._watch.prepare()
        super().prepare()

    def run(self, statements: str) -> None:
        self._look()
        with self._errors():
            # Without a result to describe, several statements go in one request.
            self._cursor.adbc_statement.set_sql_query(statements)
            self._cursor.adbc_statement.execute_update()

    def row(self, query: str) -> tuple[Any, ...]:
        self._look()
        with self._errors():
            self._cursor.execute(query)
            (found,) = self._cursor.fetchall()
        return tuple(found)

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """The rows of a query, some thousand at a time."""
        self._look()
        with self._errors():
            self._cursor.execute(query)
            with self._cursor.fetch_record_batch() as reader:
                yield from reader

    def _look(self) -> None:
        if self._watch.row(self._is_there) != (1,):
            raise SessionError("the server has ended the session", None)

    def close(self) -> None:
        self._watch.close()
        with suppress(ArrowError):
            self._cursor.close()
        with suppress(ArrowError):
            self._conn.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (ArrowError, OSError, pa.ArrowInvalid) as error:
            # An error in the middle of the rows brings no code along. An ERROR is the server's, and
            # the session goes on; everything else is its end.
            told = re.search(r"ERROR: +(.*)", str(error))
            said = told[1] if told else " ".join(str(error).split())
            code = getattr(error, "sqlstate", None) or (_UNKNOWN_CODE if told else None)
            raise SessionError(said, code) from error


@contextmanager
def transaction(kind: type[S], url: ConnectionUrl, begin: str) -> Iterator[S]:
    """A session for the block, after the statements of ``begin``; then it commits and is kept.

    After an error, or a block that was left early, it is closed: nobody knows what is still to come
    through it.
    """
    session = _begun(kind, url, begin)
    try:
        yield session
        session.run("COMMIT")
    except BaseException:
        session.close()
        raise
    session.idle_since = time.monotonic()
    _idle.setdefault(_key(kind, url), []).append(session)


@atexit.register
def close_idle_sessions() -> None:
    """Close what this process keeps for chunks to come."""
    for (process, *_), sessions in list(_idle.items()):
        while process == os.getpid() and sessions:
            sessions.pop().close()


def _begun(kind: type[S], url: ConnectionUrl, begin: str) -> S:
    while (kept := _take(kind, url)) is not None:
        try:
            kept.run(begin)
        except SessionError as error:
            kept.close()
            if not error.is_loss:
                raise
            # It was lost while it was idle: that says nothing about the server now.
        else:
            return kept
    session = kind(url)
    try:
        session.prepare()
        session.run(begin)
    except BaseException:
        session.close()
        raise
    return session


# Sessions by process: a fork must not share them.
_idle: dict[tuple[int, type[ReadSession], ConnectionUrl], list[ReadSession]] = {}


def _key(
    kind: type[ReadSession], url: ConnectionUrl
) -> tuple[int, type[ReadSession], ConnectionUrl]:
    return os.getpid(), kind, url


def _take(kind: type[S], url: ConnectionUrl) -> S | None:
    kept = _idle.get(_key(kind, url), [])
    while kept:
        found = kept.pop()
        if time.monotonic() - found.idle_since < IDLE_SECONDS:
            assert isinstance(found, kind)  # noqa: S101 (the key says so)
            return found
        found.close()
    return None


@contextmanager
def _psycopg_errors() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        said = error.diag.message_primary or str(error)
        raise SessionError(" ".join(said.split()), error.sqlstate) from error
