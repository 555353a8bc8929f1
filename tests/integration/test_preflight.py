"""Preflight checks against real servers, one for each thing that may be missing."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from penstock.config import PipelineConfig
from penstock.config.models import CopyConfig
from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.errors import CheckFailed
from penstock.source.postgres.preflight.all_checks import CheckResult, require_passed, run_checks
from penstock.source.postgres.subscription.subscription import ensure_subscription
from tests.application_session import connect
from tests.fix_postgres import FreshServer
from tests.integration.fake_pooler import FakePooler

pytestmark = pytest.mark.every_postgres

Check = Callable[..., dict[str, CheckResult]]
Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def make_config(tmp_path: Path) -> Callable[..., PipelineConfig]:
    # Slots belong to the whole server, so two tests must not share a pipeline's name.
    name = f"t_{uuid.uuid4().hex[:12]}"

    def make(url: str, **tables: list[str]) -> PipelineConfig:
        return PipelineConfig.model_validate(
            {
                "name": name,
                "source": {"url": url, "tables": tables, "copy": False},
                "change_log": {"path": str(tmp_path / "deep" / "log")},
                "destination": {"type": "discard"},
            }
        )

    return make


@pytest.fixture
def check(make_config: Callable[..., PipelineConfig]) -> Check:
    """Runs all checks and returns them by name; nothing may have been created by that."""

    def run(url: str, **tables: list[str]) -> dict[str, CheckResult]:
        results = run_checks(make_config(url, **tables))
        by_name = {result.name: result for result in results}
        assert len(by_name) == len(results)
        for result in results:
            assert result.detail
            assert result.remedy or result.status in ("passed", "skipped")
        return by_name

    return run


@pytest.fixture
def conn(database: str) -> Iterator[Connection]:
    with connect(database) as connection:
        yield connection


def failed(results: dict[str, CheckResult]) -> list[str]:
    return [name for name, result in results.items() if result.status == "failed"]


def test_a_good_source_passes_everything_and_stays_untouched(
    conn: Connection, database: str, check: Check, tmp_path: Path
) -> None:
    conn.execute("CREATE TABLE a (id int PRIMARY KEY)")
    results = check(database)
    assert {result.status for result in results.values()} == {"passed"}
    require_passed(list(results.values()))
    assert conn.execute("SELECT count(*) FROM pg_publication").fetchone() == (0,)
    assert list(tmp_path.iterdir()) == []


def test_wal_level_slots_and_senders(fresh_server: FreshServer, check: Check) -> None:
    server = fresh_server(wal_level="replica", max_replication_slots="1", max_wal_senders="0")
    with connect(server.url()) as conn:
        conn.execute("CREATE TABLE a (id int PRIMARY KEY)")
        conn.execute("SELECT pg_create_physical_replication_slot('taken')")
    results = check(server.url())
    assert "wal_level is replica" in results["wal_level"].detail
    assert "ALTER SYSTEM SET wal_level" in results["wal_level"].remedy
    assert "all 1 replication slots are in use" in results["replication slots"].detail
    assert "all 0 WAL senders are in use" in results["WAL senders"].detail
    assert failed(results) == [
        "wal_level",
        "replication connection",
        "replication slots",
        "WAL senders",
    ]
    with pytest.raises(CheckFailed, match="nothing was created") as caught:
        require_passed(list(results.values()))
    assert "max_replication_slots" in caught.value.remedy


def test_settings_that_endanger_a_slot(
    fresh_server: FreshServer, check: Check, pg_version: int
) -> None:
    settings = {"wal_sender_timeout": "2s", "max_slot_wal_keep_size": "1GB"}
    if pg_version >= 18:
        settings["idle_replication_slot_timeout"] = "1h"
    server = fresh_server(**settings)
    with connect(server.url()) as conn:
        conn.execute("CREATE TABLE a (id int PRIMARY KEY)")
    results = check(server.url())
    assert failed(results) == []
    assert results["sender timeout"].status == "warning"
    assert "max_slot_wal_keep_size is 1GB" in results["WAL kept for slots"].detail
    expected = "warning" if pg_version >= 18 else "passed"
    assert results["idle slot timeout"].status == expected


def test_no_server_skips_the_rest(check: Check) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        results = check(f"postgresql://u:hunter2@127.0.0.1:{taken.getsockname()[1]}/shop")
    assert failed(results) == ["connection"]
    assert "hunter2" not in str(results)
    assert results["tables"].detail == "not checked: there is no connection"
    assert results["change log"].status == "passed"


@pytest.mark.parametrize(
    ("change", "cause", "remedy"),
    [
        ("/nowhere", "the server has no such database", "database's name"),
        ("?user=nobody_here", "refused this user or password", "user and password"),
        ("?sslmode=require", "do not agree about TLS", "sslmode"),
    ],
)
def test_why_there_is_no_connection(
    pg_server: EmbeddedPostgres, check: Check, change: str, cause: str, remedy: str
) -> None:
    base = f"postgresql://postgres@127.0.0.1:{pg_server.port}"
    result = check(base + ("/postgres" if change.startswith("?") else "") + change)["connection"]
    assert result.status == "failed"
    assert cause in result.detail
    assert f"127.0.0.1, port {pg_server.port}" in result.detail
    assert remedy in result.remedy


def test_an_unknown_host(check: Check) -> None:
    result = check("postgresql://u@nowhere.invalid/shop")["connection"]
    assert "the host name is unknown" in result.detail


class TestTables:
    def test_none_match(self, conn: Connection, database: str, check: Check) -> None:
        conn.execute("CREATE VIEW v AS SELECT 1 AS one")
        results = check(database)
        assert failed(results) == ["tables"]
        assert "no table matches" in results["tables"].detail
        assert "public.v (a view)" in results["tables"].detail

    def test_asked_for_by_name_but_no_table(
        self, conn: Connection, database: str, check: Check
    ) -> None:
        conn.execute(
            "CREATE TABLE a (id int PRIMARY KEY); CREATE VIEW v AS SELECT 1 AS one;"
            "CREATE UNLOGGED TABLE u (id int PRIMARY KEY)"
        )
        result = check(database, include=["a", "v", "u"])["tables"]
        assert result.status == "warning"
        assert "public.u (unlogged), public.v (a view)" in result.detail
        # Under a wildcard a view is no surprise; a table that is left out is said, not warned of.
        result = check(database)["tables"]
        assert (result.status, result.detail) == (
            "passed",
            "1 match: public.a; left out: public.u (unlogged)",
        )

    def test_rows_without_identity_would_break_the_application(
        self, conn: Connection, database: str, check: Check
    ) -> None:
        conn.execute(
            """
            CREATE TABLE good (id int PRIMARY KEY);
            CREATE TABLE bare (id int);
            CREATE TABLE late (id int PRIMARY KEY DEFERRABLE);
            CREATE TABLE nothing (id int PRIMARY KEY);
            ALTER TABLE nothing REPLICA IDENTITY NOTHING;
            CREATE TABLE complete (id int);
            ALTER TABLE complete REPLICA IDENTITY FULL;
            CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY LIST (id);
            CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
            ALTER TABLE parts_1 REPLICA IDENTITY NOTHING;
            """
        )
        results = check(database)
        assert failed(results) == ["replica identity"]
        detail = results["replica identity"].detail
        assert detail.startswith(
            "rows cannot be identified in public.bare (no primary key), "
            "public.late (its primary key is deferrable), "
            "public.nothing (REPLICA IDENTITY NOTHING), "
            "public.parts_1 (REPLICA IDENTITY NOTHING);"
        )
        assert (
            'ALTER TABLE "public"."bare" REPLICA IDENTITY FULL'
            in results["replica identity"].remedy
        )
        # The remedies by patterns.
        assert failed(check(database, exclude=["bare", "late", "nothing", "parts*"])) == []
        assert "source.tables.insert_only" in results["replica identity"].remedy
        followed = check(database, insert_only=["bare", "late", "nothing", "parts"])
        assert failed(followed) == []
        assert (
            "inserts and truncates only, no updates and deletes, of public.bare, public.late, "
            "public.nothing, public.parts" in followed["tables"].detail
        )

    def test_an_insert_only_pattern_that_means_nothing(
        self, conn: Connection, database: str, check: Check
    ) -> None:
        conn.execute(
            "CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY);"
            "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY LIST (id);"
            "CREATE TABLE parts_1 PARTITION OF parts DEFAULT;"
            "ALTER TABLE parts_1 REPLICA IDENTITY NOTHING"
        )
        results = check(database, exclude=["b"], insert_only=["a", "b", "parts_?", "no.*"])
        assert results["tables"].status == "warning"
        assert "match none of these tables: b, parts_?, no.*" in results["tables"].detail
        # Its root publishes updates and deletes, so the partition's identity counts.
        assert failed(results) == ["replica identity"]

    def test_what_the_check_predicts_is_true(self, conn: Connection) -> None:
        """What the check refuses does break under a publication, and the good one does not."""
        conn.execute(
            """
            CREATE TABLE bare (id int); INSERT INTO bare VALUES (1);
            CREATE TABLE late (id int PRIMARY KEY DEFERRABLE); INSERT INTO late VALUES (1);
            CREATE TABLE good (id int PRIMARY KEY); INSERT INTO good VALUES (1);
            CREATE PUBLICATION p FOR TABLE bare, late, good;
            """
        )
        for table in ("bare", "late"):
            with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
                conn.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
        conn.execute("DELETE FROM good")

    def test_an_excluded_partition_comes_with_its_root(
        self, conn: Connection, database: str, check: Check
    ) -> None:
        conn.execute(
            "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY LIST (id);"
            "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1)"
        )
        result = check(database, exclude=["parts_1"])["tables"]
        assert result.status == "warning"
        assert "excluded, but followed as partitions" in result.detail


class TestAnExistingSubscription:
    def test_differences_and_health(
        self, conn: Connection, database: str, check: Check, make_config: Callable[..., Any]
    ) -> None:
        conn.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY)")
        made = ensure_subscription(conn, make_config(database))
        results = check(database)
        assert results["replication slots"].detail == "not needed: the pipeline has its slot"
        assert made.slot in results["slot"].detail
        conn.execute("CREATE TABLE c (id int PRIMARY KEY)")
        result = check(database, exclude=["b"])["publication"]
        assert result.status == "warning"
        assert "matching tables that are not in it: public.c" in result.detail
        assert "`penstock run` brings it to what the patterns" in result.remedy
        assert "tables in it that no longer match: public.b" in result.detail
        result = check(database, exclude=["c"], insert_only=["b"])["publication"]
        assert result.status == "warning"
        assert "tables of insert_only with updates and deletes in it: public.b" in result.detail
        conn.execute("SELECT pg_drop_replication_slot(%s)", [made.slot])
        results = check(database)
        assert failed(results) == ["slot"]
        assert "does not exist" in results["slot"].detail

    def test_a_new_table_without_identity_does_not_stop_the_others(
        self, conn: Connection, database: str, check: Check, make_config: Callable[..., Any]
    ) -> None:
        conn.execute(
            "CREATE TABLE a (id int PRIMARY KEY);"
            "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY LIST (id)"
        )
        ensure_subscription(conn, make_config(database))
        conn.execute("CREATE TABLE bare (id int)")
        result = check(database)["replica identity"]
        assert result.status == "warning"
        assert "tables are left out" in result.detail
        assert "public.bare (no primary key)" in result.detail
        # One that is followed already is another matter: its updates fail now.
        conn.execute(
            "CREATE TABLE parts_1 PARTITION OF parts DEFAULT;"
            "ALTER TABLE parts_1 REPLICA IDENTITY NOTHING"
        )
        results = check(database)
        assert failed(results) == ["replica identity"]
        assert "public.parts_1 (REPLICA IDENTITY NOTHING)" in results["replica identity"].detail

    def test_a_generated_identity_does_not_stop_the_others(
        self, conn: Connection, database: str, check: Check, make_config: Callable[..., Any]
    ) -> None:
        conn.execute(
            "CREATE TABLE a (id int PRIMARY KEY);"
            "CREATE TABLE twice (a int, b int GENERATED ALWAYS AS (a * 2) STORED, PRIMARY KEY (b))"
        )
        result = check(database)["replica identity"]
        assert result.status == "failed"
        assert "public.twice (its replica identity has a generated column)" in result.detail
        assert "REPLICA IDENTITY DEFAULT, with a primary key without generated" in result.remedy
        # It is withdrawn, should somebody have published it.
        ensure_subscription(conn, make_config(database))
        assert check(database)["replica identity"].status == "warning"

    def test_two_publications(
        self, conn: Connection, database: str, check: Check, make_config: Callable[..., Any]
    ) -> None:
        conn.execute("CREATE TABLE a (id int); CREATE TABLE b (id int PRIMARY KEY)")
        made = ensure_subscription(conn, make_config(database, insert_only=["a", "b"]))
        names = " and ".join(made.publications)
        result = check(database, insert_only=["a", "b"])["publication"]
        assert (result.status, result.detail) == ("passed", f"{names} have 2 tables")
        result = check(database, insert_only=["a"])["publication"]
        assert result.status == "warning"
        assert "tables without updates and deletes in it: public.b" in result.detail
        conn.execute(sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(made.publications[1])))
        result = check(database, insert_only=["a", "b"])["publication"]
        assert result.status == "failed"
        assert "made together with" in result.detail

    def test_a_slot_that_nobody_owns_any_more(
        self, conn: Connection, database: str, check: Check, make_config: Callable[..., Any]
    ) -> None:
        conn.execute("CREATE TABLE a (id int PRIMARY KEY)")
        stray = f"penstock_{make_config(database).name}_0123abcd"
        conn.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [stray])
        result = check(database)["slot"]
        assert result.status == "warning"
        assert stray in result.detail
        assert stray in result.remedy

    def test_somebody_elses_publication(
        self, conn: Connection, database: str, check: Check, make_config: Callable[..., Any]
    ) -> None:
        conn.execute("CREATE TABLE a (id int PRIMARY KEY)")
        name = f"penstock_{make_config(database).name}"
        conn.execute(sql.SQL("CREATE PUBLICATION {}").format(sql.Identifier(name)))
        results = check(database)
        assert failed(results) == ["publication"]
        assert "did not make" in results["publication"].detail


class TestPrivileges:
    @pytest.fixture
    def role(self, pg_server: EmbeddedPostgres) -> Iterator[str]:
        role = f"role_{uuid.uuid4().hex}"
        with psycopg.connect(pg_server.url(), autocommit=True) as admin:
            admin.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
            yield role
            admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))

    @pytest.fixture
    def weak(self, role: str, database: str, pg_server: EmbeddedPostgres) -> str:
        """The URL of a role that may do nothing; asked for after ``role``, so dropped before it."""
        with psycopg.connect(database, autocommit=True) as admin:
            admin.execute("CREATE TABLE a (id int PRIMARY KEY)")
            return pg_server.url(admin.info.dbname, role)

    def test_a_copy_has_to_read(
        self, weak: str, conn: Connection, make_config: Callable[..., PipelineConfig]
    ) -> None:
        conn.execute(
            "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY LIST (id);"
            "CREATE TABLE parts_1 PARTITION OF parts DEFAULT;"
            "GRANT SELECT ON a, parts TO PUBLIC"
        )
        config = make_config(weak)
        source = config.source.model_copy(update={"copy_rows": CopyConfig()})
        results = run_checks(config.model_copy(update={"source": source}))
        (reading,) = [result for result in results if result.name == "table reading"]
        assert reading.status == "failed"
        # Each partition is read by itself.
        assert reading.detail.startswith("the role may not read public.parts_1;")
        assert "GRANT SELECT" in reading.remedy
        assert "source.copy to false" in reading.remedy

    def test_each_missing_one_is_named_and_its_remedy_works(
        self, weak: str, role: str, database: str, check: Check
    ) -> None:
        results = check(weak)
        assert failed(results) == [
            "replication privilege",
            "publication privilege",
            "table ownership",
        ]
        assert results["replication connection"].status == "skipped"
        assert results["table reading"].status == "warning"
        assert "public.a (owner postgres)" in results["table ownership"].detail
        with connect(database) as admin:
            # The remedies, as printed: each holds the statement to run.
            for name in ("replication privilege", "publication privilege", "table ownership"):
                statement = results[name].remedy.split(": ", 1)[1].split(";")[0]
                assert f'"{role}"' in statement
                admin.execute(statement.encode())
        try:
            assert failed(check(weak)) == []
        finally:
            # Membership in a superuser's role must not outlive the test.
            with connect(database) as admin:
                admin.execute(sql.SQL("REVOKE postgres FROM {}").format(sql.Identifier(role)))


@pytest.fixture
def pooler(pg_server: EmbeddedPostgres) -> Iterator[FakePooler]:
    pooler = FakePooler(pg_server.port)
    yield pooler
    pooler.close()


def test_a_pooler_in_the_way_is_recognised(
    conn: Connection, database: str, check: Check, pooler: FakePooler
) -> None:
    conn.execute("CREATE TABLE a (id int PRIMARY KEY)")
    url = database.replace(f":{conn.info.port}/", f":{pooler.port}/")
    results = check(url)
    assert failed(results) == ["connection"]
    assert "A connection pooler, such as PgBouncer" in results["connection"].detail
    assert "Postgres server itself" in results["connection"].remedy


def test_a_pooler_that_keeps_the_servers_numbers_is_recognised_too(
    conn: Connection, database: str, check: Check, pooler: FakePooler
) -> None:
    conn.execute("CREATE TABLE a (id int PRIMARY KEY)")
    pooler.invents_numbers = False
    results = check(database.replace(f":{conn.info.port}/", f":{pooler.port}/"))
    assert failed(results) == ["replication connection"]
    assert "a connection pooler stands in between" in results["replication connection"].detail


class TestLogFolder:
    def test_a_file_in_its_place(
        self, conn: Connection, database: str, check: Check, tmp_path: Path
    ) -> None:
        conn.execute("CREATE TABLE a (id int PRIMARY KEY)")
        (tmp_path / "deep").mkdir()
        (tmp_path / "deep" / "log").touch()
        results = check(database)
        assert failed(results) == ["change log"]

    def test_a_file_above_it(
        self, conn: Connection, database: str, check: Check, tmp_path: Path
    ) -> None:
        conn.execute("CREATE TABLE a (id int PRIMARY KEY)")
        (tmp_path / "deep").touch()
        results = check(database)
        assert failed(results) == ["change log"]
        assert str(tmp_path / "deep") in results["change log"].remedy
