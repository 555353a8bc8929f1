"""The Postgres store where it differs from a store in memory: connections, versions, rights.

What all stores promise is in tests/contract/test_stores.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

import psycopg
import pytest
from psycopg import sql

from penstock.config import ConnectionUrl
from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.error_policy import Action, decide
from penstock.model.errors import StoreError, StoreUnavailable
from penstock.model.table_definition import TableDefinition
from penstock.model.table_state import Errored, Init, Ready
from penstock.source.copy_plan import Chunk, CopyPlan
from penstock.store import PostgresStore
from penstock.store.migrations import MIGRATIONS, Migration, migrate
from tests.fix_pipeline import wait_until
from tests.fix_postgres import FreshServer
from tests.physical_copies import demote, promote

TABLE = 16_385
ERROR = Errored("value too long", "widen it")


@pytest.fixture
def postgres(database: str) -> Iterator[PostgresStore]:
    with PostgresStore(ConnectionUrl(database), "shop") as store:
        store.open()
        yield store


def execute(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as conn:
        cursor = conn.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def end_connections_of_the_store(url: str) -> None:
    ended = execute(
        url,
        "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity"
        " WHERE application_name = 'penstock shop store' AND datname = current_database()",
    )
    assert ended == [(True,)]


def test_a_stamp_tells_of_every_change(postgres: PostgresStore, database: str) -> None:
    plan = CopyPlan(TABLE, ("id",), None, (Chunk(TABLE, 0, TABLE, "public", "t", 1, 0, 1, 8),))
    changes = (
        lambda: postgres.update_table_state(TABLE, Init()),
        lambda: postgres.update_table_state(TABLE, Ready()),
        lambda: postgres.update_table_state(TABLE, ERROR),
        lambda: postgres.update_table_state(TABLE, Errored("another", "widen it")),
        lambda: postgres.retry_table(TABLE),
        lambda: postgres.rollback_table_state(TABLE),
        lambda: postgres.store_table_schema(TableDefinition(TABLE, "public", "t", "d", ()), 1),
        lambda: postgres.store_table_schema(TableDefinition(TABLE, "public", "u", "d", ()), 1),
        lambda: postgres.set_wish(TABLE, "paused"),
        lambda: postgres.set_wish(TABLE, "cancelled"),
        lambda: postgres.set_wish(TABLE, None),
        lambda: postgres.set_notes(TABLE, ["no index"]),
        lambda: postgres.start_copy(TABLE, plan, 1),
        lambda: postgres.start_copy(TABLE, plan, 1),
    )
    seen = [postgres.table_stamp()]
    for change in changes:
        change()
        seen += [postgres.table_stamp()]
        assert postgres.table_stamp() == seen[-1]
    # The last state is the first one again but for its time, and so is what is wanted.
    assert len(set(seen)) == len(seen) - 1
    with PostgresStore(ConnectionUrl(database), "other") as other:
        assert other.table_stamp() == seen[0]


def test_a_crash_in_the_middle_leaves_the_state_before(
    postgres: PostgresStore, database: str
) -> None:
    for state in (Init(), Ready(), ERROR):
        postgres.update_table_state(TABLE, state)
    # The connection goes between the two statements of a rollback.
    with patch(
        "penstock.store.postgres._SINCE_NOW",
        "SELECT pg_terminate_backend(pg_backend_pid()), %s, %s, %s",
    ):
        with pytest.raises(StoreUnavailable, match=r"taking back the state .* did not answer"):
            postgres.rollback_table_state(TABLE)
        assert postgres.get_table_state(TABLE) == ERROR
    postgres.load_table_states()
    assert postgres.get_table_state(TABLE) == ERROR
    assert postgres.rollback_table_state(TABLE) == Ready()


def test_an_idle_connection_that_was_ended_is_replaced(
    postgres: PostgresStore, database: str
) -> None:
    end_connections_of_the_store(database)
    postgres.update_table_state(TABLE, Init())
    end_connections_of_the_store(database)
    assert postgres.load_table_states() == 1


def test_a_server_that_is_away_is_worth_another_try(fresh_server: FreshServer) -> None:
    server = fresh_server()
    url = ConnectionUrl(server.create_database("store"))
    with PostgresStore(url, "shop", url_key="source.url") as store:
        store.open()
        store.update_table_state(TABLE, Init())
        server.stop("immediate")
        with pytest.raises(StoreUnavailable, match="nothing listens there") as caught:
            store.update_table_state(TABLE, Ready())
        assert "source.url" in caught.value.remedy
        assert decide(caught.value) is Action.RETRY
        assert store.get_table_state(TABLE) == Init()
        server.start()
        store.update_table_state(TABLE, Ready())
        assert store.get_table_state(TABLE) == Ready()
        # It comes back as a standby, and is promoted later.
        demote(server)
        with pytest.raises(StoreUnavailable, match="read-only transaction") as caught:
            store.update_table_state(TABLE, Init())
        assert "a primary server as source.url" in caught.value.remedy
        promote(server)
        store.update_table_state(TABLE, Init())


def test_two_writers_take_turns(postgres: PostgresStore, database: str) -> None:
    """Each sees what the other did, also what came while it waited."""
    postgres.update_table_state(TABLE, Init())

    def go_on() -> None:
        with PostgresStore(ConnectionUrl(database), "shop") as store:
            store.open()
            for _ in range(30):
                store.update_table_state(TABLE, Ready())
                store.update_table_state(TABLE, Init())

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(go_on) for _ in range(2)]:
            future.result()
    (row,) = execute(database, "SELECT count(*), max(step) FROM penstock.table_state")
    assert row[0] == row[1]  # no step is missing


class TestMigrations:
    def test_a_store_that_is_up_to_date_is_only_read(
        self, postgres: PostgresStore, database: str
    ) -> None:
        with psycopg.connect(database, autocommit=True) as conn:
            conn.execute("SET default_transaction_read_only = on")
            assert migrate(conn) == []

    def test_many_at_once(self, database: str) -> None:
        together = threading.Barrier(4)

        def start() -> list[int]:
            with psycopg.connect(database, autocommit=True) as conn:
                together.wait(60)
                return migrate(conn)

        with ThreadPoolExecutor(4) as pool:
            applied = [future.result() for future in [pool.submit(start) for _ in range(4)]]
        assert sorted(applied) == [[], [], [], [migration.number for migration in MIGRATIONS]]

    def test_only_the_new_ones(self, postgres: PostgresStore, database: str) -> None:
        more = (*MIGRATIONS, Migration(90, "more", "CREATE TABLE penstock.more ()"))
        with psycopg.connect(database, autocommit=True) as conn:
            assert migrate(conn, more) == [90]
            assert migrate(conn, more) == []

    def test_a_store_of_the_first_version_is_brought_up_to_date(self, database: str) -> None:
        with psycopg.connect(database, autocommit=True) as conn:
            assert migrate(conn, MIGRATIONS[:1]) == [1]
            conn.execute(
                "INSERT INTO penstock.table_state (pipeline, table_oid, step, state)"
                """ VALUES ('shop', 16385, 1, '{"phase": "init"}')"""
            )
        with PostgresStore(ConnectionUrl(database), "shop") as store:
            store.open()
            assert store.get_table_states() == {TABLE: Init()}
            store.set_wish(TABLE, "paused")
            assert store.load_wishes() == {TABLE: "paused"}
            assert store.forget_pipeline()

    def test_all_or_none(self, database: str) -> None:
        broken = (*MIGRATIONS, Migration(90, "broken", "CREATE TABLE no_such_schema.t ()"))
        with psycopg.connect(database, autocommit=True) as conn:
            with pytest.raises(psycopg.errors.InvalidSchemaName):
                migrate(conn, broken)
            found = conn.execute("SELECT FROM pg_namespace WHERE nspname = 'penstock'").fetchall()
        assert found == []

    def test_a_newer_store_is_refused(self, postgres: PostgresStore, database: str) -> None:
        execute(database, "INSERT INTO penstock.store_migrations VALUES (90, 'later', 'x')")
        with (
            PostgresStore(ConnectionUrl(database), "shop") as store,
            pytest.raises(StoreError, match="newer Penstock: it has version 90") as caught,
        ):
            store.open()
        assert decide(caught.value) is Action.STOP
        with pytest.raises(StoreError, match="newer Penstock"):
            postgres.forget_pipeline()

    def test_an_altered_one_is_refused(self, postgres: PostgresStore, database: str) -> None:
        execute(database, "UPDATE penstock.store_migrations SET checksum = 'x' WHERE number = 1")
        with (
            PostgresStore(ConnectionUrl(database), "shop") as store,
            pytest.raises(StoreError, match=r"another version 1 .* checksums differ"),
        ):
            store.open()


class TestForgetting:
    def test_the_last_pipeline_takes_the_schema_along(
        self, postgres: PostgresStore, database: str
    ) -> None:
        assert postgres.exists()
        postgres.update_table_state(TABLE, Init())
        assert postgres.forget_pipeline()
        assert execute(database, "SELECT FROM pg_namespace WHERE nspname = 'penstock'") == []
        assert not postgres.exists()
        assert not postgres.forget_pipeline()

    def test_but_not_what_others_keep_there(self, postgres: PostgresStore, database: str) -> None:
        execute(database, "CREATE TABLE penstock.progress ()")
        postgres.forget_pipeline()
        query = "SELECT tablename::text FROM pg_tables WHERE schemaname = 'penstock'"
        assert execute(database, query) == [("progress",)]


class TestRights:
    @pytest.fixture
    def role(self, pg_server: EmbeddedPostgres) -> Iterator[str]:
        with psycopg.connect(pg_server.url(), autocommit=True) as admin:
            admin.execute("CREATE ROLE store_role LOGIN PASSWORD 'hunter2'")
            yield "store_role"
            admin.execute("DROP ROLE store_role")

    @pytest.fixture
    def url(self, role: str, database: str) -> str:
        """The role's URL. It asks for ``role`` first: the database has to go before its owner."""
        return database.replace("postgres@", f"{role}:hunter2@", 1)

    def test_without_any(self, url: str) -> None:
        with (
            PostgresStore(ConnectionUrl(url), "shop") as store,
            pytest.raises(StoreError, match="permission denied for database") as caught,
        ):
            store.open()
        assert "CREATE SCHEMA penstock AUTHORIZATION" in caught.value.remedy
        assert "GRANT CREATE ON DATABASE" in caught.value.remedy
        assert "hunter2" not in caught.value.message + caught.value.remedy

    def test_a_schema_of_its_own_will_do(self, url: str, role: str, database: str) -> None:
        execute(database, f"CREATE SCHEMA penstock AUTHORIZATION {role}")
        with PostgresStore(ConnectionUrl(url), "shop") as store:
            store.open()
            store.update_table_state(TABLE, Init())
            assert store.forget_pipeline()
            # The role could not make the schema again, so it stays.
            assert not store.exists()
            store.open()

    def test_the_database_will_do(self, url: str, role: str, database: str) -> None:
        with psycopg.connect(database, autocommit=True) as admin:
            name = sql.Identifier(admin.info.dbname)
            admin.execute(
                sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(name, sql.Identifier(role))
            )
        with PostgresStore(ConnectionUrl(url), "shop") as store:
            store.open()
            store.update_table_state(TABLE, Init())
            assert store.forget_pipeline()
        assert execute(database, "SELECT FROM pg_namespace WHERE nspname = 'penstock'") == []


