"""Sessions without a search path.

With one, a function or an operator that we name may be what somebody else has put into a schema on
it, and runs with our rights: those of a superuser, where one runs `penstock init`. Without one,
every name that has no schema means the system's own.
"""

from __future__ import annotations

from typing import Any

import psycopg

NO_PATH = "pg_catalog.set_config('search_path', '', false)"
"""For the session."""


def without_path(conn: psycopg.Connection[Any]) -> None:
    """The same until the transaction ends: also behind a pooler, which leaves a session's settings
    to strangers.
    """
    conn.execute("SELECT pg_catalog.set_config('search_path', '', true)")
