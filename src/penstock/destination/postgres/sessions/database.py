"""The target database, made where it is missing."""

from __future__ import annotations

import logging

from psycopg import errors, sql
from psycopg.conninfo import make_conninfo

from penstock.config.connection_url import ConnectionUrl
from penstock.destination.postgres.sessions.session import (
    DESTINATION,
    destination_errors,
)
from penstock.source.postgres.connect import connect

# Every server has them, unless somebody dropped one.
_OTHERS = ("postgres", "template1")

_log = logging.getLogger(__name__)


def ensure_database(url: ConnectionUrl, application: str) -> None:
    """Make the database that the URL names, if the server has none of that name.

    It is a copy of template0 with the server's own encoding and locale. Raises DestinationError.
    """
    name = url.database
    if name is None or name in _OTHERS:
        return
    there = ConnectionUrl(make_conninfo(url.reveal(), dbname=_OTHERS[0]))
    with (
        connect(there, application_name=application, party=DESTINATION) as conn,
        destination_errors(f"making the database {name}"),
    ):
        if conn.execute("SELECT FROM pg_database WHERE datname = %s", [name]).fetchone():
            return
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name))
        try:
            conn.execute(statement)
        except (errors.DuplicateDatabase, errors.UniqueViolation):
            return  # somebody else was faster
    _log.info("made the database %s", name, extra={"event": "database_made"})
