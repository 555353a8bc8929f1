"""Locks of a role that may connect, and no more: nothing of ours waits for one."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from penstock.config import ConnectionUrl
from penstock.destination.postgres.own_tables import ensure_own_tables
from penstock.destination.webhooks.database import Database
from penstock.model.errors import PenstockError
from penstock.model.table_state import Init, Ready
from penstock.source.postgres import made_once
from penstock.source.postgres.connect import connect
from penstock.source.postgres.pipeline_lock import PipelineLock
from penstock.source.postgres.tracking.schema_tracking import install_tracking
from penstock.store import PostgresStore

Connection = psycopg.Connection[Any]
# Those that anybody can compute from what a pipeline is called: earlier versions waited for them.
GUESSED = (0x70656E73746F636B, 0x70656E5F64646C, 0x70656E737765626)
NAMED = ("penstock:table_state:shop", "penstock:run:shop", "penstock:supervisor:shop")


@pytest.fixture
def stranger(database: str) -> Iterator[Connection]:
    role = f"stranger_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'".encode())
        with psycopg.connect(make_conninfo(database, user=role, password="x")) as conn:
            yield conn
        admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


def impatient(url: str) -> str:
    """Where one of our sessions waits, it fails at once."""
    return make_conninfo(url, options="-c lock_timeout=1s")


def key(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)


def test_advisory_locks_of_a_stranger_hold_up_nothing(stranger: Connection, database: str) -> None:
    for lock in (*GUESSED, *map(key, NAMED)):
        stranger.execute("SELECT pg_advisory_lock(%s)", [lock])
    url = impatient(database)
    with PostgresStore(ConnectionUrl(url), "shop") as store:
        store.open()
        store.update_table_state(7, Init())
        store.update_table_state(7, Ready())
        store.rollback_table_state(7)
        assert store.forget_pipeline()
    with connect(url) as conn:
        with PipelineLock(conn, "shop"), PipelineLock(conn, "shop", what="supervisor"):
            pass
        assert install_tracking(conn)
        ensure_own_tables(conn)
    webhooks = Database(ConnectionUrl(url), "shop", "test")
    webhooks.set_up()
    webhooks.close()


def open_store(url: str) -> None:
    with PostgresStore(ConnectionUrl(url), "shop") as store:
        store.open()


def install(url: str) -> None:
    with connect(url) as conn:
        install_tracking(conn)


@pytest.mark.parametrize(("schema", "work"), [("penstock", open_store), ("penstock_ddl", install)])
def test_a_schema_that_a_stranger_never_finishes_is_named(
    stranger: Connection,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    schema: str,
    work: Callable[[str], None],
) -> None:
    monkeypatch.setattr(made_once, "PATIENCE_SECONDS", 0.2)
    with psycopg.connect(database, autocommit=True) as admin:
        role, name = stranger.info.user, admin.info.dbname
        admin.execute(f"GRANT CREATE ON DATABASE {name} TO {role}".encode())
        stranger.execute(f"CREATE SCHEMA {schema}".encode())
        with pytest.raises(PenstockError, match="lock timeout") as waited:
            work(database)
        # The remedy, as printed, finds it.
        query = waited.value.remedy.split("(", 1)[1].split(")")[0]
        found = admin.execute(query.encode())
        assert (stranger.info.backend_pid, role) in [row[:2] for row in found]
        stranger.rollback()
        work(database)
