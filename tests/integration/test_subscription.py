"""Publication, slot and lock on a real server."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from penstock.config import PipelineConfig
from penstock.model.errors import CheckFailed, SlotError, SourceError, SourceUnavailable
from penstock.model.lsn import format_lsn
from penstock.source.postgres.pipeline_lock import PipelineLock
from penstock.source.postgres.source_status import read_source_status
from penstock.source.postgres.subscription import subscription as subscription_module
from penstock.source.postgres.subscription.slot import judge_slot, slot_state
from penstock.source.postgres.subscription.subscription import (
    destroy_subscription,
    ensure_subscription,
    find_subscription,
)
from tests.application_session import connect

pytestmark = pytest.mark.every_postgres

Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def name() -> str:
    """Slots belong to the whole server, so two tests must not share a pipeline's name."""
    return f"t_{uuid.uuid4().hex[:12]}"


@pytest.fixture
def conn(database: str) -> Iterator[Connection]:
    with connect(database) as connection:
        yield connection


@pytest.fixture
def config(database: str, name: str, tmp_path: Path) -> PipelineConfig:
    return make_config(database, name, tmp_path)


def make_config(
    url: str, name: str, folder: Path, *include: str, insert_only: Sequence[str] = ()
) -> PipelineConfig:
    tables = {"include": list(include) or ["public.*"], "insert_only": list(insert_only)}
    return PipelineConfig.model_validate(
        {
            "name": name,
            "source": {"url": url, "tables": tables, "copy": False},
            "change_log": {"path": str(folder / "log")},
            "destination": {"type": "discard"},
        }
    )


def publications(conn: Connection) -> list[str]:
    return [row[0] for row in conn.execute("SELECT pubname::text FROM pg_publication ORDER BY 1")]


def slots(conn: Connection) -> list[str]:
    query = (
        "SELECT slot_name::text FROM pg_replication_slots"
        " WHERE database = current_database() ORDER BY 1"
    )
    return [row[0] for row in conn.execute(query)]


def comment(conn: Connection, publication: str) -> Any:
    query = "SELECT obj_description(oid, 'pg_publication') FROM pg_publication WHERE pubname = %s"
    row = conn.execute(query, [publication]).fetchone()
    assert row is not None
    return json.loads(row[0])


def published(conn: Connection, publication: str) -> list[tuple[str, str]]:
    query = (
        "SELECT schemaname::text, tablename::text FROM pg_publication_tables"
        " WHERE pubname = %s ORDER BY 1, 2"
    )
    return [(row[0], row[1]) for row in conn.execute(query, [publication])]


