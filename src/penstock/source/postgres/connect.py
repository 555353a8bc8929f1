"""Connections to Postgres databases, and what to tell a person when there is none."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Any

import psycopg

from penstock.answer_limit import answered_within
from penstock.config.connection_url import ConnectionUrl
from penstock.model.errors import PenstockError, SourceError, SourceUnavailable
from penstock.source.postgres.answer_watch import ANSWERS, Served, WatchedConnection
from penstock.source.postgres.search_path import NO_PATH
from penstock.source.postgres.silence import server_settings, session_parameters, silence_limit


@dataclass(frozen=True)
class Party:
    """Whose database it is: the setting that names it, and the errors that speak of it.
    ``may_be_pooled``: whether a pooler may stand in between; ``found_by_name``: its sessions are
    ended by their names, so that none in the URL wins.
    """

    setting: str
    refused: type[PenstockError]
    unavailable: type[PenstockError]
    may_be_pooled: bool = True
    found_by_name: bool = False


SOURCE = Party("source.url", SourceError, SourceUnavailable, may_be_pooled=False)

# Causes that time does not heal: capture must not try them again for ever.
_NEEDS_A_PERSON = (
    "the role lacks the REPLICATION attribute",
    "pg_hba.conf has no line for this user, database and address",
    "the server refused this user or password",
    "the server has no such database",
    "the role may not connect to this database",
    "the two sides do not agree about TLS",
    "a connection pooler stands in between",
)

# What libpq and the server say, and what helps. libpq gives no error code for a connection that
# never came to be, so the text is all there is; the first that matches counts.
_CAUSES: tuple[tuple[str, str, str], ...] = (
    (
        # Before all that the words of TLS mean: a server that goes away breaks that off, too, and
        # libpq then tries without it where it may, which the server may refuse.
        (
            r"connection reset|broken pipe|unexpected eof|eof detected"
            r"|connection( has been)? closed unexpectedly|closed the connection unexpectedly"
        ),
        "it was lost before it was made",
        (
            "Check that the server, and what stands before it, is up: one that starts, stops or "
            "fails over drops connections like this."
        ),
    ),
    (
        r"connection refused",
        "nothing listens there",
        (
            "Start the server, and check host and port of source.url; Postgres listens beyond its "
            "own machine only with listen_addresses set."
        ),
    ),
    (
        r"failed to resolve|could not translate host name|name or service not known",
        "the host name is unknown",
        "Check the host in source.url, and this machine's DNS.",
    ),
    (
        r"timeout expired|timed out|no route to host|network is unreachable",
        "the host does not answer",
        "Check host and port of source.url, and firewalls between here and there.",
    ),
    (
        r"permission denied to start wal sender|must be superuser or replication role",
        "the role lacks the REPLICATION attribute",
        (
            "Run as a superuser: ALTER ROLE <role> REPLICATION. Managed services have a role to "
            "grant instead, such as rds_replication."
        ),
    ),
    (
        r"no pg_hba\.conf entry",
        "pg_hba.conf has no line for this user, database and address",
        (
            "Add one: hostssl <database> <user> <address> scram-sha-256, then SELECT "
            "pg_reload_conf(). A logical replication connection matches the database's name, not "
            "`replication`."
        ),
    ),
    (
        (
            r"authentication failed|no password supplied|role \".*\" does not exist"
            r"|is not permitted to log in|role \".*\" is not"
        ),
        "the server refused this user or password",
        (
            "Check user and password of source.url; keep the password in an environment variable: "
            "url: ${SHOP_URL}."
        ),
    ),
    (
        r"database \".*\" does not exist",
        "the server has no such database",
        "Check the database's name at the end of source.url.",
    ),
    (
        r"permission denied for database",
        "the role may not connect to this database",
        "Run: GRANT CONNECT ON DATABASE <database> TO <role>.",
    ),
    (
        r"\bssl\b|\btls\b|certificate",
        "the two sides do not agree about TLS",
        "Check sslmode and sslrootcert in source.url (…?sslmode=require).",
    ),
    (
        r"max_wal_senders",
        "all WAL senders of the server are in use",
        (
            "Raise max_wal_senders and restart the server, or stop a replication client that is "
            "not needed: SELECT * FROM pg_stat_replication."
        ),
    ),
    (
        r"too many (clients|connections)|remaining connection slots",
        "all connections of the server are in use",
        "Close some, or raise max_connections.",
    ),
    (
        r"starting up|shutting down|in recovery mode",
        "the server is starting or stopping",
        "Wait until it is up, then try again.",
    ),
    (
        r"unsupported startup parameter|replication.*not supported",
        "a connection pooler stands in between",
        "Point source.url at the server itself: a pooler does not pass replication on.",
    ),
)


def connect(
    url: ConnectionUrl | str,
    *,
    replication: bool = False,
    autocommit: bool = True,
    application_name: str = "penstock",
    party: Party = SOURCE,
) -> psycopg.Connection[tuple[Any, ...]]:
    """A connection; with ``replication`` one that takes replication commands.

    Raises the party's error for a database that is not there (or that refuses, where another try
    cannot help): it names host, port and database, the cause and the remedy, and no secret.
    ``application_name`` is what others see in pg_stat_activity; one in the URL wins, unless the
    party's sessions are found by it. Whichever side is lost without a word, the other one notices
    within the limit on silence. The session has no search path, whatever the role's is; behind a
    pooler its user sees to that (``without_path``).
    """
    url = url if isinstance(url, ConnectionUrl) else ConnectionUrl(url)
    parameters = session_parameters(url, application_name)
    if party.found_by_name:
        parameters["application_name"] = application_name
    if replication:
        parameters["replication"] = "database"
    try:
        conn = _open(url, parameters)
        try:
            with answered_within(conn, silence_limit(url)):
                is_direct = _make_settings(conn, url)
            if not is_direct and not party.may_be_pooled:
                raise _pooled(url, party)
            if is_direct and not replication:
                watch_answers(conn, url, application_name, conn.info.backend_pid)
            conn.autocommit = autocommit
        except BaseException:
            conn.close()
            raise
    except psycopg.Error as error:
        raise _unavailable(url, error, replication, party) from None
    return conn


def _make_settings(conn: psycopg.Connection[Any], url: ConnectionUrl) -> bool:
    """Whether they were made: a pooler would keep them for whoever comes next, and has its own."""
    own = f"pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) {conn.info.backend_pid}"
    made = conn.execute(f"{server_settings(url)}, {NO_PATH} WHERE {own}".encode())
    return made.rowcount > 0


def _pooled(url: ConnectionUrl, party: Party) -> PenstockError:
    # A pooler invents the numbers that it gives its clients for cancelling queries.
    return party.refused(
        f"A connection pooler, such as PgBouncer, answers at {url.host}, port {url.port}: the "
        "session is served by another backend than was announced.",
        remedy=f"Point {party.setting} at the Postgres server itself (often port 5432): "
        "replication and session locks do not work through a pooler.",
    )


def _open(url: ConnectionUrl, parameters: dict[str, Any]) -> WatchedConnection:
    return WatchedConnection.connect(url.reveal(), autocommit=True, **parameters)


def watch_answers(
    conn: psycopg.Connection[tuple[Any, ...]],
    url: ConnectionUrl,
    application_name: str,
    backend: int,
) -> None:
    """Let an answer of ``backend``, which serves the connection, not be waited for in vain."""
    another = partial(_open, url, session_parameters(url, f"{application_name} watch"))
    name = conn.info.parameter_status("application_name") or ""
    ANSWERS.know(conn, Served(backend, name, silence_limit(url), another))


def _unavailable(
    url: ConnectionUrl, error: psycopg.Error, replication: bool, party: Party
) -> PenstockError:
    # Where it was going is in our own words already.
    said = re.sub(r"^connection failed: (connection to .*? failed: )?", "", str(error))
    shown = without_secrets(said, url)
    what = "replication connection" if replication else "connection"
    where = f"database {url.database!r} at {url.host}, port {url.port}"
    for pattern, cause, remedy in _CAUSES:
        if re.search(pattern, said, re.IGNORECASE):
            kind = party.refused if cause in _NEEDS_A_PERSON else party.unavailable
            return kind(
                f"No {what} to {where}: {cause} ({shown}).",
                remedy=remedy.replace(SOURCE.setting, party.setting),
            )
    return party.unavailable(
        f"No {what} to {where}: {shown}.",
        remedy=f"Check {party.setting}, and that the server is reachable from this machine.",
    )


def without_secrets(text: str, url: ConnectionUrl) -> str:
    """One line of somebody else's text, with every secret of the URL taken out."""
    for secret in url.secrets:
        text = text.replace(secret, "***")
    return " ".join(text.split()).rstrip(".")
