"""A refused table waits while the others go on; tried again, it catches up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.destination.postgres.destination import PostgresDestination
from penstock.model.errors import BatchAgain
from penstock.model.lsn import Frontier
from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.pipelines import logged, pipeline_on
from tests.threads_engine import Threads


class Shop:
    """Two tables, of which the target of one refuses negative amounts."""

    def __init__(self, pipeline: PipelineUnderTest, target_url: str, threads: Threads) -> None:
        self.pipeline = pipeline
        self.target_url = target_url
        self.said: list[str] = []
        self._spark = threads
        pipeline.execute(
            "CREATE TABLE payments (id int PRIMARY KEY, amount int, note text)",
            "CREATE TABLE visits (id int PRIMARY KEY)",
        )
        self.at_target(
            "CREATE TABLE payments (id int PRIMARY KEY, amount int CHECK (amount >= 0), note text)"
        )
        self.at_target("CREATE TABLE visits (id int PRIMARY KEY)")

    def configure(self, **destination: Any) -> None:
        self.pipeline.configure(
            destination={"type": "postgres", "url": self.target_url, **destination}
        )
        self.pipeline.subscribe()

    def at_target(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.target_url, autocommit=True) as conn:
            cursor = conn.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return self.at_target(f"SELECT * FROM {table} ORDER BY id")  # noqa: S608

    def source_rows(self, table: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.pipeline.url) as conn:
            return conn.execute(f"SELECT * FROM {table} ORDER BY id".encode()).fetchall()  # noqa: S608

    @contextmanager
    def running(self) -> Iterator[Future[Frontier]]:
        stop = False
        with ThreadPoolExecutor(1) as pool:
            runner = pipeline_on(self._spark, self.pipeline.config, self.pipeline.file)
            with logged(self.said.append):
                future = pool.submit(runner.run, lambda: stop)
                try:
                    yield future
                finally:
                    stop = True
                    wait_for([future])

    def wait(self, future: Future[Frontier], condition: Callable[[], bool], what: str) -> None:
        def met() -> bool:
            if future.done():
                future.result()
            return condition()

        wait_until(met, what)

    def command(self, *arguments: str) -> str:
        result = CliRunner().invoke(app, [*arguments])
        assert result.exit_code == 0, result.output
        return result.output


@pytest.fixture
def shop(pipeline: PipelineUnderTest, target_url: str, threads: Threads) -> Shop:
    return Shop(pipeline, target_url, threads)


def test_the_others_go_on_and_it_catches_up(shop: Shop) -> None:
    shop.configure()
    file = str(shop.pipeline.file)
    with shop.running() as future:
        shop.pipeline.execute(
            "INSERT INTO payments VALUES (1, 10, 'first')",
            "INSERT INTO visits VALUES (1)",
        )
        shop.wait(future, lambda: shop.rows("visits") == [(1,)], "the first rows are there")
        # Both in one transaction: with its table set aside, the other's row still arrives.
        shop.pipeline.execute(
            "WITH v AS (INSERT INTO visits VALUES (2)) INSERT INTO payments VALUES (2, -5, 'bad')",
            "INSERT INTO payments VALUES (3, 7, 'later')",
            "UPDATE payments SET amount = 11 WHERE id = 1",
            "INSERT INTO visits VALUES (3)",
        )
        shop.wait(future, lambda: len(shop.rows("visits")) == 3, "the other table goes on")
        assert shop.rows("payments") == [(1, 10, "first")]

        listed = json.loads(shop.command("tables", "list", file, "--json"))
        status = json.loads(shop.command("status", file, "--json"))
        reason = status["tables"]["errored"]["public.payments"]
        assert "id = 2" in reason
        assert "payments_amount_check" in reason
        assert status["tables"]["phases"] == {"errored": 1, "ready": 1}
        assert "payments" in json.dumps(listed)
        assert any("public.payments" in text and "set aside" in text for text in shop.said)

        # What it lacks stays in reach: the slot is not confirmed past it.
        before = shop.pipeline.confirmed
        shop.pipeline.execute("INSERT INTO visits VALUES (4)")
        shop.wait(future, lambda: len(shop.rows("visits")) == 4, "and on")
        assert shop.pipeline.confirmed == before

        shop.at_target("ALTER TABLE payments DROP CONSTRAINT payments_amount_check")
        shop.command("tables", "retry", file, "payments")
        shop.wait(
            future,
            lambda: shop.rows("payments") == shop.source_rows("payments"),
            "the table has caught up",
        )
        shop.pipeline.execute("INSERT INTO payments VALUES (5, 1, NULL)")
        shop.wait(future, lambda: len(shop.rows("payments")) == 4, "it goes on with the others")
        shop.wait(future, lambda: shop.pipeline.confirmed > before, "the slot moves again")
    assert shop.rows("visits") == shop.source_rows("visits")


def test_it_stays_set_aside_over_a_restart(shop: Shop) -> None:
    shop.configure()
    shop.pipeline.execute(
        "INSERT INTO payments VALUES (1, -1, NULL)",
        "INSERT INTO visits VALUES (1)",
        "INSERT INTO payments VALUES (2, 2, NULL)",
    )
    with shop.running() as future:
        shop.wait(future, lambda: shop.rows("visits") == [(1,)], "the other table goes on")
    shop.pipeline.execute(
        "UPDATE payments SET amount = 3 WHERE id = 2", "INSERT INTO visits VALUES (2)"
    )
    with shop.running() as future:
        shop.wait(future, lambda: len(shop.rows("visits")) == 2, "the other table goes on again")
        assert shop.rows("payments") == []
    shop.at_target("ALTER TABLE payments DROP CONSTRAINT payments_amount_check")
    shop.command("tables", "retry", str(shop.pipeline.file), "payments")
    with shop.running() as future:
        shop.wait(
            future,
            lambda: shop.rows("payments") == shop.source_rows("payments"),
            "it has caught up after the restart",
        )
    assert shop.rows("visits") == shop.source_rows("visits")


def test_dead_letters_are_counted_and_the_rest_goes_on(shop: Shop) -> None:
    shop.configure(dead_letter=True)
    shop.pipeline.execute(
        "INSERT INTO payments SELECT i, i, 'ok' FROM generate_series(1, 50) i",
        "INSERT INTO payments VALUES (77, -77, 'bad')",
        "UPDATE payments SET amount = -1 WHERE id = 5",
        "INSERT INTO visits VALUES (1)",
    )
    with shop.running() as future:
        shop.wait(future, lambda: shop.rows("visits") == [(1,)], "everything is delivered")
    assert [row[0] for row in shop.rows("payments")] == [i for i in range(1, 51) if i != 5]
    status = json.loads(shop.command("status", str(shop.pipeline.file), "--json"))
    assert status["tables"]["dead_letters"] == {"public.payments": 2}
    assert "2 of public.payments" in shop.command("status", str(shop.pipeline.file))
    letters = shop.at_target(
        "SELECT row_values ->> 'id', row_values ->> 'note', cause FROM penstock.dead_letter"
        " ORDER BY 1"
    )
    assert [letter[:2] for letter in letters] == [("5", "ok"), ("77", "bad")]
    assert all("payments_amount_check" in letter[2] for letter in letters)


def test_batches_that_are_to_be_staged_again_under_load(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query ends and begins anew while batches keep coming."""
    shop.configure()
    commit, calls = PostgresDestination.commit, 0

    def again(self: PostgresDestination, *arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls in (2, 4, 5):
            raise BatchAgain("what was staged is gone")
        commit(self, *arguments)

    monkeypatch.setattr(PostgresDestination, "commit", again)
    written = 0
    with shop.running() as future:
        while calls < 8:
            written += 1
            shop.pipeline.execute(f"INSERT INTO visits VALUES ({written})")  # noqa: S608
            if future.done():
                future.result()
        shop.wait(future, lambda: len(shop.rows("visits")) == written, "everything is there")
    assert sum("staged is gone" in text for text in shop.said) == 3


def test_a_destroyed_pipeline_begins_anew(shop: Shop) -> None:
    shop.configure()
    file = str(shop.pipeline.file)
    shop.pipeline.execute("INSERT INTO visits VALUES (1)")
    with shop.running() as future:
        shop.wait(future, lambda: shop.rows("visits") == [(1,)], "the row is there")
    assert "at the destination" in shop.command("destroy", file, "--yes")
    assert shop.at_target("SELECT * FROM penstock.progress") == []
    assert shop.rows("visits") == [(1,)]
    shop.pipeline.execute("INSERT INTO visits VALUES (2)")
    shop.pipeline.subscribe()
    shop.pipeline.execute("INSERT INTO visits VALUES (3)")
    with shop.running() as future:
        shop.wait(future, lambda: (3,) in shop.rows("visits"), "it goes on from the new slot")
    assert shop.rows("visits") == [(1,), (3,)]
