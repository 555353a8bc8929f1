"""`penstock verify` on whole pipelines: running and stopped, under load and idle."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
import pytest

from penstock.changelog.barrier import Barrier
from penstock.cli.main import main
from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.errors import ConfigError, DestinationError, SlotError, SourceError
from penstock.model.lsn import Frontier, format_lsn, parse_lsn
from penstock.source.postgres.pipeline_lock import PipelineLock
from penstock.verify.report import RowDifference, VerifyReport
from penstock.verify.verification import verify
from tests.application_session import connect
from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.fix_postgres import FreshServer, drop_database
from tests.pipelines import engine_on, pipeline_on
from tests.threads_engine import Threads

TABLES = (
    "CREATE TABLE items (id int PRIMARY KEY, name text, note text)",
    "CREATE TABLE left_side (id int PRIMARY KEY, balance int)",
    "CREATE TABLE right_side (id int PRIMARY KEY, balance int)",
    "CREATE TABLE seen (what text)",
    "ALTER TABLE seen REPLICA IDENTITY FULL",
)


@dataclass(frozen=True)
class Shop:
    """A pipeline into a second database."""

    pipeline: PipelineUnderTest
    target: str
    threads: Threads

    def verify(self, *, wait: float = 120, **options: float) -> VerifyReport:
        pipeline = self.pipeline
        return verify(
            pipeline.config,
            pipeline.file,
            make_engine=engine_on(self.threads),
            wait=wait,
            **options,  # type: ignore[arg-type]
        )

    def at_target(self, *statements: str) -> None:
        with psycopg.connect(self.target, autocommit=True) as conn:
            for statement in statements:
                conn.execute(statement.encode())

    @contextmanager
    def running(self) -> Iterator[Future[Frontier]]:
        """Run the pipeline beside the test; it holds its lock when the block begins."""
        stop = False
        with ThreadPoolExecutor(1) as pool:
            runner = pipeline_on(self.threads, self.pipeline.config, self.pipeline.file)
            future = pool.submit(runner.run, lambda: stop)
            try:
                self.execute_and_wait("INSERT INTO seen VALUES ('running')", "seen", future)
                yield future
            finally:
                stop = True

    def execute_and_wait(self, statement: str, table: str, run: Future[Frontier]) -> None:
        """Insert one row at the source, and wait until the destination has it."""
        with psycopg.connect(self.target, autocommit=True) as conn:
            before = _rows(conn, table)
            self.pipeline.execute(statement)

            def there() -> bool:
                if run.done():
                    run.result()
                return _rows(conn, table) > before

            wait_until(there, f"the destination has: {statement}", timeout=120)


def _rows(conn: psycopg.Connection[tuple[int]], table: str) -> int:
    """How many rows there are; none before the pipeline has made the table."""
    try:
        row = conn.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()  # noqa: S608
    except psycopg.errors.UndefinedTable:
        return 0
    return row[0] if row else 0


def _silent(_text: str) -> None:
    pass


@pytest.fixture
def shop(
    pipeline: PipelineUnderTest, pg_server: EmbeddedPostgres, threads: Threads
) -> Iterator[Shop]:
    name = f"target_{uuid.uuid4().hex}"
    target = pg_server.create_database(name)
    pipeline.configure(destination={"type": "postgres", "url": target})
    pipeline.execute(*TABLES)
    pipeline.subscribe()
    yield Shop(pipeline, target, threads)
    drop_database(pg_server, name)


def test_a_stopped_pipeline_is_run_up_to_the_position(shop: Shop) -> None:
    shop.pipeline.execute(
        "INSERT INTO items SELECT i, 'n' || i, repeat('x', i * 10) FROM generate_series(1, 500) i",
        "INSERT INTO seen VALUES ('a'), ('a'), (NULL)",
        "UPDATE items SET id = -id WHERE id % 7 = 0",
        "DELETE FROM seen WHERE what IS NULL",
    )
    report = shop.verify()
    assert report.equal, report
    assert report.drove
    assert {table.name: table.source_rows for table in report.tables} == {
        "public.items": 500,
        "public.left_side": 0,
        "public.right_side": 0,
        "public.seen": 2,
    }
    assert shop.pipeline.log.list().barriers == ()

    shop.at_target(
        "DELETE FROM items WHERE id = 1",
        "UPDATE items SET note = note || '!' WHERE id = 500",
        "INSERT INTO seen VALUES ('a')",
        "ALTER TABLE items ADD CONSTRAINT once UNIQUE (name) DEFERRABLE",
        "ALTER TABLE left_side ADD FOREIGN KEY (id) REFERENCES right_side",
    )
    again = shop.verify()
    assert not again.equal
    assert again.lsn > report.lsn
    found = {table.name: table.differences for table in again.tables if not table.equal}
    assert found == {
        "public.items": (
            RowDifference("missing", "id=1"),
            RowDifference("different", "id=500", ("note",)),
        ),
        "public.seen": (RowDifference("extra", "{a}"),),
    }
    assert {(result.table, result.kind) for result in again.constraints} == {
        ("public.items", "unique"),
        ("public.left_side", "foreign key"),
    }


class Load:
    """Transfers between two tables, and inserts, until it is stopped."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = threading.Event()
        self._thread = ThreadPoolExecutor(1)
        self.transactions = 0

    def __enter__(self) -> Load:
        self._future = self._thread.submit(self._run)
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.shutdown()
        self._future.result()

    def _run(self) -> None:
        with psycopg.connect(self._url) as conn:
            while not self._stop.is_set():
                number = self.transactions
                for table, amount in (("left_side", 1), ("right_side", -1)):
                    conn.execute(
                        f"INSERT INTO {table} AS t VALUES (%s, %s)"  # noqa: S608
                        " ON CONFLICT (id) DO UPDATE SET balance = t.balance + %s".encode(),
                        [number % 50, amount, amount],
                    )
                conn.execute("INSERT INTO seen VALUES (%s)", [str(number % 3)])
                conn.commit()
                self.transactions += 1


