"""Errors of the source database in the middle of work, as errors for people."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from penstock.model.errors import SourceError, SourceUnavailable

_REMEDIES: tuple[tuple[type[psycopg.Error], str], ...] = (
    (
        errors.InsufficientPrivilege,
        "Grant the right that the message names; docs/source_setup.md lists what Penstock needs.",
    ),
    (
        errors.ConfigurationLimitExceeded,
        (
            "Raise max_replication_slots and restart the server, or drop a slot that nobody needs: "
            "SELECT slot_name, active FROM pg_replication_slots."
        ),
    ),
    (
        errors.ObjectNotInPrerequisiteState,
        "Set wal_level = logical and restart the server; docs/source_setup.md says how.",
    ),
    (
        errors.LockNotAvailable,
        (
            "Another session makes or holds what is needed. Find it (SELECT pid, usename, state "
            "FROM pg_stat_activity WHERE backend_xid IS NOT NULL), and end it where it is not "
            "yours: pg_terminate_backend(pid)."
        ),
    ),
    (
        errors.UndefinedTable,
        "A table went away in the meantime; run the command again.",
    ),
)


# Shutdown, crash and start of the server, or no connection left.
_GONE = {"57P01", "57P02", "57P03", "53300"}


def _is_about_the_connection(error: psycopg.OperationalError) -> bool:
    # Without a code it comes from libpq, which lost the server; class 08 is the same from there.
    return error.sqlstate is None or error.sqlstate.startswith("08") or error.sqlstate in _GONE


@contextmanager
def source_errors(action: str) -> Iterator[None]:
    """Turn psycopg errors inside the block into SourceError or SourceUnavailable.

    ``action`` completes "While …": it says what was being done when the source refused.
    """
    try:
        yield
    except psycopg.Error as error:
        said = " ".join(str(error).split()).rstrip(".")
        if isinstance(error, psycopg.OperationalError) and _is_about_the_connection(error):
            raise SourceUnavailable(
                f"While {action}, the connection to the source was lost: {said}.",
                remedy="Check that the server is up, then run the command again.",
            ) from error
        remedy = next(
            (text for kind, text in _REMEDIES if isinstance(error, kind)),
            "`penstock check` names what the source lacks.",
        )
        raise SourceError(f"While {action}, the source refused: {said}.", remedy=remedy) from error
