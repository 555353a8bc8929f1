"""Foreign keys between tables that were copied at different positions: they hold once the tables
stand at one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from penstock.destination.postgres.destination import PostgresDestination
from penstock.model.lsn import Frontier
from penstock.model.table_definition import TableDefinition
from penstock.pipeline.copy.copy_only import copy_only
from penstock.pipeline.run.joins import Joins
from tests.fix_pipeline import PipelineUnderTest
from tests.integration.copied_tables import CopiedTables
from tests.pipelines import engine_on, logged
from tests.threads_engine import Threads


class Shop(CopiedTables):
    """Customers come first; then orders while the stream stands still, so that they are further on
    than customers when their foreign key is made.
    """

    def __init__(
        self,
        pipeline: PipelineUnderTest,
        target_url: str,
        tasks: Threads,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        super().__init__(pipeline, target_url, tasks)
        self._may_commit = threading.Event()
        self._may_commit.set()
        self._completed: list[tuple[str, list[bool]]] = []
        pipeline.execute(
            "CREATE TABLE customers (id int PRIMARY KEY)",
            "CREATE TABLE orders (id int PRIMARY KEY,"
            " customer int CONSTRAINT of_customer REFERENCES customers)",
            "INSERT INTO customers SELECT generate_series(1, 9)",
            "INSERT INTO orders SELECT n, n FROM generate_series(1, 9) n",
        )
        self.configure(exclude=("public.orders",), tables={"reconcile": "1s"})
        wait_for, complete = Joins.wait_for, PostgresDestination.complete_table

        def held(joins: Joins, frontier: Frontier, give_up: Callable[[], bool]) -> None:
            self._may_commit.wait()
            wait_for(joins, frontier, give_up)

        def completed(destination: PostgresDestination, table: TableDefinition) -> None:
            complete(destination, table)
            self._completed.append((table.name, self.validated()))

        monkeypatch.setattr(Joins, "wait_for", held)
        monkeypatch.setattr(PostgresDestination, "complete_table", completed)

    @contextmanager
    def with_orders(self) -> Iterator[Future[Frontier]]:
        """A run in which orders are ready."""
        with self.running() as future:
            try:
                both = {"public.customers": "ready", "public.orders": "ready"}
                self.wait(future, lambda: self.phases() == {"public.customers": "ready"}, "first")
                self._may_commit.clear()
                self.pipeline.execute(
                    "INSERT INTO customers VALUES (10); INSERT INTO orders VALUES (10, 10)"
                )
                self.command("tables", "add", str(self.pipeline.file), "orders")
                self.wait(future, lambda: len(self._completed) > 1, "orders are copied")
                assert self._completed[1:] == [("orders", [False])], "it cannot hold yet"
                self._may_commit.set()
                self.wait(future, lambda: self.phases() == both, "orders are ready")
                yield future
            finally:
                self._may_commit.set()

    def validated(self) -> list[bool]:
        rows = self._target(
            "SELECT convalidated FROM pg_constraint WHERE contype = 'f' ORDER BY conname"
        )
        return [is_valid for (is_valid,) in rows]

    def notes(self) -> list[str]:
        with self.store() as store:
            return [note for notes in store.load_notes().values() for note in notes]

    def _target(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.target_url) as conn:
            return conn.execute(query.encode()).fetchall()


@pytest.fixture
def shop(
    pipeline: PipelineUnderTest,
    target_url: str,
    threads: Threads,
    monkeypatch: pytest.MonkeyPatch,
) -> Shop:
    return Shop(pipeline, target_url, threads, monkeypatch)


def test_a_key_that_did_not_hold_at_first_is_validated(shop: Shop) -> None:
    with shop.with_orders() as future:
        shop.wait(future, lambda: shop.validated() == [True], "the foreign key is validated")
    assert not shop.notes()
    assert not any("NOT VALID" in text for text in shop.said)


def test_a_key_is_validated_by_the_next_run(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one dies, or was of a version that did not do it: that one left a note."""
    with monkeypatch.context() as patched:
        patched.setattr(PostgresDestination, "complete_together", lambda *_: None, raising=False)
        with shop.with_orders():
            assert shop.validated() == [False]
    with shop.store() as store:
        orders = store.find_table("public", "orders")
        assert orders is not None
        note = "public.orders: the foreign key of_customer stays NOT VALID: it was so"
        store.set_notes(orders, [note, "something else"])
    shop.run_until_caught_up()
    assert shop.validated() == [True]
    assert shop.notes() == ["something else"]


def test_keys_of_a_snapshot(shop: Shop, threads: Threads) -> None:
    """There all tables stand at one point; the source itself has a row that refers to nothing."""
    shop.configure()
    shop.pipeline.execute(
        "CREATE TABLE bills (id int PRIMARY KEY,"
        " customer int CONSTRAINT a_bill REFERENCES customers)",
        "SET session_replication_role = replica; INSERT INTO bills VALUES (1, 77)",
    )
    config, file = shop.pipeline.config, shop.pipeline.file
    with logged(shop.said.append):
        report = copy_only(config, file, engine_on(threads), lambda: False)
    assert report is not None
    assert shop.validated() == [False, True]
    (said,) = [text for text in shop.said if "NOT VALID" in text]
    assert "public.bills: the foreign key a_bill stays NOT VALID" in said


def test_a_key_that_does_not_hold_at_one_point_is_noted(shop: Shop) -> None:
    with shop.with_orders() as future:
        shop.wait(future, lambda: shop.validated() == [True], "the foreign key is validated")
    with psycopg.connect(shop.target_url) as conn:
        conn.execute("SET session_replication_role = replica")
        conn.execute("DELETE FROM customers WHERE id = 3")
        conn.execute("UPDATE pg_constraint SET convalidated = false WHERE conname = 'of_customer'")
    for _ in range(2):
        shop.said.clear()
        shop.run_until_caught_up()
        (note,) = shop.notes()
        assert "public.orders: the foreign key of_customer stays NOT VALID" in note
    assert not any("NOT VALID" in text for text in shop.said), "it was told before"
