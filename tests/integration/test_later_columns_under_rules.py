"""Rows that are older than a column hold what a copy would give them."""

from __future__ import annotations

from tests.fix_pipeline import PipelineUnderTest
from tests.integration.test_transformed_pipeline import catch_up
from tests.integration.transformed_rows import expected_rows, rows_at
from tests.threads_engine import Threads
from tests.tree_of_tables import KEY


def test_a_later_column_whose_rule_asks_for_more_than_its_value(
    pipeline: PipelineUnderTest, threads: Threads, target_url: str
) -> None:
    pipeline.execute(
        "CREATE TABLE people (id int PRIMARY KEY, country text)",
        "INSERT INTO people SELECT n, CASE WHEN n % 2 = 0 THEN 'DE' END"
        " FROM generate_series(1, 10) n",
    )
    pipeline.configure(destination={"type": "postgres", "url": target_url}, copy=True)
    columns = {
        "*_at": {"use": "shift", "by": "id"},
        "*_note": {"use": "hash", "when": "country = 'DE'"},
    }
    rules = [{"table": "people", "columns": columns, "keep": ["*"]}]
    pipeline.also(transform={"key": KEY, "rules": rules})
    said: list[str] = []
    catch_up(pipeline, threads, said)
    pipeline.execute(
        "ALTER TABLE people ADD seen_at date DEFAULT '2024-01-01',"
        " ADD own_note varchar(40) DEFAULT 'anna'",
        "INSERT INTO people VALUES (11, 'FR')",
    )
    catch_up(pipeline, threads, said)
    expected = expected_rows(pipeline)
    assert rows_at(target_url, expected) == expected
    assert len({row[2] for row in expected["people"]}) > 1