def test_a_store_that_another_role_could_write_is_not_believed(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("CREATE ROLE squatter; CREATE ROLE keeper")
        try:
            conn.execute("CREATE SCHEMA penstock AUTHORIZATION squatter")
            conn.execute("GRANT ALL ON SCHEMA penstock TO keeper; SET ROLE keeper")
            with pytest.raises(StoreError, match="belongs to squatter") as found:
                migrate(conn)
            assert "ALTER SCHEMA penstock OWNER TO" in (found.value.remedy or "")
            conn.execute("RESET ROLE; ALTER SCHEMA penstock OWNER TO keeper; SET ROLE keeper")
            assert migrate(conn) == [migration.number for migration in MIGRATIONS]
            conn.execute("RESET ROLE; ALTER TABLE penstock.table_schema OWNER TO squatter")
            conn.execute("SET ROLE keeper")
            with pytest.raises(StoreError, match="belongs to squatter"):
                migrate(conn)
        finally:
            conn.execute("RESET ROLE; DROP OWNED BY squatter, keeper CASCADE")
            conn.execute("DROP ROLE squatter; DROP ROLE keeper")


def test_a_store_that_default_privileges_opened_is_not_believed(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("CREATE ROLE keeper; CREATE ROLE reporter; CREATE SCHEMA penstock")
        try:
            conn.execute("ALTER SCHEMA penstock OWNER TO keeper; SET ROLE keeper")
            conn.execute("ALTER DEFAULT PRIVILEGES GRANT INSERT, UPDATE ON TABLES TO reporter")
            conn.execute("ALTER DEFAULT PRIVILEGES GRANT TRIGGER ON TABLES TO PUBLIC")
            # What it makes itself, it closes.
            assert migrate(conn) == [migration.number for migration in MIGRATIONS]
            assert migrate(conn) == []
            conn.execute("GRANT SELECT ON penstock.table_state TO reporter")
            assert migrate(conn) == []
            for role in ("reporter", "PUBLIC"):
                conn.execute(f"GRANT UPDATE ON penstock.table_state TO {role}".encode())
                with pytest.raises(StoreError, match=f"may be written by {role}") as found:
                    migrate(conn)
                # The remedy, as printed.
                statement = (found.value.remedy or "").split(": ", 1)[1].split(";")[0]
                conn.execute(statement.encode())
                assert migrate(conn) == []
        finally:
            conn.execute("RESET ROLE; DROP OWNED BY keeper, reporter CASCADE")
            conn.execute("DROP ROLE keeper; DROP ROLE reporter")


def test_starting_again_waits_for_a_chunk_that_is_being_recorded(
    postgres: PostgresStore, database: str
) -> None:
    """So a chunk of the copy before never counts as one of the next."""
    plan = CopyPlan(TABLE, ("id",), None, (Chunk(TABLE, 0, TABLE, "s", "t", 1, 0, None, 9),))
    postgres.start_copy(TABLE, plan, 100)
    with (
        PostgresStore(ConnectionUrl(database), "shop") as second,
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(database) as slow,
    ):
        second.open()
        # What chunks_done does first, by a session that takes its time.
        slow.execute("SELECT FROM penstock.table_copy FOR SHARE")
        starting = pool.submit(second.start_copy, TABLE, plan, 200)
        wait_until(lambda: _waits_for_a_lock(database), "the second one waits")
        slow.execute(
            "INSERT INTO penstock.copy_chunk (pipeline, table_oid, number, rows, bytes)"
            " VALUES ('shop', %s, 0, 1, 1)",
            [TABLE],
        )
        slow.commit()
        starting.result(60)
    postgres.load_copies()
    assert postgres.get_copies()[TABLE].done == {}
    assert postgres.get_copies()[TABLE].first_lsn == 200


def _waits_for_a_lock(url: str) -> bool:
    rows = execute(
        url,
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'penstock shop store'"
        " AND datname = current_database() AND wait_event_type = 'Lock'",
    )
    return bool(rows)


def test_a_store_that_was_dropped_meanwhile(postgres: PostgresStore, database: str) -> None:
    execute(database, "DROP SCHEMA penstock CASCADE")
    with pytest.raises(StoreError, match=r"refused: relation .* does not exist") as caught:
        postgres.update_table_state(TABLE, Init())
    assert "penstock run" in caught.value.remedy
