"""What leaves its rule while no event trigger tells of it: nothing of it leaves in clear."""
# ruff: noqa: S608 (statements of a test)

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.model.errors import PenstockError
from tests.fix_pipeline import PipelineUnderTest
from tests.integration.test_transformed_pipeline import catch_up, written
from tests.integration.transformed_rows import expected_rows, rows_at
from tests.threads_engine import Threads
from tests.tree_of_tables import KEY, PLANTED

TABLE = (
    "CREATE TABLE people (id int PRIMARY KEY, email text, note text)",
    f"INSERT INTO people VALUES (1, '{PLANTED}1@shop.de', 'a')",
)


def untold(pipeline: PipelineUnderTest, statement: str) -> None:
    with psycopg.connect(pipeline.url, autocommit=True) as conn:
        conn.execute("SET penstock.track_ddl = off")
        conn.execute(statement.encode())


@pytest.mark.parametrize("into", ["postgres", "files"])
@pytest.mark.parametrize(
    ("change", "table"),
    [
        ("ALTER TABLE people RENAME TO persons", "persons"),
        ("ALTER TABLE people RENAME email TO contact", "people"),
    ],
    ids=["table", "column"],
)
def test_a_rename_that_nothing_told_of_lets_no_value_out(
    pipeline: PipelineUnderTest,
    threads: Threads,
    target_url: str,
    into: str,
    change: str,
    table: str,
) -> None:
    out: dict[str, Any] = {"type": "postgres", "url": target_url}
    if into == "files":
        out = {"type": "files", "path": str(pipeline.folder / "out"), "format": "ndjson"}
    pipeline.execute(*TABLE)
    pipeline.configure(destination=out, copy=True)
    rules = [{"table": "public.people*", "columns": {"*mail*": "hash"}, "keep": ["*"]}]
    pipeline.also(transform={"key": KEY, "rules": rules})
    said: list[str] = []
    catch_up(pipeline, threads, said)
    untold(pipeline, change)
    column = "contact" if table == "people" else "email"
    pipeline.execute(
        f"INSERT INTO {table} VALUES (2, '{PLANTED}2@shop.de', 'b')",
        f"UPDATE {table} SET {column} = '{PLANTED}3@shop.de' WHERE id = 1",
    )
    # Where tables do not fail alone it stops.
    with suppress(PenstockError):
        catch_up(pipeline, threads, said)
    assert any("no rule changes column" in line for line in said) or into == "files"
    assert PLANTED not in written(pipeline)
    assert not any(PLANTED in line for line in said)
    if into == "postgres":
        with psycopg.connect(target_url) as conn:
            found = conn.execute("SELECT t::text FROM public.people t").fetchall()
        assert len(found) == 1
        assert PLANTED not in str(found)
    # With rules for the names of now it goes on.
    columns = {"*mail*": "hash", "contact": "hash"}
    rules = [{"table": "public.pe*", "columns": columns, "keep": ["*"]}]
    pipeline.also(transform={"key": KEY, "rules": rules})
    if into == "postgres":
        retried = CliRunner().invoke(app, ["tables", "retry", str(pipeline.file), "people"])
        assert retried.exit_code == 0, retried.output
    catch_up(pipeline, threads, said)
    if into == "postgres":
        expected = expected_rows(pipeline)[table]
        assert sum(expected.values()) == 2
        # A new name alone of which nothing tells is not followed.
        assert rows_at(target_url, {"people": expected}) == {"people": expected}
    else:
        assert '"b"' in written(pipeline)
    assert PLANTED not in written(pipeline)