def test_a_running_pipeline_pauses_and_goes_on(shop: Shop) -> None:
    with shop.running() as run:
        with Load(shop.pipeline.url) as load:
            reports = []
            for _ in range(4):
                before = load.transactions
                wait_until(lambda at=before: load.transactions > at + 20, "the load goes on")  # type: ignore[misc]
                reports.append(shop.verify())
                assert shop.pipeline.log.list().barriers == ()
        for report in reports:
            assert report.equal, report
            assert not report.drove
            assert report.rows > 20
        assert [report.lsn for report in reports] == sorted({report.lsn for report in reports})
        # The last of them compared more than the first: the pipeline was never stopped for good.
        assert reports[-1].rows > reports[0].rows
        shop.execute_and_wait("INSERT INTO items VALUES (1, 'after', '')", "items", run)
        # And nothing was lost or doubled on the way, at an idle source.
        assert shop.verify().equal


def test_a_verify_that_died_does_not_hold_the_pipeline(shop: Shop) -> None:
    with shop.running() as run:
        with connect(shop.pipeline.url) as conn:
            row = conn.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        assert row is not None
        # Left by a process that has ended: nobody renews it, and nobody removes it.
        died = Barrier(shop.pipeline.log, parse_lsn(row[0]))
        died._write()
        shop.execute_and_wait("INSERT INTO items VALUES (1, 'a', '')", "items", run)


def test_a_refused_table_is_not_compared_and_the_others_are(shop: Shop) -> None:
    shop.pipeline.execute("INSERT INTO items VALUES (1, 'good', '')")
    assert shop.verify().equal
    shop.at_target("ALTER TABLE items ADD CHECK (name <> 'bad')")
    shop.pipeline.execute(
        "INSERT INTO items VALUES (2, 'bad', '')", "INSERT INTO seen VALUES ('x')"
    )
    report = shop.verify()
    assert not report.equal
    by_name = {table.name: table for table in report.tables}
    assert "behind the others" in by_name["public.items"].not_compared
    assert by_name["public.seen"].equal
    assert by_name["public.seen"].source_rows == 1


