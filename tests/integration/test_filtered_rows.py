"""Whole pipelines with a filter to a destination that holds rows: it holds the filtered source."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from penstock.model.errors import ConfigError, PenstockError
from penstock.verify.verification import verify
from tests.fix_pipeline import PipelineUnderTest
from tests.fix_target import Target
from tests.integration.test_filtered_pipeline import catch_up
from tests.pipelines import engine_on
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


CONDITIONS = {"people": "city = 'Bonn' AND age >= 18", "loose": "b > 2"}


def some_rows(url: str, wanted: dict[str, str]) -> dict[str, list[Any]]:
    with psycopg.connect(url) as conn:
        return {
            table: conn.execute(
                f"SELECT * FROM {table} WHERE {condition} ORDER BY 1, 2, 3".encode()  # noqa: S608
            ).fetchall()
            for table, condition in wanted.items()
        }


def test_the_target_holds_the_rows_that_meet_a_condition(
    pipeline: PipelineUnderTest, threads: Threads, target: Target
) -> None:
    """Rows that begin to meet it come whole, those that cease to meet it go, also under other keys,
    and with another condition all of them are others.
    """
    pipeline.execute(
        "CREATE TABLE people (id int PRIMARY KEY, city text, age int, big text, plain text)",
        "ALTER TABLE people REPLICA IDENTITY FULL",
        "ALTER TABLE people ALTER big SET STORAGE EXTERNAL",
        "CREATE TABLE loose (a int, b int, c text)",
        "ALTER TABLE loose REPLICA IDENTITY FULL",
        "INSERT INTO people SELECT n, CASE n % 3 WHEN 0 THEN 'Bonn' ELSE 'Ulm' END, n,"
        " repeat(md5(n::text), 200), 'p' FROM generate_series(1, 60) n",
        "INSERT INTO loose SELECT n % 5, n % 4, 'c' FROM generate_series(1, 40) n",
    )
    pipeline.configure(destination={"type": "postgres", "url": target.url}, copy=True)
    pipeline.also(filter={"rows": CONDITIONS})
    pipeline.subscribe()
    # Replayed over copied rows.
    pipeline.execute(
        "UPDATE people SET city = 'Bonn' WHERE id % 7 = 0",
        "UPDATE people SET city = 'Ulm' WHERE id % 9 = 0",
    )
    catch_up(pipeline, threads)
    expected = some_rows(pipeline.url, CONDITIONS)
    assert all(expected.values())
    assert some_rows(target.url, dict.fromkeys(CONDITIONS, "true")) == expected
    pipeline.execute(
        "UPDATE people SET city = 'Bonn' WHERE id % 4 = 0",
        "UPDATE people SET age = age - 10, plain = 'q' WHERE id % 2 = 0",
        "UPDATE people SET id = id + 100, city = 'Ulm' WHERE id % 6 = 0",
        "UPDATE people SET id = id + 200, city = 'Bonn' WHERE id % 5 = 0",
        "UPDATE people SET id = id + 1000",
        "DELETE FROM people WHERE id % 11 = 0",
        "INSERT INTO people VALUES (1, 'Bonn', 99, 'new', 'n'), (2, 'Ulm', 99, 'new', 'n')",
        "UPDATE loose SET b = b + 1 WHERE a % 2 = 0",
        "UPDATE loose SET b = 0 WHERE a = 3",
        "DELETE FROM loose WHERE a = 4",
    )
    catch_up(pipeline, threads)
    expected = some_rows(pipeline.url, CONDITIONS)
    assert some_rows(target.url, dict.fromkeys(CONDITIONS, "true")) == expected
    report = verify(pipeline.config, pipeline.file, make_engine=engine_on(threads), wait=120)
    assert report.equal
    assert all("filter.rows" in result.skipped for result in report.tables)
    others = {**CONDITIONS, "people": "city = 'Ulm'"}
    pipeline.also(filter={"rows": others})
    catch_up(pipeline, threads)
    expected = some_rows(pipeline.url, others)
    assert some_rows(target.url, dict.fromkeys(others, "true")) == expected
    pipeline.execute("ALTER TABLE people REPLICA IDENTITY DEFAULT", "DELETE FROM people")
    with pytest.raises(PenstockError, match="sends old rows whole"):
        catch_up(pipeline, threads)
