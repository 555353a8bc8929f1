"""Sessions in which functions of PostgreSQL Anonymizer are called: they only read.

One is kept in each process and for each database. What a server says of a value is not repeated:
SQLSTATE and the function's name are all that leaves here.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import sql

from penstock.answer_limit import answered_within
from penstock.config.connection_url import ConnectionUrl
from penstock.model.errors import SourceUnavailable
from penstock.model.value_settings import VALUE_SETTINGS
from penstock.transform.transformers.contract import UnfitError, ValueRefusedError

Query = sql.SQL | sql.Composed
STATEMENT_SECONDS = 120
_SILENCE_SECONDS = 60
# Where a proxy stands in between, it goes on to answer keepalives for a server that is gone.
ANSWER_SECONDS = STATEMENT_SECONDS + _SILENCE_SECONDS
_SETTINGS = (
    *VALUE_SETTINGS,
    "SET default_transaction_read_only TO on",
    f"SET statement_timeout TO '{STATEMENT_SECONDS}s'",
    f"SET tcp_user_timeout TO '{_SILENCE_SECONDS}s'",
)

# Connections, resources, conflicts, locks, shutdowns, cancelled queries, errors of the system.
_PASSING = ("08", "40", "53", "55P03", "57", "58")
# The call itself is refused, whatever the value.
_LASTING = ("0A", "25", "28", "3D", "3F", "42")


class Session:
    """``checked`` are the calls that were compared with what the driver knows of them."""

    def __init__(self, url: ConnectionUrl, purpose: str) -> None:
        self.checked: set[object] = set()
        self._url = url
        failure: SourceUnavailable | None = None
        try:
            self._conn = _connected(url, purpose)
        except psycopg.Error as error:
            failure = self._unavailable(_without_secrets(str(error), url))
        if failure is not None:
            raise failure

    @property
    def is_broken(self) -> bool:
        return self._conn.closed

    def close(self) -> None:
        self._conn.close()

    def rows(self, query: Query, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Of a query over the catalogue. Raises SourceUnavailable and UnfitError."""
        return self._run("the catalogue", query, parameters).fetchall()

    def texts(self, function: str, query: Query, parameters: Sequence[Any]) -> list[str | None]:
        """The only column of what a function gives, as Postgres writes it.

        Raises ValueRefusedError, UnfitError where the call is refused whatever the value, and
        SourceUnavailable.
        """
        found = self._run(f"anon.{function}", query, parameters).pgresult
        if found is None:
            return []
        # As they are: casts to text give other texts of boolean and inet.
        values = [found.get_value(row, 0) for row in range(found.ntuples)]
        return [None if value is None else value.decode() for value in values]

    def _run(
        self, what: str, query: Query, parameters: Sequence[Any]
    ) -> psycopg.Cursor[tuple[Any, ...]]:
        try:
            with answered_within(self._conn, ANSWER_SECONDS):
                return self._conn.execute(query, parameters)
        except psycopg.Error as error:
            failure = self._failure(what, error)
        # Outside of the block: the error of psycopg, which may show values, is not its context.
        raise failure

    def _failure(self, what: str, error: psycopg.Error) -> Exception:
        state = error.sqlstate
        if state == "57014":
            return SourceUnavailable(
                f"{what} was cancelled ({self._url}): its statement may have taken longer than "
                f"{STATEMENT_SECONDS} seconds.",
                remedy="If it comes again, set a smaller batch.buffer_bytes and source.copy."
                "chunk_bytes, or take a faster function.",
            )
        if self._conn.closed or (state or "").startswith(_PASSING):
            return self._unavailable(f"{what}: SQLSTATE {state or 'none'}")
        if state is not None and state.startswith(_LASTING):
            return RefusedCallError(what, state)
        return ValueRefusedError(f"{what} refused a value with SQLSTATE {state or 'none'}")

    def _unavailable(self, said: str) -> SourceUnavailable:
        return SourceUnavailable(
            f"The database whose functions mask values did not answer ({self._url}; {said}).",
            remedy="Check that the server is up, and that every executor reaches it: its URL is "
            "transform.anonymizer.url, or else source.url.",
        )


class RefusedCallError(UnfitError):
    """A call that the server refuses whatever the value, with this ``sqlstate``."""

    def __init__(self, what: str, sqlstate: str) -> None:
        super().__init__(f"the server refuses {what} with SQLSTATE {sqlstate}")
        self.sqlstate = sqlstate


def _connected(url: ConnectionUrl, purpose: str) -> psycopg.Connection[tuple[Any, ...]]:
    wanted: dict[str, Any] = {
        "connect_timeout": 10,
        "keepalives_idle": _SILENCE_SECONDS // 2,
        "keepalives_interval": _SILENCE_SECONDS // 6,
        "keepalives_count": 3,
        "tcp_user_timeout": _SILENCE_SECONDS * 1000,
    }
    ours = {name: value for name, value in wanted.items() if not url.has(name)}
    conn = psycopg.connect(
        url.reveal(), autocommit=True, fallback_application_name=f"penstock {purpose}", **ours
    )
    try:
        with answered_within(conn, ANSWER_SECONDS):
            _expect_no_pooler(conn)
            conn.execute("; ".join(_SETTINGS).encode())
    except BaseException:
        conn.close()
        raise
    return conn


def _expect_no_pooler(conn: psycopg.Connection[Any]) -> None:
    """Raise UnfitError where one stands in between: it would keep settings for whoever comes next,
    and invents the numbers that it gives its clients for cancelling queries.
    """
    if conn.execute("SELECT pg_catalog.pg_backend_pid()").fetchone() != (conn.info.backend_pid,):
        raise UnfitError(
            "a connection pooler stands before the database of the function: transform.anonymizer."
            "url has to lead to the server itself"
        )


def _without_secrets(text: str, url: ConnectionUrl) -> str:
    for secret in url.secrets:
        text = text.replace(secret, "***")
    return " ".join(text.split()).rstrip(".")


@contextmanager
def own_session(url: ConnectionUrl) -> Iterator[Session]:
    """One for the block alone."""
    session = Session(url, "anonymizer check")
    try:
        yield session
    finally:
        session.close()


# By process: a connection does not survive a fork.
_KEPT: dict[tuple[int, str], Session] = {}
_LOCK = threading.RLock()


@contextmanager
def kept_session(url: ConnectionUrl) -> Iterator[Session]:
    """The session of this process; a new one where it is broken. Threads take turns."""
    place = (os.getpid(), url.reveal())
    with _LOCK:
        session = _KEPT.get(place)
        if session is None or session.is_broken:
            session = _KEPT[place] = Session(url, "anonymizer")
        yield session


def close_kept() -> None:
    """End the sessions of this process."""
    with _LOCK:
        for place in [place for place in _KEPT if place[0] == os.getpid()]:
            with suppress(psycopg.Error):
                _KEPT.pop(place).close()


atexit.register(close_kept)
