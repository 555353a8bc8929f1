"""`penstock demo` as a person starts it: its verdict, and that nothing of it is left."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import psycopg
import pytest

from penstock.demo.shop_load import ShopLoad
from penstock.demo.shop_reviews import ReviewTraffic, add_reviews
from penstock.demo.shop_schema import SUMS, TABLES, create_shop
from penstock.demo.shop_stock import Stock, email, fill_shop, line_cents, order_id, sku
from penstock.demo.shop_traffic import ShopTraffic
from penstock.demo.target_reader import Invariant, TargetReader
from penstock.demo.verification import Verification
from penstock.destination.postgres.own_tables import ensure_own_tables
from penstock.model.errors import DestinationError, PenstockError, SourceError
from penstock.model.lsn import Frontier
from tests.folded_compare import compare, read_key, read_source

if TYPE_CHECKING:
    # Loaded by those alone who ask for a browser.
    from playwright.sync_api import Browser

_DEMO = """
import sys
from penstock.cli.main import main
main(["demo", *sys.argv[1:]])
"""
_GONE_SECONDS = 20
STOCK = Stock(customers=60, products=60, orders=30, page_views=80)


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

    def note_holders(self, folder: Path) -> None:
        """Those who hold snapshots are nobody's children."""
        for process in psutil.process_iter(["cmdline"]):
            if any(str(folder) in part for part in process.info["cmdline"] or ()):
                self._processes.add(process)
                if any("holder" in part for part in process.info["cmdline"]):
                    self.names.add("holder")

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


@pytest.mark.release
@pytest.mark.slow
def test_a_newcomer_sees_rows_flow(folder: Path, browser: Browser) -> None:
    """With --page, in a real browser, while the demo runs as always."""
    from playwright.sync_api import expect

    demo = Demo(folder, "--page", "--seconds", "25")
    try:
        demo.read_until("The page:")
        address = re.search(r"http://\S+", demo.lines[-1])
        assert address is not None
        page = browser.new_page()
        page.goto(address[0])
        page.get_by_role("link", name="shop").click(timeout=120_000)
        orders = page.locator("tr", has_text="public.orders")
        expect(orders).to_contain_text("ready", timeout=300_000)
        flows = re.compile(r"[1-9].*/s")
        expect(page.locator(".ps-rate").last).to_contain_text(flows, timeout=300_000)
        page.close()
        assert demo.wait() == 0, demo.errors.read_text()
        demo.assert_no_process_left()
    finally:
        if demo.process.poll() is None:
            demo.process.terminate()
            demo.process.wait()


@pytest.mark.slow
def test_the_verdict_is_equal_and_nothing_is_left(folder: Path) -> None:
    demo = Demo(folder, "--seconds", "3")
    demo.read_until("live")
    assert {"java", "postgres"} <= demo.names
    code = demo.wait()
    errors = demo.errors.read_text()
    assert (code, errors) == (0, ""), errors
    report = demo.lines[demo.lines.index("penstock verify:") + 1 :]
    for table in (*TABLES, "reviews"):
        (line,) = (line for line in report if f" public.{table}: " in line)
        assert line.split()[0] == "equal"
    # The table that came later was copied beside the stream, and has joined it.
    phases = "init", "data_sync", "finished_copy", "sync_wait", "catchup", "sync_done", "ready"
    for before, after in pairwise(phases):
        assert f"table public.reviews: {before} -> {after}" in demo.lines
    # The foreign key came after the data, by itself.
    summary = re.fullmatch(r"  equal: 8 tables, (\d+) rows, 1 constraints, at \S+", report[-2])
    assert summary
    assert int(summary[1]) > 190_000
    looks = re.search(r"never broken in ([\d,]+) looks at ([\d,]+) different sums", report[-1])
    assert looks
    assert int(looks[1].replace(",", "")) > 1
    demo.assert_no_process_left()
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_ctrl_c_while_tables_are_copied_leaves_nothing(folder: Path) -> None:
    demo = Demo(folder, "--seconds", "600")
    demo.read_until("copying")
    demo.note_holders(folder)
    assert "holder" in demo.names
    demo.process.send_signal(signal.SIGINT)
    assert demo.wait() == 128 + signal.SIGINT
    assert "no verdict" in demo.lines[-1]
    assert demo.errors.read_text() == ""
    demo.assert_no_process_left()
    assert list(folder.iterdir()) == []


@pytest.mark.slow
@pytest.mark.release
def test_sigterm_while_spark_starts_leaves_nothing(folder: Path) -> None:
    demo = Demo(folder)
    demo.read_until("starting Spark")
    demo.process.send_signal(signal.SIGTERM)
    assert demo.wait() == 128 + signal.SIGTERM
    assert demo.errors.read_text() == ""
    demo.assert_no_process_left()
    assert list(folder.iterdir()) == []


@pytest.mark.slow
@pytest.mark.release
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
        fill_shop(conn, STOCK)
        add_reviews(conn, 50)
        traffic = ShopTraffic(3, STOCK)
        traffic.join(ReviewTraffic(3, 50).kinds())
        traffic.begin_truncating()
        load = ShopLoad(database, traffic)
        load.be_busy()
        load.start()
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
        sums = [conn.execute(text).fetchone() for text in SUMS.values()]
        assert sums[0] != (0,)
        assert sums == [sums[0]] * 3


