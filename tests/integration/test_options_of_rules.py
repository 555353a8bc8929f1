"""Conditions, nulls, errors, domains and large values: the same in copied and in streamed rows."""
# ruff: noqa: S608 (statements of a test)

from __future__ import annotations

import pytest

from tests.fix_pipeline import PipelineUnderTest
from tests.integration.test_transformed_pipeline import catch_up
from tests.integration.transformed_rows import expected_rows, rows_at
from tests.threads_engine import Threads
from tests.tree_of_tables import KEY

ROWS = 40
RULES = {
    "a": {"use": "hash", "when": "kind = 'x'"},
    "b": {"use": "email", "nulls": "transform"},
    "c": {"use": "token", "errors": "null"},
    "d": {"use": "hash", "domain": "another"},
    "e": {"use": "hash", "when": "kind = 'x'"},
    "f": {"use": "mask", "pattern": "[0-9]+"},
    "g": {"use": "template", "template": "{b|upper}-{value|hash:6}", "missing": "none"},
}
LARGE = "(SELECT string_agg(md5(n || '.' || i), '') FROM generate_series(1, 100) i)"


@pytest.mark.every_postgres
def test_options_are_the_same_for_copied_and_streamed_rows(
    pipeline: PipelineUnderTest, threads: Threads, target_url: str
) -> None:
    """Rows are copied, inserted again, and updated so that conditions begin and cease to hold,
    while large values do not change.
    """
    pipeline.execute(
        "CREATE TABLE wide (id int PRIMARY KEY, kind text, a text, b text, c text, d text, e text,"
        " f text, g text)",
        "ALTER TABLE wide REPLICA IDENTITY FULL",
        "ALTER TABLE wide ALTER e SET STORAGE EXTERNAL, ALTER f SET STORAGE EXTERNAL",
        "INSERT INTO wide SELECT n, CASE n % 3 WHEN 0 THEN 'x' WHEN 1 THEN 'y' END, 'a' || n,"
        " CASE WHEN n % 2 = 0 THEN n || '@shop.de' END,"
        " CASE WHEN n % 4 = 0 THEN 'odd' ELSE '12345' || n END, 'a' || n,"
        f" {LARGE}, {LARGE}, NULLIF('g' || n % 5, 'g0') FROM generate_series(1, {ROWS}) n",
    )
    pipeline.configure(destination={"type": "postgres", "url": target_url}, copy=True)
    table = {"table": "wide", "columns": RULES, "keep": ["id", "kind"]}
    pipeline.also(transform={"key": KEY, "rules": [table]})
    said: list[str] = []
    catch_up(pipeline, threads, said)
    copied = rows_at(target_url, expected_rows(pipeline))
    assert copied == expected_rows(pipeline)
    columns = "kind, a, b, c, d, e, f, g"
    pipeline.execute(
        f"INSERT INTO wide SELECT id + 1000, {columns} FROM wide",
        "UPDATE wide SET kind = CASE kind WHEN 'x' THEN 'y' WHEN 'y' THEN 'x' END"
        " WHERE id > 1000 AND id % 2 = 0",
        "UPDATE wide SET id = id + 5000, b = 'new@shop.de' WHERE id % 7 = 0",
    )
    catch_up(pipeline, threads, said)
    expected = expected_rows(pipeline)
    assert rows_at(target_url, expected) == expected
    # Each of the options has done something.
    rows = list(expected["wide"])
    assert {row[2][0] == "a" and len(row[2]) < 5 for row in rows if row[2]} == {True, False}
    assert all(row[3] is not None for row in rows)
    assert {row[4] is None for row in rows} == {True, False}
    assert {len(row[6] or "") > 3000 for row in rows} == {True, False}
