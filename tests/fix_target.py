"""A database to replicate into, much cheaper than a new one for each test: it is only emptied."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from penstock.demo.embedded_postgres import EmbeddedPostgres
from penstock.destination.postgres import task_writer
from tests.fix_postgres import drop_database


@pytest.fixture(scope="session")
def shared_target(pg_server: EmbeddedPostgres) -> Iterator[str]:
    name = f"target_{uuid.uuid4().hex}"
    yield pg_server.create_database(name)
    drop_database(pg_server, name)


@pytest.fixture
def target_url(shared_target: str) -> Iterator[str]:
    """The URL of a database that holds nothing but an empty schema public."""
    with psycopg.connect(shared_target, autocommit=True) as conn:
        found = conn.execute(
            r"SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_|^information_schema$'"
        )
        schemas = [sql.Identifier(name) for (name,) in found]
        dropped = sql.SQL("DROP SCHEMA {} CASCADE").format(sql.SQL(", ").join(schemas))
        conn.execute("SET client_min_messages = warning")
        if schemas:
            conn.execute(dropped)
        conn.execute("CREATE SCHEMA public")
    yield shared_target
    end_task_sessions()


def end_task_sessions() -> None:
    """Close the connections that task writers keep in this process."""
    for conn in task_writer._sessions.values():
        conn.close()
    task_writer._sessions.clear()
