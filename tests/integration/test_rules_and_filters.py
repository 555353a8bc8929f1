"""Rules at the start of a run: what a filter leaves out needs none; what they do not suit is not
even made at the destination.
"""
# ruff: noqa: S608 (statements of a test)

from __future__ import annotations

import psycopg
import pytest

from penstock.model.errors import ConfigError
from tests.fix_pipeline import PipelineUnderTest
from tests.integration.test_transformed_pipeline import catch_up, written
from tests.threads_engine import Threads
from tests.tree_of_tables import KEY, PLANTED


def test_strict_mode_asks_nothing_of_what_a_filter_leaves_out(
    pipeline: PipelineUnderTest, threads: Threads
) -> None:
    pipeline.execute(
        "CREATE TABLE people (id int PRIMARY KEY, email text, secret text)",
        "CREATE TABLE other (id int PRIMARY KEY)",
        f"INSERT INTO people VALUES (1, '{PLANTED}', '{PLANTED}')",
    )
    out = {"type": "files", "path": str(pipeline.folder / "out"), "format": "ndjson"}
    pipeline.configure(destination=out, copy=True)
    rules = [{"table": "*", "columns": {"id": "integer_key", "email": "hash"}}]
    pipeline.also(
        filter={"tables": {"exclude": ["other"]}, "columns": {"people": {"exclude": ["secret"]}}},
        transform={"key": KEY, "rules": rules},
    )
    said: list[str] = []
    catch_up(pipeline, threads, said)
    pipeline.execute(
        "ALTER TABLE people ADD later int GENERATED ALWAYS AS (id + 1) STORED",
        "ALTER TABLE other ADD note text",
        f"INSERT INTO people VALUES (2, 'a', '{PLANTED}')",
    )
    catch_up(pipeline, threads, said)
    assert written(pipeline).count('"table":"people"') > 2
    assert PLANTED not in written(pipeline)


def test_rules_that_do_not_suit_leave_nothing_at_the_destination(
    pipeline: PipelineUnderTest, threads: Threads, target_url: str
) -> None:
    pipeline.execute(
        f"CREATE TABLE people (id int PRIMARY KEY, email text DEFAULT '{PLANTED}')",
        "INSERT INTO people VALUES (1, 'a')",
    )
    pipeline.configure(destination={"type": "postgres", "url": target_url})
    pipeline.also(transform={"key": KEY, "rules": [{"table": "people", "keep": ["id"]}]})
    with pytest.raises(ConfigError, match=r"nothing was sent") as raised:
        catch_up(pipeline, threads, [])
    assert "people.email: has no rule" in raised.value.message
    with psycopg.connect(target_url) as conn:
        assert conn.execute("SELECT to_regclass('public.people')").fetchone() == (None,)