def test_the_traffic_knows_the_stock(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        create_shop(conn)
        fill_shop(conn, STOCK)
        customers = conn.execute("SELECT id, email FROM customers").fetchall()
        assert dict(customers) == {n: email(n) for n in range(1, STOCK.customers + 1)}
        products = conn.execute("SELECT sku FROM products").fetchall()
        assert {name for (name,) in products} == {sku(n) for n in range(1, STOCK.products + 1)}
        items = conn.execute("SELECT order_id::text, line, price FROM order_items").fetchall()
        assert {(order, line): 100 * price for order, line, price in items} == {
            (order_id(n), line): cents
            for n in range(1, STOCK.orders + 1)
            for line, cents in line_cents(n).items()
        }
        totals = [conn.execute(text).fetchone() for text in SUMS.values()]
        assert totals == [totals[0]] * 3
        assert totals[0] != (0,)
        # Out of line, so that most updates do not send it.
        toast = conn.execute(
            "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE relname = 'products'"
        ).fetchone()
        assert toast is not None
        assert toast[0] > 2000 * STOCK.products
        rows = [conn.execute(f"SELECT count(*) FROM {table}").fetchone() for table in TABLES]  # noqa: S608
        assert sum(row[0] for row in rows if row) == STOCK.rows


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
    load = ShopLoad(database, ShopTraffic(3, STOCK))  # there are no tables
    load.start()
    deadline = time.monotonic() + 60
    while load.running:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(SourceError, match=r'relation "\w+" does not exist'):
        load.check()


# -- the reader of the destination -----------------------------------------------------------------

_ORDER = "00000000-0000-0000-0000-000000000001"


@pytest.fixture
def target(database: str) -> Iterator[psycopg.Connection]:
    """A destination whose pipeline has made its tables and stands somewhere."""
    with psycopg.connect(database, autocommit=True) as conn:
        create_shop(conn)
        ensure_own_tables(conn)
        conn.execute(
            "INSERT INTO penstock.progress (pipeline, epoch, commit_lsn, end_lsn)"
            " VALUES ('shop', 1, '0/10', '0/20')"
        )
        yield conn


def order(conn: psycopg.Connection, *, paid: str) -> None:
    with conn.transaction():
        conn.execute("INSERT INTO orders (id, customer_id, total) VALUES (%s, 1, 30)", [_ORDER])
        conn.execute("INSERT INTO order_items VALUES (%s, 1, 'a', 3, 10)", [_ORDER])
        conn.execute(
            "INSERT INTO payments (id, order_id, method, amount, fee_rate)"
            " VALUES (1, %s, 'card', %s, 0)",
            [_ORDER, paid],
        )


def wait_for(done: Callable[[], bool], reader: TargetReader) -> None:
    deadline = time.monotonic() + 30
    while not done():
        reader.check()
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def reader(database: str) -> Iterator[TargetReader]:
    reader = TargetReader(database, "shop")
    yield reader
    reader.stop()


def test_the_reader_sees_rows_position_and_sums_that_hold(
    target: psycopg.Connection, reader: TargetReader
) -> None:
    reader.start()
    wait_for(lambda: reader.latest is not None, reader)
    order(target, paid="30.00")
    wait_for(lambda: reader.latest is not None and reader.latest.rows["orders"] == 1, reader)
    assert reader.invariant == Invariant()  # nobody said yet that the tables are at one position
    reader.judge()
    wait_for(lambda: reader.invariant.looks > 2, reader)
    target.execute("UPDATE penstock.progress SET commit_lsn = '0/30', end_lsn = '0/40'")
    wait_for(lambda: reader.latest is not None and reader.latest.frontier.end_lsn == 0x40, reader)
    reader.stop()
    assert reader.invariant.held
    assert reader.invariant.changes == 1
    assert reader.latest is not None
    assert reader.latest.frontier == Frontier(0x30, 0x40)
    assert {name: count for name, count in reader.latest.rows.items() if count} == {
        "orders": 1,
        "order_items": 1,
        "payments": 1,
    }


def test_the_reader_notices_half_a_transaction(
    target: psycopg.Connection, reader: TargetReader
) -> None:
    order(target, paid="30")
    reader.judge()
    reader.start()
    wait_for(lambda: reader.invariant.held, reader)
    target.execute("UPDATE payments SET amount = 31")
    wait_for(lambda: bool(reader.invariant.broken), reader)
    target.execute("UPDATE payments SET amount = 30")
    looks = reader.invariant.looks
    wait_for(lambda: reader.invariant.looks > looks + 2, reader)
    # Right again is not right all the time.
    assert not reader.invariant.held
    told = "at 0/10 (WAL up to 0/20) the sums were orders 30.00, payments 31.00, order_items 30"
    assert reader.invariant.broken[0].startswith(told)


def test_the_reader_waits_for_tables_and_says_when_it_is_cut_off(
    database: str, reader: TargetReader
) -> None:
    reader.start()
    with psycopg.connect(database, autocommit=True) as conn:
        create_shop(conn)
        reader.check()
        assert reader.latest is None
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s"
        wait_for(lambda: bool(conn.execute(ended, ["penstock demo reader"]).fetchall()), reader)
    # Perhaps while it connects.
    with pytest.raises(DestinationError, match="terminating connection due to administrator"):
        wait_for(lambda: False, reader)


def test_the_reader_finds_a_table_that_comes_later(
    target: psycopg.Connection, reader: TargetReader
) -> None:
    reader.start()
    wait_for(lambda: reader.latest is not None, reader)
    assert reader.latest is not None
    assert tuple(reader.latest.rows) == TABLES
    add_reviews(target, 7)
    wait_for(lambda: reader.latest is not None and "reviews" in reader.latest.rows, reader)
    assert reader.latest.rows["reviews"] == 7


# -- verify as a process ---------------------------------------------------------------------------


def test_a_verification_without_a_report_says_why(tmp_path: Path) -> None:
    verification = Verification(tmp_path / "none.yaml", tmp_path, wait=1)
    verification.start()
    deadline = time.monotonic() + 60
    while verification.running:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with pytest.raises(PenstockError, match=r"without a report: .*none\.yaml"):
        verification.result()
