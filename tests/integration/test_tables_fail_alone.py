"""One table that cannot go on does not stop the others, and what is printed heals it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.table_state import Errored
from tests.fix_pipeline import PipelineUnderTest
from tests.integration.copied_tables import CopiedTables
from tests.threads_engine import Threads

SHOP = (
    "CREATE TYPE mood AS ENUM ('calm')",
    "CREATE TABLE visits (id int PRIMARY KEY)",
    "CREATE TABLE payments (id int PRIMARY KEY, amount int, feels mood)",
    "INSERT INTO payments VALUES (1, 10)",
    "CREATE TABLE lonely (id int PRIMARY KEY)",
    (
        "CREATE TABLE names (id int PRIMARY KEY, r regclass, t regtype, p regproc, n regnamespace,"
        " many regclass[])"
    ),
    (
        "INSERT INTO names VALUES"
        " (1, 'visits', 'mood', 'pg_catalog.now', 'public', '{visits,payments}')"
    ),
    # A key of its leaf's own; the root has none.
    "CREATE TABLE events (id int NOT NULL, at int, note text) PARTITION BY LIST (at)",
    "CREATE TABLE events_1 PARTITION OF events FOR VALUES IN (1)",
    "ALTER TABLE events_1 ADD PRIMARY KEY (id)",
    "ALTER TABLE events REPLICA IDENTITY FULL",
    "ALTER TABLE events_1 REPLICA IDENTITY FULL",
    "INSERT INTO events VALUES (1, 1, 'a'), (2, 1, 'b')",
)


class FailingShop(CopiedTables):
    """``role`` is what the pipeline is to the target."""

    role: str
    visits = 0

    def at_target(self, statement: str) -> None:
        with psycopg.connect(self.target_url, autocommit=True) as conn:
            conn.execute(statement.encode())

    def rows(self, url: str, table: str) -> list[tuple[object, ...]]:
        with psycopg.connect(url) as conn:
            conn.execute("SET search_path = ''")
            query = f"SELECT t::text FROM public.{table} t ORDER BY 1"  # noqa: S608
            return conn.execute(query.encode()).fetchall()

    def visit(self) -> None:
        """A row of a table that nothing is wrong with."""
        self.visits += 1
        self.pipeline.execute(f"INSERT INTO visits VALUES ({self.visits})")  # noqa: S608

    def error_of(self, table: str) -> Errored | None:
        with self.store() as store:
            oid = store.find_table("public", table)
            state = None if oid is None else store.get_table_state(oid)
            return state if isinstance(state, Errored) else None


@pytest.fixture
def shop(
    pg_server: EmbeddedPostgres, pipeline: PipelineUnderTest, target_url: str, threads: Threads
) -> Iterator[FailingShop]:
    pipeline.execute(*SHOP)
    shop = FailingShop(pipeline, target_url, threads)
    shop.role = f"limited_{uuid.uuid4().hex[:8]}"
    role = sql.Identifier(shop.role)
    with psycopg.connect(target_url, autocommit=True) as admin:
        database = admin.info.dbname
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN").format(role))
        admin.execute(
            sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(sql.Identifier(database), role)
        )
        admin.execute(sql.SQL("GRANT USAGE, CREATE ON SCHEMA public TO {}").format(role))
        url = pg_server.url(database, shop.role)
        pipeline.configure(
            copy=True, exclude=("lonely",), destination={"type": "postgres", "url": url}
        )
        yield shop
        # Tasks keep their sessions.
        admin.execute(
            "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE usename = %s",
            [shop.role],
        )
        admin.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(role))
        admin.execute(sql.SQL("DROP ROLE {}").format(role))


def test_only_the_table_that_fails_waits(shop: FailingShop) -> None:
    file = str(shop.pipeline.file)

    def others_go_on() -> bool:
        return shop.is_equal("visits")

    everything = ("visits", "payments", "names", "events")
    shop.run_until_caught_up()
    assert shop.is_equal(*everything)
    with shop.running() as run:
        # Names that the source's own search path would shorten.
        shop.pipeline.execute("INSERT INTO names SELECT 2, r, t, p, n, many FROM names")
        shop.wait(run, lambda: shop.is_equal("names"), "names are the same at both ends")

        # One that names nothing at the target.
        shop.pipeline.execute("UPDATE names SET r = 'lonely' WHERE id = 1")
        shop.visit()
        shop.wait(run, lambda: shop.error_of("names") is not None, "names is set aside")
        shop.wait(run, others_go_on, "the others go on beside names")
        error = shop.error_of("names")
        assert error is not None
        assert 'relation "public.lonely" does not exist' in error.reason
        assert "penstock tables retry" in error.solution
        shop.at_target("CREATE TABLE public.lonely (id int)")
        shop.command("tables", "retry", file, "names")
        shop.wait(run, lambda: shop.is_equal("names"), "names has caught up")

        # A right that somebody took away.
        shop.at_target(f"REVOKE UPDATE ON payments FROM {shop.role}")
        shop.pipeline.execute("UPDATE payments SET amount = 11")
        shop.visit()
        shop.wait(run, lambda: shop.error_of("payments") is not None, "payments is set aside")
        shop.wait(run, others_go_on, "the others go on beside payments")
        error = shop.error_of("payments")
        assert error is not None
        assert "permission denied for table payments" in error.reason
        for grant in re.findall(r"GRANT [^;]+", error.solution):
            shop.at_target(grant)
        shop.command("tables", "retry", file, "payments")
        shop.wait(run, lambda: shop.is_equal("payments"), "payments has caught up")

        # The same before a copy.
        shop.at_target(f"REVOKE TRUNCATE, DELETE ON payments FROM {shop.role}")
        shop.command("tables", "resync", file, "payments")
        shop.visit()
        shop.wait(run, lambda: shop.error_of("payments") is not None, "it is not copied")
        shop.wait(run, others_go_on, "the others go on beside a copy")
        shop.at_target(f"GRANT TRUNCATE, DELETE ON payments TO {shop.role}")
        shop.command("tables", "retry", file, "payments")
        shop.wait(run, lambda: shop.phases()["public.payments"] == "ready", "it is copied")

        # An update of the leaf is legal, and says nothing that the root's rows are found by.
        shop.pipeline.execute(
            "ALTER TABLE events REPLICA IDENTITY NOTHING",
            "ALTER TABLE events_1 REPLICA IDENTITY DEFAULT",
            "UPDATE events_1 SET note = 'c' WHERE id = 1",
        )
        shop.visit()
        shop.wait(run, lambda: shop.error_of("events") is not None, "events is set aside")
        shop.wait(run, others_go_on, "the others go on beside events")
        error = shop.error_of("events")
        assert error is not None
        assert "REPLICA IDENTITY FULL" in error.solution
        assert "penstock tables resync" in error.solution
        shop.pipeline.execute(
            "ALTER TABLE events REPLICA IDENTITY FULL",
            "ALTER TABLE events_1 REPLICA IDENTITY FULL",
        )
        shop.command("tables", "resync", file, "events")
        shop.pipeline.execute("UPDATE events SET note = 'd' WHERE id = 2")
        shop.wait(run, lambda: shop.is_equal(*everything), "all are equal again")
