"""The target database, made where it is missing."""

from __future__ import annotations

import logging
from contextlib import suppress

from psycopg import errors, sql
from psycopg.conninfo import make_conninfo

from penstock.config.connection_url import ConnectionUrl
from penstock.destination.postgres.sessions.session import (
    DESTINATION,
    Connection,
    destination_errors,
)
from penstock.source.postgres.connect import connect

# Every server has them, unless somebody dropped one.
_OTHERS = ("postgres", "template1")

_log = logging.getLogger(__name__)


def lacks_database(url: ConnectionUrl, application: str) -> bool:
    """Whether the server has no database of the name that the URL has."""
    name = url.database
    if name is None or name in _OTHERS:
        return False
    with (
        _elsewhere(url, application) as conn,
        destination_errors("looking for the database"),
    ):
        row = conn.execute("SELECT FROM pg_database WHERE datname = %s", [name]).fetchone()
        return row is None


def ensure_database(url: ConnectionUrl, application: str) -> None:
    """Make the database that the URL names, if the server has none of that name.

    It is a copy of template0 with the server's own encoding and locale. Raises DestinationError.
    """
    if not lacks_database(url, application):
        return
    name = url.database or ""
    with (
        _elsewhere(url, application) as conn,
        destination_errors(f"making the database {name}"),
        # Somebody else may be faster.
        suppress(errors.DuplicateDatabase, errors.UniqueViolation),
    ):
        conn.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
    _log.info("made the database %s", name, extra={"event": "database_made"})


def _elsewhere(url: ConnectionUrl, application: str) -> Connection:
    there = ConnectionUrl(make_conninfo(url.reveal(), dbname=_OTHERS[0]))
    return connect(there, application_name=application, party=DESTINATION)
