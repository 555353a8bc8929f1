"""Whole pipelines with a filter to a destination that holds rows: it holds the filtered source."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from penstock.model.errors import ConfigError
from tests.fix_pipeline import PipelineUnderTest
from tests.fix_target import Target
from tests.integration.test_filtered_pipeline import catch_up
from tests.threads_engine import Threads

FILTER: dict[str, Any] = {
    "tables": {"exclude": ["secrets"]},
    "operations": {"exclude": ["message", "schema"]},
    "columns": {
        "items": {"exclude": ["password"]},
        "orders": {"include": ["id", "total"]},
        "loose": {"exclude": ["c"]},
    },
}
PASSING = {"items": "id, name, doc", "orders": "id, total", "loose": "a, b"}


def assert_equal(pipeline: PipelineUnderTest, target: Target, **passing: str) -> None:
    """The target's tables have these columns of the source's, and the same rows."""
    for table, columns in {**PASSING, **passing}.items():
        query = f"SELECT {columns} FROM {table} ORDER BY 1, 2"  # noqa: S608
        with psycopg.connect(pipeline.url) as conn:
            expected = conn.execute(query.encode()).fetchall()
        assert expected
        assert target.all(f"SELECT * FROM {table} ORDER BY 1, 2") == expected  # noqa: S608
        found = target.all(
            "SELECT string_agg(attname, ', ' ORDER BY attnum) FROM pg_attribute"  # noqa: S608
            f" WHERE attrelid = '{table}'::regclass AND attnum > 0 AND NOT attisdropped"
        )
        assert found == [(columns,)]
    assert target.all("SELECT to_regclass('secrets')") == [(None,)]


@pytest.mark.parametrize("copy", [True, False], ids=["copied", "streamed"])
def test_the_target_holds_the_filtered_source(
    pipeline: PipelineUnderTest, threads: Threads, target: Target, copy: bool
) -> None:
    rows = (
        "INSERT INTO items SELECT n, 'a', 'hush', repeat('x', 9000) FROM generate_series(1, 9) n",
        "INSERT INTO orders SELECT n, n * 1.5, 'new' FROM generate_series(1, 5) AS n",
        "INSERT INTO loose VALUES (1, 'x', 'p'), (1, 'x', 'q'), (2, 'y', 'r')",
        "INSERT INTO secrets VALUES (1)",
    )
    pipeline.execute(
        "CREATE TABLE items (id int PRIMARY KEY, name text, password text NOT NULL, doc text)",
        "ALTER TABLE items ALTER doc SET STORAGE EXTERNAL",
        "CREATE INDEX ON items (password)",
        "CREATE TABLE orders (id int PRIMARY KEY, total numeric(8,2), status text NOT NULL)",
        "CREATE TABLE loose (a int, b text, c text)",
        "ALTER TABLE loose REPLICA IDENTITY FULL",
        "CREATE TABLE secrets (id int PRIMARY KEY)",
        *(rows if copy else ()),
    )
    pipeline.configure(destination={"type": "postgres", "url": target.url}, copy=copy)
    pipeline.also(filter=FILTER)
    catch_up(pipeline, threads)
    if not copy:
        pipeline.execute(*rows)
    pipeline.execute(
        "UPDATE items SET name = 'other', password = 'new' WHERE id = 2",
        "UPDATE items SET id = 20 WHERE id = 3",
        "UPDATE items SET password = 'only that' WHERE id = 4",
        "DELETE FROM items WHERE id = 5",
        "UPDATE orders SET total = 9, status = 'paid' WHERE id < 3",
        "UPDATE loose SET c = 'z' WHERE a = 1",
        "DELETE FROM loose WHERE c = 'r'",
        "INSERT INTO secrets VALUES (2)",
    )
    catch_up(pipeline, threads)
    assert_equal(pipeline, target)
    pipeline.execute(
        "ALTER TABLE items ADD COLUMN note text DEFAULT 'n'",
        "ALTER TABLE orders ADD COLUMN note text",
        "INSERT INTO items VALUES (30, 'thirty', 'hush', 'd', 'note')",
        "INSERT INTO orders VALUES (30, 3, 'new', 'note')",
        "ALTER TABLE items RENAME password TO passphrase",
        "ALTER TABLE orders DROP COLUMN status",
        "UPDATE items SET passphrase = 'still left out' WHERE id = 1",
        "INSERT INTO orders VALUES (31, 3, 'note')",
    )
    catch_up(pipeline, threads)
    assert_equal(pipeline, target, items="id, name, doc, note")


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({"operations": {"exclude": ["delete"]}}, "rows would stay that the source has deleted"),
        ({"operations": {"include": ["insert", "read"]}}, "update"),
        ({"rows": {"items": "id > 3"}}, "filter.rows"),
        ({"columns": {"items": {"exclude": ["id"]}}}, "belongs to the key"),
    ],
)
def test_what_would_make_rows_wrong_is_refused(
    pipeline: PipelineUnderTest,
    threads: Threads,
    target_url: str,
    wanted: dict[str, Any],
    reason: str,
) -> None:
    pipeline.execute("CREATE TABLE items (id int PRIMARY KEY, name text)")
    pipeline.configure(destination={"type": "postgres", "url": target_url})
    pipeline.also(filter=wanted)
    with pytest.raises(ConfigError, match=reason):
        catch_up(pipeline, threads)
