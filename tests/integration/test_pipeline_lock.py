"""One run of a pipeline at a time."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from penstock.config.connection_url import ConnectionUrl
from penstock.model.errors import SourceError
from penstock.source.postgres import pipeline_lock
from penstock.source.postgres.connect import connect
from penstock.source.postgres.pipeline_lock import KeptLock, PipelineLock
from tests.fix_pipeline import wait_until
from tests.pipelines import logged
from tests.tcp_proxy import TcpProxy

NAME = "shop"
Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def conn(database: str) -> Iterator[Connection]:
    with connect(database) as connection:
        yield connection


def test_a_second_holder_is_refused_and_told_who(conn: Connection, database: str) -> None:
    with connect(database, application_name="first run") as first:
        with PipelineLock(first, NAME):
            with (
                pytest.raises(SourceError) as caught,
                PipelineLock(conn, NAME),
            ):
                pytest.fail("two holders of one lock")
            assert f"backend {first.info.backend_pid} " in caught.value.message
            assert "application first run" in caught.value.message
            assert "127.0.0.1" in caught.value.message
            with PipelineLock(conn, "another"), PipelineLock(conn, NAME, what="other"):
                pass
        with PipelineLock(conn, NAME):
            pass


def test_it_goes_with_its_connection(conn: Connection, database: str) -> None:
    with connect(database) as first, PipelineLock(first, NAME):
        conn.execute("SELECT pg_terminate_backend(%s, 30000)", [first.info.backend_pid])
        with PipelineLock(conn, NAME):
            pass


@pytest.fixture
def short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_lock, "LEASE_SECONDS", 1.0)
    monkeypatch.setattr(pipeline_lock, "BEAT_SECONDS", 0.1)


@pytest.mark.usefixtures("short_lease")
@pytest.mark.parametrize("role", ["none", "pg_read_all_data"])
def test_what_a_lost_machine_holds_is_taken_once_its_lease_has_run_out(
    database: str, role: str
) -> None:
    """Whatever role sessions have by their settings: to another one than that which logged in the
    server does not show what they do, nor lets it end them.
    """
    url = make_conninfo(database, options=f"-c role={role}")
    with connect(url) as lost, connect(url) as conn:
        PipelineLock(lost, NAME, beats=False).__enter__()
        texts: list[str] = []
        with logged(texts.append), PipelineLock(conn, NAME, patience=0.1):
            assert any("was held by Postgres backend" in text for text in texts)
        # It comes back, and finds that it has nothing any more.
        with pytest.raises(psycopg.OperationalError):
            lost.execute("SELECT")


@pytest.mark.usefixtures("short_lease")
def test_a_holder_that_lives_keeps_it_beyond_its_lease_whatever_it_is_busy_with(
    conn: Connection, database: str
) -> None:
    with connect(database, application_name="busy") as first, PipelineLock(first, NAME):
        for wait in (lambda: time.sleep(1.5), lambda: first.execute("SELECT pg_sleep(1.5)")):
            wait()
            with (
                pytest.raises(SourceError, match="application busy"),
                PipelineLock(conn, NAME, patience=0.5),
            ):
                pytest.fail("two holders of one lock")


@pytest.mark.usefixtures("short_lease")
def test_another_role_s_session_is_left_to_a_person(conn: Connection, database: str) -> None:
    """The server does not show it to us, and it is not ours to end."""
    role = f"r_{uuid.uuid4().hex[:12]}"
    conn.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'".encode())
    try:
        with connect(make_conninfo(database, user=role, password="x")) as lesser:
            PipelineLock(conn, NAME, beats=False).__enter__()
            time.sleep(1.2)
            with (
                pytest.raises(SourceError, match="busy") as caught,
                PipelineLock(lesser, NAME, patience=0.1),
            ):
                pytest.fail("two holders of one lock")
            # What the remedy says works, for whoever may.
            assert "pg_terminate_backend" in caught.value.remedy
    finally:
        conn.execute(f"DROP ROLE {role}".encode())


@pytest.mark.usefixtures("short_lease")
def test_a_driver_whose_connection_fell_silent_takes_its_own_lock_again(
    conn: Connection, database: str
) -> None:
    """Its old session is still there, as far as the server knows."""
    with TcpProxy(conn.info.port) as network:
        url = make_conninfo(database, port=network.port, tcp_user_timeout=1000, connect_timeout=2)
        with KeptLock(ConnectionUrl(url), NAME, "driver") as kept:
            before = kept.conn.info.backend_pid
            network.swallow()
            kept.keep()
            network.accept()
            wait_until(lambda: _taken(kept, before), "the lock is taken again")
            with pytest.raises(SourceError, match="busy"), PipelineLock(conn, NAME, patience=0.5):
                pytest.fail("two holders of one lock")


def _taken(kept: KeptLock, before: int) -> bool:
    kept.keep()
    return not kept.conn.closed and kept.conn.info.backend_pid != before


_KEYS = """
SELECT ((classid::bigint << 32) | objid::bigint), pid FROM pg_locks
 WHERE locktype = 'advisory' AND granted AND database =
       (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@pytest.fixture
def stranger(database: str) -> Iterator[Connection]:
    """A session of a role that may connect, and no more."""
    role = f"r_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'".encode())
        with psycopg.connect(
            make_conninfo(database, user=role, password="x"), autocommit=True
        ) as session:
            yield session
        admin.execute(f"DROP ROLE {role}".encode())


def test_a_stranger_in_the_queue_gets_a_key_that_counts_for_nothing(
    conn: Connection, database: str, stranger: Connection
) -> None:
    with KeptLock(ConnectionUrl(database), NAME, "driver") as kept, ThreadPoolExecutor(1) as pool:
        # Whoever may connect sees which key it is.
        ((key, pid),) = stranger.execute(_KEYS).fetchall()
        assert pid == kept.conn.info.backend_pid
        queued = pool.submit(stranger.execute, "SELECT pg_advisory_lock(%s)", [key])
        conn.execute("SELECT pg_terminate_backend(%s, 30000)", [pid])
        queued.result(30)
        wait_until(lambda: _taken(kept, pid), "the lock is taken again")
        with pytest.raises(SourceError, match="application driver"), PipelineLock(conn, NAME):
            pytest.fail("two holders of one lock")
    # It still has the key, and nobody minds.
    with PipelineLock(conn, NAME, patience=0):
        pass


def test_of_two_that_found_it_free_at_once_not_both_take_it(
    conn: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(database) as first, PipelineLock(first, NAME):
        late = PipelineLock(conn, NAME, patience=0)
        # What it saw before the other one came.
        monkeypatch.setattr(late, "_holder", _first_nobody(late._holder))
        with pytest.raises(SourceError, match="busy"), late:
            pytest.fail("two holders of one lock")
        assert [pid for _, pid in conn.execute(_KEYS)] == [first.info.backend_pid]


def _first_nobody(look: Callable[[], Any]) -> Callable[[], Any]:
    looks = 0

    def first_nobody() -> Any:
        nonlocal looks
        looks += 1
        return None if looks == 1 else look()

    return first_nobody
