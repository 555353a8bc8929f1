"""Rules behind a filter, into a destination that keeps every change."""
# ruff: noqa: S608 (statements of a test)

from __future__ import annotations

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
