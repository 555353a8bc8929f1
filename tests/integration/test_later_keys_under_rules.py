"""Unique indexes and foreign keys that come while a pipeline runs are held to its rules."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any

import psycopg
import pytest
from psycopg import sql
from typer.testing import CliRunner

from penstock.cli.main import app
from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.integration.test_transformed_pipeline import catch_up
from tests.integration.transformed_rows import expected_rows, rows_at
from tests.pipelines import logged, pipeline_on
from tests.threads_engine import Threads
from tests.tree_of_tables import KEY

TABLES = (
    "CREATE TABLE people (id int PRIMARY KEY, code text)",
    "CREATE TABLE orders (id int PRIMARY KEY, number text, buyer int)",
    "INSERT INTO people VALUES (1, 'a')",
)


def configure(pipeline: PipelineUnderTest, target_url: str, **columns: Any) -> None:
    into = {"type": "postgres", "url": target_url}
    pipeline.configure(include=("public.*",), destination=into, copy=True)
    rules = [
        {"table": "people", "columns": columns, "keep": ["*"]},
        {"table": "orders", "columns": {"number": "hash"}, "keep": ["*"]},
    ]
    pipeline.also(transform={"key": KEY, "rules": rules})


@contextmanager
def running(pipeline: PipelineUnderTest, tasks: Threads, said: list[str]) -> Iterator[None]:
    stop = Event()
    with logged(said.append), ThreadPoolExecutor(1) as pool:
        run = pool.submit(pipeline_on(tasks, pipeline.config, pipeline.file).run, stop.is_set)
        try:
            yield
        finally:
            stop.set()
            run.result()


def ids(url: str, table: str) -> list[int]:
    with psycopg.connect(url) as conn:
        if conn.execute("SELECT to_regclass(%s)", [table]).fetchone() == (None,):
            return []
        rows = conn.execute(
            sql.SQL("SELECT id FROM {} ORDER BY id").format(sql.Identifier(table))
        ).fetchall()
    return [number for (number,) in rows]


def retry(pipeline: PipelineUnderTest, table: str) -> None:
    retried = CliRunner().invoke(app, ["tables", "retry", str(pipeline.file), table])
    assert retried.exit_code == 0, retried.output


@pytest.mark.slow
def test_a_later_unique_index_over_what_a_rule_makes_the_same(
    pipeline: PipelineUnderTest, threads: Threads, target_url: str
) -> None:
    pipeline.execute(*TABLES)
    configure(pipeline, target_url, code={"use": "mask", "kind": "password"})
    said: list[str] = []
    with running(pipeline, threads, said):
        wait_until(lambda: ids(target_url, "people") == [1], "the copy")
        pipeline.execute(
            "CREATE UNIQUE INDEX codes ON people (code)",
            "INSERT INTO people VALUES (2, 'b')",
            "INSERT INTO orders VALUES (1, 'x')",
        )
        wait_until(lambda: ids(target_url, "orders") == [1], "the other table")
    told = "\n".join(said)
    assert "column code: mask makes different values the same, but unique index codes" in told
    assert ids(target_url, "people") == [1]
    configure(pipeline, target_url, code="hash")
    retry(pipeline, "people")
    catch_up(pipeline, threads, said)
    assert rows_at(target_url, expected_rows(pipeline)) == expected_rows(pipeline)


def expect_refused(said: list[str]) -> None:
    places = ("notes, column author", "orders, column buyer")

    def are_told() -> bool:
        told = "\n".join(said)
        return all(f"public.{place}: refers to public.people.id" in told for place in places)

    wait_until(are_told, "both are refused", 30)


def test_what_refers_later_to_a_key_that_a_rule_changes(
    pipeline: PipelineUnderTest, threads: Threads, target_url: str
) -> None:
    pipeline.execute(*TABLES)
    configure(pipeline, target_url, id="integer_key", code="hash")
    said: list[str] = []
    with running(pipeline, threads, said):
        wait_until(lambda: ids(target_url, "people"), "the copy")
        pipeline.execute(
            "CREATE TABLE notes (id int PRIMARY KEY, author int REFERENCES people)",
            "INSERT INTO notes VALUES (1, 1)",
            "ALTER TABLE orders ADD FOREIGN KEY (buyer) REFERENCES people",
            "INSERT INTO orders VALUES (1, 'x', 1)",
            "INSERT INTO people VALUES (2, 'b')",
        )
        wait_until(lambda: len(ids(target_url, "people")) == 2, "the other table")
        expect_refused(said)
        # Another try under the same rules is refused, too.
        said.clear()
        for table in ("notes", "orders"):
            retry(pipeline, table)
        expect_refused(said)
    assert (ids(target_url, "notes"), ids(target_url, "orders")) == ([], [])
