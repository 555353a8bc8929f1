"""What several processes make at the same moment, and what a stranger may be making, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import errors

PATIENCE_SECONDS = 30.0
"""How long we wait for another session that is making what we make, or holds it locked."""

# Whoever waits for a name that somebody else is making meets one of these once it is made.
_THERE_BY_NOW = (
    errors.UniqueViolation,
    errors.DuplicateSchema,
    errors.DuplicateTable,
    errors.DuplicateColumn,
    errors.DuplicateObject,
)
_ATTEMPTS = 5


def make_once(conn: psycopg.Connection[Any], make: Callable[[], None]) -> None:
    """Call ``make``, which makes what is missing, in a transaction; again where somebody else was
    faster. No lock keeps others out: before there is anything of ours to lock, there are only
    advisory ones, and any role that may connect could hold those for ever.

    Raises LockNotAvailable where another session is not done with it in time.
    """
    for attempt in range(_ATTEMPTS):
        try:
            with conn.transaction():
                conn.execute(
                    "SELECT set_config('lock_timeout', %s, true)",
                    [f"{PATIENCE_SECONDS * 1000:.0f}"],
                )
                make()
                conn.execute("SET LOCAL lock_timeout TO DEFAULT")
        except _THERE_BY_NOW:
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return
