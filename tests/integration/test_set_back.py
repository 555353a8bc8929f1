"""A destination that has lost its last commits."""

from __future__ import annotations

import psycopg
import pytest

from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.errors import DestinationError
from tests.fix_pipeline import PipelineUnderTest
from tests.fix_postgres import FreshServer
from tests.integration.copied_tables import CopiedTables
from tests.physical_copies import image_of, restore
from tests.threads_engine import Threads

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text)"


class Failing(CopiedTables):
    """Into a server of its own, which is set back."""

    def __init__(
        self, pipeline: PipelineUnderTest, server: EmbeddedPostgres, threads: Threads
    ) -> None:
        super().__init__(pipeline, server.create_database("warehouse"), threads)
        self.pipeline.execute(ITEMS, "INSERT INTO items SELECT generate_series(1, 100), 'old'")
        self.configure(tables={"reconcile": "200ms"})

    def is_same(self, *tables: str) -> bool:
        try:
            return self.is_equal(*tables)
        except psycopg.Error:
            return False


def test_a_destination_that_lost_commits_goes_on_from_what_it_has(
    pipeline: PipelineUnderTest, fresh_server: FreshServer, threads: Threads
) -> None:
    server = fresh_server()
    shop = Failing(pipeline, server, threads)
    with shop.running() as run:
        shop.wait(run, lambda: shop.phases() == {"public.items": "ready"}, "the table is copied")
        pipeline.execute("INSERT INTO items VALUES (150, 'with the others')")
        shop.wait(run, lambda: shop.is_same("items"), "the table is followed")
        image = image_of(server)
        pipeline.execute(
            "UPDATE items SET name = 'new' WHERE id < 50",
            "DELETE FROM items WHERE id > 90",
            "CREATE TABLE late (id int PRIMARY KEY)",
            "INSERT INTO late SELECT generate_series(1, 10)",
        )
        shop.wait(run, lambda: shop.is_same("items", "late"), "the changes are there")
        pipeline.execute("ALTER TABLE items ADD COLUMN more int DEFAULT 5")
        pipeline.execute("INSERT INTO items VALUES (200, 'with more', 6)")
        shop.wait(run, lambda: shop.is_same("items"), "the schema change is there")
        restore(server, image)
        pipeline.execute("INSERT INTO items VALUES (300, 'after', 7)", "DELETE FROM late")
        shop.wait(run, lambda: shop.is_same("items", "late"), "it is all there again")
        ready = {"public.items": "ready", "public.late": "ready"}
        shop.wait(run, lambda: shop.phases() == ready, "both are followed")
    (told,) = [line for line in shop.said if "the destination went back" in line]
    assert "copying anew: public.late" in told


@pytest.mark.release
def test_what_the_log_no_longer_has_is_refused_and_the_remedy_works(
    pipeline: PipelineUnderTest, fresh_server: FreshServer, threads: Threads
) -> None:
    server = fresh_server()
    shop = Failing(pipeline, server, threads)
    destination = {"type": "postgres", "url": shop.target_url}
    pipeline.configure(copy=True, destination=destination, grace=0)
    shop.run_until_caught_up()
    image = image_of(server)
    for number in (500, 501, 502):
        pipeline.execute(f"INSERT INTO items VALUES ({number}, 'lost')")  # noqa: S608
        shop.run_until_caught_up()
    restore(server, image)
    with pytest.raises(DestinationError, match=r"went back.* no longer has") as caught:
        shop.run_until_caught_up()
    assert "existing_rows: truncate" in caught.value.remedy
    shop.command("destroy", str(pipeline.file), "--yes")
    pipeline.configure(copy={"existing_rows": "truncate"}, destination=destination)
    shop.run_until_caught_up()
    assert shop.is_same("items")
