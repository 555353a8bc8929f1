"""A publication that somebody has narrowed by hand: what was lost is copied anew."""

from __future__ import annotations

import psycopg
import pytest

from tests.fix_pipeline import PipelineUnderTest
from tests.integration.copied_tables import CopiedTables
from tests.threads_engine import Threads

TABLES = ("items", "parts")


@pytest.fixture
def shop(pipeline: PipelineUnderTest, target_url: str, threads: Threads) -> CopiedTables:
    for table in TABLES:
        pipeline.execute(
            f"CREATE TABLE {table} (id int PRIMARY KEY, name text)",
            f"INSERT INTO {table} SELECT generate_series(1, 20), 'old'",
        )
    shop = CopiedTables(pipeline, target_url, threads)
    shop.configure(tables={"reconcile": "200ms"})
    return shop


def told(shop: CopiedTables) -> list[str]:
    """Why tables were copied anew, and forget it."""
    lines = [line for line in shop.said if "changes were lost" in line]
    shop.said.clear()
    return lines


def test_what_was_lost_while_it_was_down(shop: CopiedTables) -> None:
    publication = f"penstock_{shop.pipeline.name}"
    shop.run_until_caught_up()
    assert told(shop) == []
    shop.pipeline.execute(
        f"ALTER PUBLICATION {publication} DROP TABLE items",
        "UPDATE items SET name = 'lost'",
        "UPDATE parts SET name = 'followed'",
        f"ALTER PUBLICATION {publication} ADD TABLE ONLY items",
    )
    shop.run_until_caught_up()
    assert shop.is_equal(*TABLES)
    (line,) = told(shop)
    assert f"public.items: changes were lost: it left publication {publication} and" in line
    # It is altered and altered back, and its tables never left.
    shop.pipeline.execute(
        f"ALTER PUBLICATION {publication} SET (publish = 'insert')",
        "DELETE FROM items WHERE id < 5",
        f"ALTER PUBLICATION {publication} SET (publish = 'insert, update, delete, truncate')",
    )
    shop.run_until_caught_up()
    assert shop.is_equal(*TABLES)
    assert len(told(shop)) == 2


@pytest.mark.release
def test_what_is_lost_while_it_runs_is_copied_anew_and_options_are_set_back(
    shop: CopiedTables,
) -> None:
    publication = f"penstock_{shop.pipeline.name}"
    with shop.running() as run:
        shop.wait(run, lambda: set(shop.phases().values()) == {"ready"}, "the tables are copied")
        shop.pipeline.execute(
            f"ALTER PUBLICATION {publication} DROP TABLE items", "DELETE FROM items WHERE id = 1"
        )
        shop.wait(run, lambda: shop.is_equal(*TABLES), "the table is back")
        shop.pipeline.execute(
            f"ALTER PUBLICATION {publication} SET (publish = 'insert')",
            "DELETE FROM parts WHERE id = 1",
        )
        shop.wait(run, lambda: shop.is_equal(*TABLES), "all is published again")
    with psycopg.connect(shop.pipeline.url) as conn:
        found = conn.execute(
            "SELECT pubinsert, pubupdate, pubdelete, pubtruncate FROM pg_publication"
            " WHERE pubname = %s",
            [publication],
        ).fetchone()
    assert found == (True, True, True, True)
