"""Sessions whose settings have taken another role (ALTER ROLE … SET role)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg


@contextmanager
def as_logged_in(conn: psycopg.Connection[Any]) -> Iterator[None]:
    """In a transaction in which the role is the one that logged in, whatever role its settings have
    taken: as such the server shows sessions, and lets them be ended.
    """
    with conn.transaction():
        conn.execute("SET LOCAL ROLE NONE")
        yield
