"""`penstock demo` as a person starts it: its verdict, and that nothing of it is left."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from penstock.demo.compare import compare, read_key, read_source
from penstock.demo.shop_load import ShopLoad
from penstock.demo.shop_schema import TABLES, create_shop
from penstock.demo.shop_traffic import ShopTraffic
from penstock.errors import SourceError

# With the Spark checkpoint in TMPDIR as well, where nobody else's files are.
_DEMO = """
import sys
import penstock.spark.query
penstock.spark.query.checkpoint_parent = lambda: None
from penstock.cli.main import main
main(["demo", *sys.argv[1:]])
"""
_GONE_SECONDS = 20


class Demo:
    """One run of the command, with a folder of its own for everything temporary."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._processes: set[psutil.Process] = set()
        self.names: set[str] = set()
        self.lines: list[str] = []
        self.errors = folder.with_suffix(".stderr")
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _DEMO, *arguments],
                env={**os.environ, "TMPDIR": str(folder), "SPARK_LOCAL_DIRS": str(folder)},
                stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True,
            )  # fmt: skip

    def read_until(self, start: str) -> None:
        """Read lines until one begins with ``start``, or there are no more."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            self.note_processes()
            if start and line.startswith(start):
                return
        assert not start, f"no line {start!r} in {self.lines}, {self.errors.read_text()}"

    def note_processes(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self.process.pid).children(recursive=True):
                self._processes.add(process)
                self.names.add(process.name())

    def wait(self) -> int:
        self.read_until("")
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait()

    def assert_no_process_left(self) -> None:
        assert self._processes
        deadline = time.monotonic() + _GONE_SECONDS
        while alive := [process for process in self._processes if _lives(process)]:
            assert time.monotonic() < deadline, alive
            time.sleep(0.02)


def _lives(process: psutil.Process) -> bool:
    """False also for a zombie: where init reaps nobody, the dead keep their ids."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not tmp_path: the embedded server may run as another user, who has to reach it."""
    path = Path(tempfile.mkdtemp(prefix="test-demo-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)
    path.with_suffix(".stderr").unlink(missing_ok=True)


@pytest.mark.slow
def test_the_verdict_is_equal_and_nothing_is_left(folder: Path) -> None:
    demo = Demo(folder, "--seconds", "3")
    demo.read_until("live")
    assert {"java", "postgres"} <= demo.names
    code = demo.wait()
    assert (code, demo.errors.read_text()) == (0, "")
    for table in TABLES:
        assert any(line.startswith(f"  {table} ") and "equal, " in line for line in demo.lines)
    assert demo.lines[-1].startswith("Equal: all ")
    rows = int(demo.lines[-1].split()[2].replace(",", ""))
    assert rows > 200  # more than the opening: the load's rows arrived too
    demo.assert_no_process_left()
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_ctrl_c_under_load_leaves_nothing(folder: Path) -> None:
    demo = Demo(folder, "--seconds", "600")
    demo.read_until("live")
    demo.process.send_signal(signal.SIGINT)
    assert demo.wait() == 128 + signal.SIGINT
    assert "no verdict" in demo.lines[-1]
    assert demo.errors.read_text() == ""
    demo.assert_no_process_left()
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_sigterm_while_spark_starts_leaves_nothing(folder: Path) -> None:
    demo = Demo(folder)
    demo.read_until("starting Spark")
    demo.process.send_signal(signal.SIGTERM)
    assert demo.wait() == 128 + signal.SIGTERM
    assert demo.errors.read_text() == ""
    demo.assert_no_process_left()
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_a_second_ctrl_c_ends_at_once_and_its_processes_follow(folder: Path) -> None:
    demo = Demo(folder, "--seconds", "600")
    demo.read_until("live")
    demo.process.send_signal(signal.SIGINT)
    demo.read_until("Stopping")
    demo.process.send_signal(signal.SIGINT)
    assert demo.wait() == -signal.SIGINT
    assert "no verdict" not in demo.lines[-1]
    demo.assert_no_process_left()


def test_the_load_runs_against_the_schema(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        create_shop(conn)
        load = ShopLoad(database, ShopTraffic(3))
        load.start()
        load.open_doors()
        while load.transactions < 300:
            load.check()
            time.sleep(0.01)
        load.stop()
        load.check()
        for table in TABLES:
            source = read_source(conn, table)
            assert source.rows, table
            assert compare(table, read_key(conn, table), source, source).equal
        assert read_key(conn, "order_items") == ("order_id", "line")
        assert read_key(conn, "page_views") == ()


def test_the_source_is_read_as_postgres_prints_it(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("SET timezone TO 'Asia/Tokyo'")
        conn.execute("CREATE TABLE carts (a bool, b timestamptz, c text[], d bytea, e float8)")
        conn.execute(
            "INSERT INTO carts VALUES (true, '2026-01-02 03:04:05+00', ARRAY['a', NULL, 'NULL'],"
            " '\\x01', 0.1), (NULL, NULL, NULL, NULL, NULL)"
        )
        found = read_source(conn, "carts")
    assert found.columns == ("a", "b", "c", "d", "e")
    assert found.rows == {
        ("t", "2026-01-02 03:04:05+00", '{a,NULL,"NULL"}', "\\x01", "0.1"): 1,
        (None, None, None, None, None): 1,
    }


def test_a_load_that_fails_says_so(database: str) -> None:
    load = ShopLoad(database, ShopTraffic(3))  # there are no tables
    load.start()
    load.stop()
    with pytest.raises(SourceError, match='relation "customers" does not exist'):
        load.check()