class TestEnsure:
    def test_both_are_made_once(self, conn: Connection, config: PipelineConfig) -> None:
        conn.execute("CREATE TABLE a (id int PRIMARY KEY)")
        made = ensure_subscription(conn, config)
        assert made.publication == f"penstock_{config.name}"
        assert made.slot == f"penstock_{config.name}_{made.uuid[:8]}"
        assert comment(conn, made.publication) == {
            "penstock": 1,
            "uuid": made.uuid,
            "inserts": True,
            "start": format_lsn(made.start_lsn),
        }
        state = slot_state(conn, made.slot)
        assert state is not None
        assert (state.plugin, state.confirmed_flush) == ("pgoutput", made.start_lsn)
        judge_slot(state, made.slot, expected_start=made.start_lsn)
        # A table that comes later changes nothing here: reconcile_publication adds it.
        conn.execute("CREATE TABLE b (id int PRIMARY KEY)")
        assert ensure_subscription(conn, config) == made
        assert find_subscription(conn, config.name) == made
        assert [str(table) for table in made.tables] == ["public.a"]
        assert slots(conn) == [made.slot]

    def test_takes_the_tables_that_match(
        self, conn: Connection, database: str, name: str, tmp_path: Path
    ) -> None:
        conn.execute(
            """
            CREATE SCHEMA "My Schema"; CREATE SCHEMA penstock;
            CREATE TABLE "My Schema"."My.Table" (id int PRIMARY KEY);
            CREATE TABLE penstock.state (id int PRIMARY KEY);
            CREATE TABLE "Größe ""x"" y" (id int PRIMARY KEY);
            CREATE TABLE parent (id int PRIMARY KEY);
            CREATE TABLE audit_child (PRIMARY KEY (id)) INHERITS (parent);
            CREATE TABLE events (id int, at date, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
            CREATE TABLE events_26 PARTITION OF events
                FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
            CREATE VIEW v AS SELECT 1 AS one;
            CREATE MATERIALIZED VIEW mv AS SELECT 1 AS one;
            CREATE UNLOGGED TABLE cache (id int PRIMARY KEY);
            CREATE TEMPORARY TABLE temporary (id int PRIMARY KEY);
            """
        )
        config = make_config(database, name, tmp_path, "*.*")
        source = config.source.model_copy(
            update={"tables": config.source.tables.model_copy(update={"exclude": ["audit_*"]})}
        )
        made = ensure_subscription(conn, config.model_copy(update={"source": source}))
        expected = [
            ("My Schema", "My.Table"),
            ("public", 'Größe "x" y'),
            ("public", "events"),
            ("public", "parent"),
        ]
        assert sorted(made.tables) == sorted(expected)
        # As Postgres sees it: the root instead of its partition, no child by inheritance.
        assert sorted(published(conn, made.publication)) == sorted(expected)

    def test_no_table_creates_nothing(self, conn: Connection, config: PipelineConfig) -> None:
        with pytest.raises(CheckFailed, match="No table of the source matches"):
            ensure_subscription(conn, config)
        assert (publications(conn), slots(conn)) == ([], [])

    def test_somebody_elses_publication_is_refused_and_left_alone(
        self, conn: Connection, config: PipelineConfig
    ) -> None:
        conn.execute("CREATE TABLE a (id int PRIMARY KEY)")
        theirs = f"penstock_{config.name}"
        conn.execute(sql.SQL("CREATE PUBLICATION {}").format(sql.Identifier(theirs)))
        for remark in (None, "my own", '{"penstock": 99, "uuid": "x"}', "[]"):
            statement = sql.SQL("COMMENT ON PUBLICATION {} IS {}")
            conn.execute(statement.format(sql.Identifier(theirs), sql.Literal(remark)))
            for act in (
                lambda: ensure_subscription(conn, config),
                lambda: find_subscription(conn, config.name),
                lambda: destroy_subscription(conn, config.name),
            ):
                with pytest.raises(SourceError, match="did not make") as caught:
                    act()
                assert "DROP PUBLICATION" in caught.value.remedy
        assert (publications(conn), slots(conn)) == ([theirs], [])

    @pytest.mark.parametrize("with_slot", [True, False])
    def test_a_set_up_that_died_half_way_is_made_again(
        self, conn: Connection, config: PipelineConfig, with_slot: bool
    ) -> None:
        conn.execute("CREATE TABLE a (id int PRIMARY KEY)")
        half = str(uuid.uuid4())
        publication, slot = f"penstock_{config.name}", f"penstock_{config.name}_{half[:8]}"
        conn.execute(sql.SQL("CREATE PUBLICATION {}").format(sql.Identifier(publication)))
        text = json.dumps({"penstock": 1, "uuid": half})
        statement = sql.SQL("COMMENT ON PUBLICATION {} IS {}")
        conn.execute(statement.format(sql.Identifier(publication), sql.Literal(text)))
        if with_slot:
            conn.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
        assert find_subscription(conn, config.name) is None
        made = ensure_subscription(conn, config)
        assert made.uuid != half
        assert slots(conn) == [made.slot]
        assert [str(table) for table in made.tables] == ["public.a"]

    def test_the_publication_is_there_before_the_slot(
        self,
        conn: Connection,
        database: str,
        config: PipelineConfig,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """What is written between a slot and its publication would be in neither."""
        conn.execute("CREATE TABLE a (id int PRIMARY KEY)")
        create_slot = subscription_module._create_slot
        seen: list[list[tuple[str, str]]] = []

        def create(*arguments: Any) -> int:
            with connect(database) as other:
                seen.append(published(other, f"penstock_{config.name}"))
            return create_slot(*arguments)

        monkeypatch.setattr(subscription_module, "_create_slot", create)
        ensure_subscription(conn, config)
        assert seen == [[("public", "a")]], "committed, with its tables"

    def test_a_failure_after_the_slot_removes_both(
        self, conn: Connection, config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        conn.execute("CREATE TABLE a (id int PRIMARY KEY)")
        seen: list[list[str]] = []

        def fail(*_args: Any) -> None:
            seen.append(slots(conn))
            raise KeyboardInterrupt

        monkeypatch.setattr(subscription_module, "record_start", fail)
        with pytest.raises(KeyboardInterrupt):
            ensure_subscription(conn, config)
        assert len(seen[0]) == 1
        assert (publications(conn), slots(conn)) == ([], [])

    def test_a_lost_connection_in_the_middle_leaves_nothing_behind(
        self, conn: Connection, config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        conn.execute("CREATE TABLE a (id int PRIMARY KEY)")
        real = subscription_module._create_slot

        def cut_then_fail(*args: Any) -> int:
            start = real(*args)
            with connect(config.source.url) as other:
                other.execute("SELECT pg_terminate_backend(%s, 30000)", [conn.info.backend_pid])
            return start

        monkeypatch.setattr(subscription_module, "_create_slot", cut_then_fail)
        with pytest.raises(SourceUnavailable, match="recording the start of slot"):
            ensure_subscription(conn, config)
        with connect(config.source.url) as other:
            assert (publications(other), slots(other)) == ([], [])

    def test_an_open_transaction_is_named_and_nothing_stays(
        self, conn: Connection, config: PipelineConfig
    ) -> None:
        conn.execute("CREATE TABLE a (id int PRIMARY KEY)")
        with connect(config.source.url, autocommit=False, application_name="sleepy") as writer:
            writer.execute("INSERT INTO a VALUES (1)")
            with pytest.raises(SlotError, match="waits for transactions") as caught:
                ensure_subscription(conn, config, slot_wait=0.5)
            assert f"pid {writer.info.backend_pid} " in caught.value.message
            assert "application sleepy" in caught.value.message
            writer.rollback()
        assert (publications(conn), slots(conn)) == ([], [])
        assert ensure_subscription(conn, config).tables

    def test_two_at_once_make_one(self, conn: Connection, config: PipelineConfig) -> None:
        conn.execute("CREATE TABLE a (id int PRIMARY KEY)")
        with (
            connect(config.source.url) as other,
            PipelineLock(other, config.name, what="set-up"),
            pytest.raises(SourceError, match="its set-up lock is held by Postgres backend"),
        ):
            ensure_subscription(conn, config)
        assert publications(conn) == []


class TestInsertOnly:
    @pytest.fixture
    def config(self, conn: Connection, database: str, name: str, tmp_path: Path) -> PipelineConfig:
        conn.execute(
            "CREATE TABLE orders (id int PRIMARY KEY); CREATE TABLE audit_log (note text);"
            "CREATE TABLE events (at date, note text) PARTITION BY RANGE (at);"
            "CREATE TABLE events_26 PARTITION OF events DEFAULT"
        )
        return make_config(database, name, tmp_path, insert_only=["audit_*", "events"])

    def test_two_publications_are_made_found_and_removed(
        self, conn: Connection, config: PipelineConfig
    ) -> None:
        made = ensure_subscription(conn, config)
        first, second = f"penstock_{config.name}", f"penstock_{config.name}_inserts"
        assert (made.publication, made.publications) == (first, (first, second))
        assert [str(table) for table in made.insert_only] == ["public.audit_log", "public.events"]
        assert sorted(map(str, made.tables)) == sorted(
            ["public.audit_log", "public.events", "public.orders"]
        )
        assert published(conn, first) == [("public", "orders")]
        assert published(conn, second) == [("public", "audit_log"), ("public", "events")]
        query = (
            "SELECT pubname::text, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot"
            "  FROM pg_publication ORDER BY 1"
        )
        assert conn.execute(query).fetchall() == [
            (first, True, True, True, True, True),
            (second, True, False, False, True, True),
        ]
        assert comment(conn, second)["uuid"] == comment(conn, first)["uuid"] == made.uuid
        assert ensure_subscription(conn, config) == made
        assert find_subscription(conn, config.name) == made
        assert read_source_status(conn, config.name).to_json()["insert_only"] == [
            "public.audit_log",
            "public.events",
        ]
        assert destroy_subscription(conn, config.name) == [
            f"replication slot {made.slot}",
            f"publication {first}",
            f"publication {second}",
        ]
        assert (publications(conn), slots(conn)) == ([], [])

    def test_a_failure_removes_both(
        self, conn: Connection, config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_args: Any) -> int:
            assert len(publications(conn)) == 2
            raise SlotError("no")

        monkeypatch.setattr(subscription_module, "_create_slot", fail)
        with pytest.raises(SlotError):
            ensure_subscription(conn, config)
        assert (publications(conn), slots(conn)) == ([], [])

    def test_a_second_one_that_is_gone_is_said(
        self, conn: Connection, config: PipelineConfig
    ) -> None:
        made = ensure_subscription(conn, config)
        second = sql.Identifier(made.publications[1])
        for statement in ("DROP PUBLICATION {}", "CREATE PUBLICATION {}"):
            conn.execute(sql.SQL(statement).format(second))
            with pytest.raises(SourceError, match="made together with") as caught:
                ensure_subscription(conn, config)
            assert "penstock destroy" in caught.value.remedy
        # The one that somebody else made meanwhile stays.
        destroy_subscription(conn, config.name)
        assert (publications(conn), slots(conn)) == ([made.publications[1]], [])

    def test_the_names_of_two_pipelines_may_meet(
        self, conn: Connection, config: PipelineConfig, database: str, tmp_path: Path
    ) -> None:
        """Pipeline x with insert_only and a pipeline x_inserts want one name: neither takes it."""
        other = make_config(database, f"{config.name}_inserts", tmp_path, "orders")
        made = ensure_subscription(conn, config)
        for act in (ensure_subscription, lambda c, o: destroy_subscription(c, o.name)):
            with pytest.raises(SourceError, match="did not make for pipeline"):
                act(conn, other)
        assert find_subscription(conn, config.name) == made
        destroy_subscription(conn, config.name)
        theirs = ensure_subscription(conn, other)
        with pytest.raises(SourceError, match="is not of pipeline") as caught:
            ensure_subscription(conn, config)
        assert theirs.publication in caught.value.message
        assert destroy_subscription(conn, config.name) == []
        assert publications(conn) == list(theirs.publications)
        assert slots(conn) == [theirs.slot]


class TestDestroy:
    def test_removes_all_of_it_twice(self, conn: Connection, config: PipelineConfig) -> None:
        conn.execute("CREATE TABLE a (id int PRIMARY KEY)")
        made = ensure_subscription(conn, config)
        assert destroy_subscription(conn, config.name) == [
            f"replication slot {made.slot}",
            *(f"publication {publication}" for publication in made.publications),
        ]
        assert (publications(conn), slots(conn)) == ([], [])
        assert destroy_subscription(conn, config.name) == []

    def test_also_a_slot_whose_publication_is_gone(
        self, conn: Connection, config: PipelineConfig
    ) -> None:
        conn.execute("CREATE TABLE a (id int PRIMARY KEY)")
        made = ensure_subscription(conn, config)
        for publication in made.publications:
            conn.execute(sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(publication)))
        foreign = f"penstock_{config.name}_more_0123abcd"
        conn.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [foreign])
        assert destroy_subscription(conn, config.name) == [f"replication slot {made.slot}"]
        assert slots(conn) == [foreign]

    def test_refuses_while_somebody_reads(self, conn: Connection, config: PipelineConfig) -> None:
        conn.execute("CREATE TABLE a (id int PRIMARY KEY)")
        made = ensure_subscription(conn, config)
        # closing, not with: leaving a psycopg connection's own block would send a COMMIT.
        with closing(connect(config.source.url, replication=True)) as reader:
            reader.pgconn.send_query(
                f"START_REPLICATION SLOT {made.slot} LOGICAL 0/0"
                f" (proto_version '1', publication_names '{made.publication}')".encode()
            )
            # COPY_BOTH: from here on the slot is ours.
            result = reader.pgconn.get_result()
            assert result is not None
            assert result.status == psycopg.pq.ExecStatus.COPY_BOTH
            assert read_source_status(conn, config.name).state == "streaming"
            with pytest.raises(SlotError, match=f"backend {reader.info.backend_pid}"):
                destroy_subscription(conn, config.name)
        assert publications(conn) == list(made.publications)


class TestStatus:
    def test_bytes_behind_grow_with_the_source(
        self, conn: Connection, config: PipelineConfig
    ) -> None:
        assert read_source_status(conn, config.name).state == "not initialised"
        conn.execute("CREATE TABLE a (id int PRIMARY KEY)")
        made = ensure_subscription(conn, config)
        before = read_source_status(conn, config.name)
        conn.execute("INSERT INTO a SELECT generate_series(1, 1000)")
        after = read_source_status(conn, config.name)
        assert before.state == after.state == "stopped"
        assert before.lag_bytes is not None
        assert after.lag_bytes is not None
        assert after.lag_bytes > before.lag_bytes + 1000
        conn.execute("SELECT pg_drop_replication_slot(%s)", [made.slot])
        gone = read_source_status(conn, config.name)
        assert (gone.state, gone.is_broken, gone.lag_bytes) == ("slot missing", True, None)

    def test_a_slot_moved_by_somebody_else_is_judged(
        self, conn: Connection, config: PipelineConfig
    ) -> None:
        conn.execute("CREATE TABLE a (id int PRIMARY KEY)")
        made = ensure_subscription(conn, config)
        conn.execute("INSERT INTO a VALUES (1)")
        conn.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", [made.slot])
        with pytest.raises(SlotError, match="are gone for us"):
            judge_slot(slot_state(conn, made.slot), made.slot, expected_start=made.start_lsn)