class TestCommand:
    def test_it_says_what_differs_and_exits_with_1(
        self, shop: Shop, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = str(shop.pipeline.file)
        with shop.running() as run:
            shop.execute_and_wait("INSERT INTO items VALUES (1, 'a', '')", "items", run)
            with pytest.raises(SystemExit) as ended:
                main(["verify", file])
            assert ended.value.code == 0
            out = capsys.readouterr().out
            assert "equal        public.items: 1 rows\n" in out
            assert out.splitlines()[-1].startswith("equal: 4 tables, 2 rows, 0 constraints, at ")

            shop.at_target("UPDATE items SET name = 'b'", "TRUNCATE seen")
            with pytest.raises(SystemExit) as ended:
                main(["verify", file])
            assert ended.value.code == 1
            out = capsys.readouterr().out
            assert "             different: id=1 in name\n" in out
            assert "missing in the destination: {running}" in out
            assert "NOT EQUAL: 2 of 4 tables" in out

            with pytest.raises(SystemExit) as ended:
                main(["verify", file, "--json"])
            assert ended.value.code == 1
            told = json.loads(capsys.readouterr().out)
            assert [table["source"] for table in told["tables"] if not table["equal"]] == [
                "public.items",
                "public.seen",
            ]

    def test_other_destinations_cannot_be_verified(self, pipeline: PipelineUnderTest) -> None:
        with pytest.raises(ConfigError, match=r"compares two databases.* is discard"):
            verify(pipeline.config, pipeline.file)

    def test_a_history_cannot_be_verified(self, pipeline: PipelineUnderTest) -> None:
        pipeline.configure(destination={"type": "postgres", "url": pipeline.url, "mode": "append"})
        with pytest.raises(ConfigError, match="history"):
            verify(pipeline.config, pipeline.file)

    def test_a_pipeline_that_never_ran(self, pipeline: PipelineUnderTest) -> None:
        pipeline.configure(destination={"type": "postgres", "url": pipeline.url})
        with pytest.raises(SourceError, match="nothing was ever replicated"):
            verify(pipeline.config, pipeline.file)

    def test_transactions_that_hold_the_slot_up_are_named(self, shop: Shop) -> None:
        with psycopg.connect(shop.pipeline.url) as conn:
            conn.execute("INSERT INTO items VALUES (1, 'open', '')")
            with pytest.raises(SlotError, match=r"could not be created within 0\.5 s") as found:
                shop.verify(slot_wait=0.5)
            assert "pg_stat_activity" in found.value.remedy
            conn.rollback()
        assert shop.pipeline.log.list().barriers == ()

    def test_a_destination_that_does_not_get_there(self, shop: Shop) -> None:
        # Somebody holds the pipeline's lock and delivers nothing.
        with (
            connect(shop.pipeline.url) as conn,
            PipelineLock(conn, shop.pipeline.name),
            pytest.raises(DestinationError, match=r"did not get to .* it stands at 0/0"),
        ):
            shop.verify(wait=0.2)
        assert shop.pipeline.log.list().barriers == ()

    def test_a_pipeline_that_passed_the_position_is_no_equal_one(self, shop: Shop) -> None:
        assert shop.verify().equal
        beyond = format_lsn(shop.pipeline.wal_end() + 2**30)
        shop.at_target(f"UPDATE penstock.progress SET end_lsn = '{beyond}'")  # noqa: S608
        with pytest.raises(DestinationError, match="went past"):
            shop.verify()

    def test_no_free_slot(self, fresh_server: FreshServer, pipeline: PipelineUnderTest) -> None:
        server = fresh_server(max_replication_slots="1")
        pipeline.url = server.url()
        pipeline.configure(destination={"type": "postgres", "url": server.url()})
        pipeline.execute("CREATE TABLE items (id int PRIMARY KEY)")
        pipeline.subscribe()
        with pytest.raises(SourceError, match=r"temporary replication slot.*in use") as found:
            verify(pipeline.config, pipeline.file)
        assert "max_replication_slots" in found.value.remedy
