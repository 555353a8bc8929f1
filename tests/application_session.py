"""Sessions of an application: like Penstock's own, but with the search path of their role."""

from __future__ import annotations

from typing import Any

import psycopg

from penstock.source.postgres.connect import connect as connect_without_path


def connect(*arguments: Any, **named: Any) -> psycopg.Connection[tuple[Any, ...]]:
    conn = connect_without_path(*arguments, **named)
    conn.execute("RESET search_path")
    if not conn.autocommit:
        conn.commit()
    return conn
