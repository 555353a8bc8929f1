"""Publications that follow the patterns and the rules, on a real server."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg
import pytest
from psycopg import sql

from penstock.config import PipelineConfig
from penstock.config.table_patterns import Rule
from penstock.model.errors import SourceError
from penstock.source.contract import Reconciled, Subscription
from penstock.source.postgres.pipeline_lock import PipelineLock
from penstock.source.postgres.subscription import reconcile as reconcile_module
from penstock.source.postgres.subscription.reconcile import reconcile_publication
from penstock.source.postgres.subscription.subscription import (
    destroy_subscription,
    ensure_subscription,
    find_subscription,
)
from tests.application_session import connect

pytestmark = pytest.mark.every_postgres

Connection = psycopg.Connection[tuple[Any, ...]]


GENERATED = "its rows cannot be identified (its replica identity has a generated column)"
CHANGES = "INSERT INTO {0} VALUES (1); UPDATE {0} SET a = 2; DELETE FROM {0}"
"""What an application does with a table."""


class Followed:
    """A pipeline with a table a, whose patterns can be changed."""

    def __init__(self, url: str, conn: Connection, folder: Path) -> None:
        self.conn = conn
        self.url = url
        self.folder = folder
        self.name = f"t_{uuid.uuid4().hex[:12]}"
        self.configure()

    def configure(
        self,
        *,
        include: Sequence[str] = ("public.*",),
        exclude: Sequence[str] = (),
        insert_only: Sequence[str] = (),
        copy: bool = True,
    ) -> None:
        tables = {"include": include, "exclude": exclude, "insert_only": insert_only}
        self.config = PipelineConfig.model_validate(
            {
                "name": self.name,
                "source": {
                    "url": self.url,
                    "tables": {key: list(value) for key, value in tables.items()},
                    "copy": copy,
                },
                "change_log": {"path": str(self.folder / "log")},
                "destination": {"type": "discard"},
            }
        )

    def execute(self, statements: str) -> None:
        self.conn.execute(statements.encode())

    def reconcile(self, **rules: Rule) -> Reconciled:
        """Rules by the names of tables in public."""
        named = {("public", name): rule for name, rule in rules.items()}
        return reconcile_publication(self.conn, self.config, named)

    @property
    def subscription(self) -> Subscription:
        found = find_subscription(self.conn, self.name)
        assert found is not None
        return found

    @property
    def whole(self) -> list[str]:
        """Tables of the first publication."""
        inserts = set(self.subscription.insert_only)
        return [table.name for table in self.subscription.tables if table not in inserts]

    @property
    def inserts(self) -> list[str]:
        return [table.name for table in self.subscription.insert_only]

    def oid(self, name: str) -> int:
        row = self.conn.execute("SELECT %s::regclass::oid::bigint", [name]).fetchone()
        assert row is not None
        return int(row[0])


@pytest.fixture
def followed(database: str, tmp_path: Path) -> Iterator[Followed]:
    with connect(database) as conn:
        conn.execute("CREATE TABLE a (id int PRIMARY KEY)")
        followed = Followed(database, conn, tmp_path)
        ensure_subscription(conn, followed.config)
        yield followed


def names(tables: Any) -> list[str]:
    return sorted(table.name for table in tables.values())


class TestComing:
    def test_new_tables_come_by_one_statement(self, followed: Followed) -> None:
        followed.execute(
            'CREATE TABLE b (id int PRIMARY KEY); CREATE TABLE "C ""c" (id int PRIMARY KEY);'
            "CREATE SCHEMA other; CREATE TABLE other.d (id int PRIMARY KEY)"
        )
        done = followed.reconcile()
        assert names(done.added) == ['C "c', "b"]
        assert done.published == {
            followed.oid("a"): ("public", "a"),
            followed.oid("b"): ("public", "b"),
            followed.oid('"C ""c"'): ("public", 'C "c'),
        }
        assert (done.removed, done.moved, done.skipped) == ({}, {}, {})
        assert followed.whole == ['C "c', "a", "b"]
        # They came by one row version of the catalogue each, all in one transaction.
        xids = followed.conn.execute(
            "SELECT count(DISTINCT xmin::text) FROM pg_publication_rel WHERE prrelid <> %s",
            [followed.oid("a")],
        ).fetchone()
        assert xids == (1,)

    def test_nothing_to_do_is_two_queries_and_no_lock(self, followed: Followed) -> None:
        before = followed.reconcile()
        with (
            connect(followed.url) as other,
            PipelineLock(other, followed.name, what="set-up"),
            patch.object(followed.conn, "execute", wraps=followed.conn.execute) as execute,
        ):
            assert followed.reconcile() == before
        assert not before.has_changed
        assert execute.call_count == 1  # the other one has a cursor of its own

    def test_a_child_by_inheritance_is_not_taken_along(self, followed: Followed) -> None:
        followed.configure(exclude=["child"])
        followed.execute(
            "CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child () INHERITS (parent)"
        )
        assert names(followed.reconcile().added) == ["parent"]
        assert followed.whole == ["a", "parent"]
        followed.execute("ALTER TABLE child ADD PRIMARY KEY (id)")
        followed.configure()
        followed.reconcile()
        followed.configure(exclude=["parent"])
        assert names(followed.reconcile().removed) == ["parent"]
        assert followed.whole == ["a", "child"]

    def test_rules_win_over_patterns(self, followed: Followed) -> None:
        followed.configure(include=["a"])
        followed.execute("CREATE TABLE b (id int PRIMARY KEY)")
        assert not followed.reconcile().has_changed
        done = followed.reconcile(b="add", a="remove")
        assert (names(done.added), names(done.removed)) == (["b"], ["a"])
        assert followed.whole == ["b"]
        done = followed.reconcile()
        assert (names(done.added), names(done.removed)) == (["a"], ["b"])

    def test_a_rule_counts_at_the_set_up_too(self, followed: Followed) -> None:
        destroy_subscription(followed.conn, followed.name)
        followed.configure(include=["nothing"])
        made = ensure_subscription(followed.conn, followed.config, rules={("public", "a"): "add"})
        assert [str(table) for table in made.tables] == ["public.a"]


class TestLeaving:
    def test_what_matches_no_longer(self, followed: Followed) -> None:
        followed.execute("CREATE TABLE b (id int PRIMARY KEY)")
        followed.reconcile()
        oid = followed.oid("a")
        followed.configure(exclude=["a"])
        done = followed.reconcile()
        assert done.removed == {oid: ("public", "a")}
        assert (followed.whole, done.gone([oid, followed.oid("b")])) == (["b"], {oid})

    def test_all_of_them(self, followed: Followed) -> None:
        followed.configure(include=["nothing"])
        assert names(followed.reconcile().removed) == ["a"]
        assert followed.whole == []
        followed.configure()
        assert names(followed.reconcile().added) == ["a"]

    def test_a_dropped_table_is_noticed(self, followed: Followed) -> None:
        oid = followed.oid("a")
        followed.execute("DROP TABLE a; CREATE TABLE a (id int PRIMARY KEY)")
        done = followed.reconcile()
        assert done.gone([oid]) == {oid}
        assert done.added == done.published == {followed.oid("a"): ("public", "a")}
        assert done.removed == {}

    def test_a_renamed_table_stays(self, followed: Followed) -> None:
        oid = followed.oid("a")
        followed.execute("ALTER TABLE a RENAME TO z")
        done = followed.reconcile()
        assert not done.has_changed
        assert done.published == {oid: ("public", "z")}
        followed.execute("CREATE SCHEMA other; ALTER TABLE z SET SCHEMA other")
        assert followed.reconcile().removed == {oid: ("other", "z")}


class TestLeftOut:
    def test_the_applications_updates_go_on(self, followed: Followed) -> None:
        followed.execute(
            "CREATE TABLE no_key (id int); CREATE TABLE deferred (id int PRIMARY KEY DEFERRABLE);"
            "CREATE TABLE good (id int PRIMARY KEY);"
            "INSERT INTO no_key VALUES (1); INSERT INTO deferred VALUES (1)"
        )
        done = followed.reconcile()
        assert names(done.added) == ["good"]
        assert {table.name: why for table, why in done.skipped.items()} == {
            "no_key": "its rows cannot be identified (no primary key)",
            "deferred": "its rows cannot be identified (its primary key is deferrable)",
        }
        followed.execute("UPDATE no_key SET id = 2; DELETE FROM deferred")
        followed.execute("ALTER TABLE no_key ADD PRIMARY KEY (id)")
        assert names(followed.reconcile().added) == ["no_key"]

    def test_what_is_published_stays_whatever_it_lost(self, followed: Followed) -> None:
        followed.execute("ALTER TABLE a DROP CONSTRAINT a_pkey")
        done = followed.reconcile()
        assert not done.has_changed
        assert (names(done.published), done.skipped) == (["a"], {})

    def test_what_cannot_be_published(self, followed: Followed) -> None:
        followed.configure(include=["public.*", "asked_for"])
        followed.execute(
            "CREATE UNLOGGED TABLE cache (id int PRIMARY KEY); CREATE VIEW v AS SELECT 1 AS one;"
            "CREATE VIEW asked_for AS SELECT 1 AS one"
        )
        done = followed.reconcile()
        assert {table.name: why for table, why in done.skipped.items()} == {
            "asked_for": "Postgres cannot publish it (a view)",
            "cache": "Postgres cannot publish it (unlogged)",
        }

    def test_a_partition_without_identity_keeps_its_root_out(self, followed: Followed) -> None:
        followed.execute(
            "CREATE TABLE events (id int, at int) PARTITION BY LIST (at);"
            "CREATE TABLE events_1 PARTITION OF events FOR VALUES IN (1);"
            "ALTER TABLE events REPLICA IDENTITY FULL"
        )
        done = followed.reconcile()
        assert done.skipped == {
            ("public", "events"): "its partition public.events_1: its rows cannot be identified "
            "(no primary key)"
        }
        followed.execute("ALTER TABLE events_1 REPLICA IDENTITY FULL")
        assert names(followed.reconcile().added) == ["events"]

    def test_a_partition_sends_the_identity_that_its_root_names(self, followed: Followed) -> None:
        followed.execute(
            "CREATE TABLE events (id int, at int, PRIMARY KEY (id, at)) PARTITION BY LIST (at);"
            "CREATE TABLE events_1 PARTITION OF events FOR VALUES IN (1);"
            "ALTER TABLE events REPLICA IDENTITY FULL"
        )
        assert followed.reconcile().skipped == {
            ("public", "events"): "its partition public.events_1: its rows cannot be identified "
            "(not FULL, as its root is)"
        }
        followed.execute("ALTER TABLE events_1 REPLICA IDENTITY FULL")
        assert names(followed.reconcile().added) == ["events"]

    def test_a_key_that_is_generated(self, followed: Followed) -> None:
        followed.execute(
            "CREATE TABLE twice (a int, b int GENERATED ALWAYS AS (a * 2) STORED PRIMARY KEY)"
        )
        assert followed.reconcile().skipped == {("public", "twice"): GENERATED}
        followed.execute(CHANGES.format("twice"))

    @pytest.mark.parametrize("kind", ["STORED", "VIRTUAL"])
    def test_full_with_a_generated_column(self, followed: Followed, kind: str) -> None:
        """Published on 18, every UPDATE and DELETE would fail."""
        is_18 = followed.conn.info.server_version >= 180000
        if kind == "VIRTUAL" and not is_18:
            pytest.skip("virtual generated columns came with Postgres 18")
        followed.execute(
            f"CREATE TABLE twice (a int PRIMARY KEY, b int GENERATED ALWAYS AS (a * 2) {kind});"
            "ALTER TABLE twice REPLICA IDENTITY FULL"
        )
        done = followed.reconcile()
        assert done.skipped == ({("public", "twice"): GENERATED} if is_18 else {})
        assert names(done.added) == ([] if is_18 else ["twice"])
        followed.execute(CHANGES.format("twice"))

    def test_a_table_leaves_when_its_identity_becomes_generated(self, followed: Followed) -> None:
        followed.execute("CREATE TABLE twice (a int PRIMARY KEY)")
        assert names(followed.reconcile().added) == ["twice"]
        oid = next(iter(o for o, t in followed.reconcile().published.items() if t.name == "twice"))
        followed.execute(
            "ALTER TABLE twice ADD b int GENERATED ALWAYS AS (a * 2) STORED;"
            "ALTER TABLE twice DROP CONSTRAINT twice_pkey, ADD PRIMARY KEY (b)"
        )
        done = followed.reconcile()
        assert (names(done.removed), done.withdrawn) == (["twice"], {oid: GENERATED})
        followed.execute(CHANGES.format("twice"))
        done = followed.reconcile()
        assert (done.has_changed, done.withdrawn) == (False, {oid: GENERATED})
        followed.execute("ALTER TABLE twice DROP CONSTRAINT twice_pkey, ADD PRIMARY KEY (a)")
        done = followed.reconcile()
        assert (names(done.added), done.withdrawn) == (["twice"], {})

    def test_a_partition_stays_until_its_root_can_take_over(self, followed: Followed) -> None:
        followed.execute(
            "CREATE TABLE events (id int, at int) PARTITION BY LIST (at);"
            "CREATE TABLE events_1 PARTITION OF events FOR VALUES IN (1);"
            "ALTER TABLE events_1 REPLICA IDENTITY FULL"
        )
        followed.configure(include=["events_*"])
        assert names(followed.reconcile().added) == ["events_1"]
        followed.configure(include=["events*"])
        done = followed.reconcile()
        assert not done.has_changed
        assert [table.name for table in done.skipped] == ["events"]
        followed.execute("ALTER TABLE events REPLICA IDENTITY FULL")
        done = followed.reconcile()
        assert (names(done.added), names(done.removed)) == (["events"], ["events_1"])
        assert followed.whole == ["events"]

    def test_rights(self, followed: Followed) -> None:
        role = f"r_{uuid.uuid4().hex[:12]}"
        followed.execute(
            f"CREATE ROLE {role}; GRANT {role} TO CURRENT_USER;"
            "CREATE TABLE theirs (id int PRIMARY KEY); CREATE TABLE hidden (id int PRIMARY KEY);"
            f"ALTER TABLE hidden OWNER TO {role}; ALTER TABLE a OWNER TO {role};"
            f"REVOKE ALL ON hidden FROM {role}; GRANT ALL ON SCHEMA public TO {role};"
        )
        publications = [sql.Identifier(name) for name in followed.subscription.publications]
        try:
            database = followed.conn.info.dbname
            followed.execute(f"GRANT CREATE ON DATABASE {database} TO {role}")
            for publication in publications:
                statement = sql.SQL("ALTER PUBLICATION {} OWNER TO {}")
                followed.conn.execute(statement.format(publication, sql.Identifier(role)))
            followed.execute(f"SET ROLE {role}")
            skipped = {table.name: why for table, why in followed.reconcile().skipped.items()}
            assert skipped == {
                "theirs": "only its owner postgres may publish it",
                "hidden": "the role may not read it",
            }
            followed.configure(copy=False)  # then nobody has to read it
            assert names(followed.reconcile().added) == ["hidden"]
        finally:
            followed.execute(f"RESET ROLE; DROP OWNED BY {role} CASCADE; DROP ROLE {role}")

    def test_a_locked_table_does_not_hold_up_the_others(self, followed: Followed) -> None:
        followed.execute(
            "CREATE TABLE busy (id int PRIMARY KEY); CREATE TABLE free (id int PRIMARY KEY)"
        )
        with (
            patch.object(reconcile_module, "LOCK_WAIT_SECONDS", 0.2),
            connect(followed.url, autocommit=False) as other,
        ):
            other.execute("LOCK TABLE busy IN SHARE UPDATE EXCLUSIVE MODE")
            done = followed.reconcile()
            assert names(done.added) == ["free"]
            ((table, why),) = done.skipped.items()
            assert table.name == "busy"
            assert why.startswith("not now, it is tried again: ")
            other.rollback()
        assert names(followed.reconcile().added) == ["busy"]


class TestInsertOnly:
    def test_tables_come_into_the_second_publication(self, followed: Followed) -> None:
        followed.configure(insert_only=["log_*"])
        followed.execute("CREATE TABLE log_1 (note text); CREATE TABLE b (id int PRIMARY KEY)")
        assert names(followed.reconcile().added) == ["b", "log_1"]
        assert (followed.whole, followed.inserts) == (["a", "b"], ["log_1"])
        followed.execute("INSERT INTO log_1 VALUES ('x'); DELETE FROM log_1")

    def test_there_and_back(self, followed: Followed) -> None:
        oid = followed.oid("a")
        followed.configure(insert_only=["a"])
        done = followed.reconcile()
        assert done.moved == {oid: ("public", "a")}
        assert (done.added, done.removed) == ({}, {})
        assert (followed.whole, followed.inserts) == ([], ["a"])
        followed.execute("ALTER TABLE a DROP CONSTRAINT a_pkey")
        followed.configure()
        done = followed.reconcile()
        # As a whole it could not be updated any more.
        assert (done.has_changed, followed.inserts) == (False, ["a"])
        assert [table.name for table in done.skipped] == ["a"]
        followed.execute("ALTER TABLE a ADD PRIMARY KEY (id)")
        assert followed.reconcile().moved == {oid: ("public", "a")}
        assert (followed.whole, followed.inserts) == (["a"], [])

    def test_where_another_pipeline_has_the_name(self, followed: Followed) -> None:
        destroy_subscription(followed.conn, followed.name)
        theirs = sql.Identifier(f"penstock_{followed.name}_inserts")
        followed.conn.execute(sql.SQL("CREATE PUBLICATION {}").format(theirs))
        ensure_subscription(followed.conn, followed.config)
        followed.configure(insert_only=["log"])
        followed.execute("CREATE TABLE log (note text); CREATE TABLE b (id int PRIMARY KEY)")
        done = followed.reconcile()
        assert names(done.added) == ["b"]
        ((table, why),) = done.skipped.items()
        assert (table.name, "made without a publication" in why) == ("log", True)


class TestTrouble:
    def test_a_publication_that_is_gone(self, followed: Followed) -> None:
        first, second = followed.subscription.publications
        followed.conn.execute(sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(second)))
        with pytest.raises(SourceError, match="made together with"):
            followed.reconcile()
        followed.conn.execute(sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(first)))
        with pytest.raises(SourceError, match="is gone") as caught:
            followed.reconcile()
        assert "penstock destroy" in caught.value.remedy
        followed.conn.execute(sql.SQL("CREATE PUBLICATION {}").format(sql.Identifier(first)))
        with pytest.raises(SourceError, match="did not make for pipeline"):
            followed.reconcile()

    def test_two_sessions_at_once(self, followed: Followed) -> None:
        """Each new table is added by one of them, and neither fails."""
        for round_ in range(3):
            new = [f"t_{round_}_{n}" for n in range(20)]
            followed.execute("".join(f"CREATE TABLE {name} (id int PRIMARY KEY);" for name in new))
            together = threading.Barrier(2)

            def reconcile(together: threading.Barrier = together) -> Reconciled:
                with connect(followed.url) as conn:
                    together.wait(60)
                    return reconcile_publication(conn, followed.config, {})

            with ThreadPoolExecutor(2) as pool:
                done = [f.result() for f in [pool.submit(reconcile) for _ in range(2)]]
            assert sorted(names(done[0].added) + names(done[1].added)) == sorted(new)
            assert done[0].published == done[1].published
            assert not followed.reconcile().has_changed


class TestNarrowed:
    """Somebody else has changed what is published."""

    @pytest.fixture
    def publication(self, followed: Followed) -> str:
        return f"penstock_{followed.name}"

    def test_nothing_is_lost_where_nobody_touched_it(self, followed: Followed) -> None:
        before = followed.reconcile()
        followed.execute("CREATE TABLE b (id int PRIMARY KEY)")
        after = followed.reconcile()
        assert names(after.added) == ["b"]
        assert before.narrowed == after.narrowed == {}
        # The new one is not among those that were there.
        assert before.state.lost(after.state).keys() == {followed.oid("b")}
        assert followed.reconcile().state == after.state

    def test_a_table_that_left_comes_back_and_is_another_entry(
        self, followed: Followed, publication: str
    ) -> None:
        before = followed.reconcile()
        followed.execute(f"ALTER PUBLICATION {publication} DROP TABLE a")
        after = followed.reconcile()
        assert names(after.added) == ["a"]
        assert before.state.lost(after.state).keys() == {followed.oid("a")}
        followed.execute(
            f"ALTER PUBLICATION {publication} DROP TABLE a;"
            f"ALTER PUBLICATION {publication} ADD TABLE a"
        )
        again = followed.reconcile()
        assert not again.has_changed
        assert after.state.lost(again.state).keys() == {followed.oid("a")}

    @pytest.mark.parametrize("option", ["publish = 'insert'", "publish_via_partition_root = false"])
    def test_options_are_set_back(self, followed: Followed, publication: str, option: str) -> None:
        before = followed.reconcile()
        followed.execute(f"ALTER PUBLICATION {publication} SET ({option})")
        found = followed.reconcile()
        assert found.narrowed.keys() == {followed.oid("a")}
        assert publication in found.narrowed[followed.oid("a")]
        assert before.state.lost(found.state).keys() == {followed.oid("a")}
        again = followed.reconcile()
        assert again.narrowed == {}
        assert again.state == found.state
        options = again.state.publications[publication]
        assert options.publish == "insert, update, delete, truncate"
        assert options.via_root

    def test_options_that_somebody_set_back_are_noticed(
        self, followed: Followed, publication: str
    ) -> None:
        before = followed.reconcile()
        followed.execute(f"ALTER PUBLICATION {publication} SET (publish = 'insert')")
        followed.execute(
            f"ALTER PUBLICATION {publication} SET (publish = 'insert, update, delete, truncate')"
        )
        assert before.state.lost(followed.reconcile().state).keys() == {followed.oid("a")}

    @pytest.mark.parametrize("limit", ["(id)", "WHERE (id > 5)"])
    def test_limits_of_a_table_are_taken_away(
        self, followed: Followed, publication: str, limit: str
    ) -> None:
        if followed.conn.info.server_version < 150000:
            pytest.skip("Postgres 14 knows no such limits")
        before = followed.reconcile()
        followed.execute(f"ALTER PUBLICATION {publication} SET TABLE a {limit}")
        found = followed.reconcile()
        assert found.narrowed.keys() == {followed.oid("a")}
        assert before.state.lost(found.state).keys() == {followed.oid("a")}
        again = followed.reconcile()
        assert again.narrowed == {}
        assert again.state == found.state
        assert found.published == before.published
