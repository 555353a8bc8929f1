"""Targets as people have them: triggers, foreign keys, sequences, types of their own, history."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import sql

from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.errors import DestinationError, TableRefused
from penstock.model.lsn import format_lsn
from penstock.model.table_definition import TableDefinition
from penstock.pipeline.copy.copy_target import CopyTarget
from penstock.source.postgres.catalogue.definitions import read_definitions
from penstock.source.postgres.catalogue.tables import read_tables
from penstock.testing.change_builder import UNSET, ChangeBuilder, Column, Table, table
from penstock.testing.contract.deliveries import definition, deliver, deliver_cut
from tests.application_session import connect
from tests.fix_target import Target, as_texts

# The child's oid is the lower one, so that it is merged before its parent.
CHILD = table("child", Column("id", "int8", key=True), Column("parent", "int8"), oid=30_001)
PARENT = table("parent", Column("id", "int8", key=True), Column("v", "text"), oid=30_002)


@pytest.fixture
def builder() -> ChangeBuilder:
    return ChangeBuilder()


@pytest.fixture
def limited(pg_server: EmbeddedPostgres, target: Target) -> Iterator[str]:
    """The URL of a role that may create things, but not switch triggers off."""
    role = f"limited_{uuid.uuid4().hex}"
    name = sql.Identifier(role)
    database = sql.Identifier(target.conn.info.dbname)
    target.conn.execute(sql.SQL("CREATE ROLE {} LOGIN").format(name))
    target.conn.execute(sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(database, name))
    target.conn.execute(sql.SQL("GRANT USAGE, CREATE ON SCHEMA public TO {}").format(name))
    yield pg_server.url(target.conn.info.dbname, role)
    target.conn.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(name))
    target.conn.execute(sql.SQL("DROP ROLE {}").format(name))


def family(target: Target, url: str, constraint: str) -> None:
    """Parent and child with a foreign key, made by whoever the URL names."""
    with psycopg.connect(url or target.url, autocommit=True) as conn:
        conn.execute("CREATE TABLE parent (id bigint PRIMARY KEY, v text)")
        conn.execute(
            "CREATE TABLE child (id bigint PRIMARY KEY,"
            f" parent bigint REFERENCES parent {constraint})".encode()
        )


class TestTriggersAndForeignKeys:
    def test_are_off_where_that_is_permitted(self, target: Target, builder: ChangeBuilder) -> None:
        family(target, "", "ON DELETE CASCADE")
        target.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE 'fired'; END $$;"
            "CREATE TRIGGER t BEFORE INSERT OR UPDATE OR DELETE ON child FOR EACH ROW"
            " EXECUTE FUNCTION refuse();"
            "CREATE TRIGGER s BEFORE TRUNCATE ON child EXECUTE FUNCTION refuse()"
        )
        destination = target.opened(definition(PARENT), definition(CHILD))
        assert destination.check() == ()
        with builder.transaction():
            builder.truncate(CHILD)
            builder.insert(CHILD, "1", "7")
            builder.insert(PARENT, "1", "a")
            builder.insert(CHILD, "2", "1")
        deliver_cut(destination, builder)
        with builder.transaction():
            builder.delete(PARENT, key=["1", None])
            builder.update(CHILD, "1", "8")
        deliver_cut(destination, builder)
        assert target.rows("child") == {("1", "8"): 1, ("2", "1"): 1}
        assert target.rows("parent") == {}

    def test_stay_on_where_it_is_not(
        self, target: Target, builder: ChangeBuilder, limited: str
    ) -> None:
        family(target, limited, "DEFERRABLE")
        destination = target.opened(definition(PARENT), definition(CHILD), url=limited)
        (note,) = destination.check()
        assert "may not set session_replication_role" in note
        with builder.transaction():
            builder.insert(PARENT, "1", "a")
            builder.insert(CHILD, "1", "1")
        deliver_cut(destination, builder)
        # The row moves, and its child with it, in one batch.
        with builder.transaction():
            builder.update(CHILD, "1", None)
            builder.update(PARENT, "2", UNSET, key=["1", None])
            builder.update(CHILD, "1", "2")
        deliver_cut(destination, builder)
        assert target.rows("parent") == {("2", "a"): 1}
        assert target.rows("child") == {("1", "2"): 1}

    def test_stop_the_table_that_they_are_on(
        self, target: Target, builder: ChangeBuilder, limited: str
    ) -> None:
        family(target, limited, "DEFERRABLE INITIALLY DEFERRED")
        destination = target.opened(definition(PARENT), definition(CHILD), url=limited)
        with builder.transaction():
            builder.insert(PARENT, "1", "a")
            builder.insert(CHILD, "1", "7")
        with pytest.raises(TableRefused, match=r"public\.child: .*\(parent\)=\(7\) is not") as why:
            deliver_cut(destination, builder)
        assert why.value.table == CHILD.oid
        assert target.rows("parent") == {}

    @pytest.mark.parametrize("url", ["limited", "owner"])
    def test_that_would_change_rows_are_refused_before_any_row(
        self, target: Target, limited: str, url: str
    ) -> None:
        family(target, limited, "ON DELETE CASCADE")
        options = {"url": limited} if url == "limited" else {"disable_triggers": False}
        with pytest.raises(DestinationError, match=r"child_parent_fkey of public\.child") as why:
            target.opened(definition(PARENT), definition(CHILD), **options)
        assert "session_replication_role" in why.value.remedy


def test_a_truncate_of_a_table_that_somebody_else_refers_to(
    target: Target, builder: ChangeBuilder
) -> None:
    family(target, "", "")
    destination = target.opened(definition(PARENT))
    with builder.transaction():
        builder.insert(PARENT, "1", "a")
    deliver_cut(destination, builder)
    target.execute("INSERT INTO child VALUES (1, 1)")
    with builder.transaction():
        builder.truncate(PARENT, restart=True)
        builder.insert(PARENT, "2", "b")
    deliver_cut(destination, builder)
    assert target.rows("parent") == {("2", "b"): 1}
    assert target.rows("child") == {("1", "1"): 1}


def test_a_truncate_that_a_foreign_key_forbids(
    target: Target, builder: ChangeBuilder, limited: str
) -> None:
    family(target, limited, "")
    destination = target.opened(definition(PARENT), url=limited)
    with builder.transaction():
        builder.insert(PARENT, "1", "a")
    deliver_cut(destination, builder)
    target.execute("INSERT INTO child VALUES (1, 1)")
    with builder.transaction():
        builder.truncate(PARENT)
    with pytest.raises(TableRefused, match=r"public\.parent: .*still referenced from table"):
        deliver_cut(destination, builder)
    assert target.rows("parent") == {("1", "a"): 1}


# -- tables as the source's catalogue describes them ----------------------------------------------


def source_tables(url: str, statements: str) -> dict[str, TableDefinition]:
    with connect(url) as conn:
        conn.execute(statements.encode())
        names = [found.table_name for found in read_tables(conn)]
        return {found.name: as_texts(found) for found in read_definitions(conn, names, ())}


def stream(of: TableDefinition) -> Table:
    """The table as the stream announces it. Values travel as text, so text is type enough."""
    columns = [
        Column(column.name, "text", key=column.name in of.merge_key)
        for column in of.columns
        if column.published
    ]
    return table(of.name, *columns, schema=of.schema, identity=of.replica_identity, oid=of.oid)


RICH = """
CREATE SCHEMA "My Shop";
CREATE TYPE "My Shop"."Mood" AS ENUM ('sad', 'it''s, "ok"');
CREATE DOMAIN "My Shop".code AS varchar(9) CHECK (VALUE <> '');
CREATE TYPE "My Shop".pair AS (x int, "y%" text);
CREATE TYPE "My Shop".moods AS RANGE (subtype = "My Shop"."Mood");
CREATE TABLE "My Shop"."By %" (
    "Mood" "My Shop"."Mood", code "My Shop".code, pair "My Shop".pair,
    span int4range, moods "My Shop".moods, many "My Shop".pair[], j jsonb,
    doubled int GENERATED ALWAYS AS (lower(span) * 2) STORED,
    PRIMARY KEY ("Mood", code, pair, span)
);
CREATE TABLE loose (m "My Shop"."Mood", p "My Shop".pair, j json, x text);
ALTER TABLE loose REPLICA IDENTITY FULL;
CREATE TABLE bare ();
"""


def test_types_of_their_own_also_as_a_key(
    database: str, target: Target, builder: ChangeBuilder
) -> None:
    tables = source_tables(database, RICH)
    destination = target.opened(*tables.values())
    rich, loose, bare = (stream(tables[name]) for name in ("By %", "loose", "bare"))
    key = ['it\'s, "ok"', "c1", '(1,"a,b")', "[1,5)"]
    moved = ["sad", "c2", '(2,"\\"")', "[3,4)"]
    rest = ["[sad,sad]", '{"(1,\\"x y\\")",NULL}', '{"a": [1]}']
    with builder.transaction():
        builder.insert(rich, *key, *rest)
        builder.insert(loose, "sad", "(1,)", '{"a" : 1}', "<a/>")
        builder.insert(loose, "sad", "(1,)", '{"a" : 1}', "<a/>")
        builder.insert(loose, "sad", "(1,)", '{"a":1}', None)
        builder.insert(bare)
        builder.insert(bare)
    runs = [builder.cut()]
    with builder.transaction():
        builder.update(rich, *moved, UNSET, rest[1], UNSET, key=[*key, None, None, None])
        builder.delete(loose, full=["sad", "(1,)", '{"a" : 1}', "<a/>"])
        builder.update(loose, "sad", "(2,)", UNSET, None, full=["sad", "(1,)", '{"a":1}', None])
    runs.append(builder.cut())
    deliver(destination, builder.frontier, *[[run] for run in runs])
    expected = (*moved, *rest, "6")
    assert target.rows('"My Shop"."By %"') == {(*expected[:2], '(2,"""")', *expected[3:]): 1}
    assert target.rows("loose") == {
        ("sad", "(1,)", '{"a" : 1}', "<a/>"): 1,
        ("sad", "(2,)", '{"a":1}', None): 1,
    }
    assert target.all("SELECT count(*) FROM bare") == [(2,)]
    with builder.transaction():
        builder.update(rich, *moved, *rest)
        builder.truncate(bare)
        builder.insert(bare)
    deliver_cut(destination, builder)
    with builder.transaction():
        builder.delete(rich, key=[*moved, None, None, None])
    deliver_cut(destination, builder)
    assert target.rows('"My Shop"."By %"') == {}
    assert target.all("SELECT count(*) FROM bare") == [(1,)]


def test_numbers_that_are_given_locally_go_on_after_the_replicated_ones(
    database: str, target: Target, builder: ChangeBuilder
) -> None:
    tables = source_tables(
        database,
        "CREATE TABLE a (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text);"
        "CREATE TABLE d (id int GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, v text);"
        "CREATE TABLE s (id serial PRIMARY KEY, v text);"
        "CREATE TABLE extra (id int PRIMARY KEY, n int GENERATED ALWAYS AS IDENTITY)",
    )
    destination = target.opened(*tables.values())
    with builder.transaction():
        for name in ("a", "d", "s"):
            for number in range(5, 8):
                builder.insert(stream(tables[name]), str(number), "theirs")
            builder.update(stream(tables[name]), "9", "theirs", key=["7", None])
        builder.insert(stream(tables["extra"]), "1", "40")
        builder.update(stream(tables["extra"]), "1", "41")
    deliver_cut(destination, builder)
    destination.close()
    for name in ("a", "d", "s"):
        target.execute(f"INSERT INTO {name} (v) VALUES ('ours')")  # noqa: S608
        theirs = {("5", "theirs"): 1, ("6", "theirs"): 1, ("9", "theirs"): 1}
        assert target.rows(name) == {**theirs, ("10", "ours"): 1}
    assert target.rows("extra") == {("1", "41"): 1}


class TestHistory:
    ITEMS = table("items", Column("id", "int8", key=True), Column("big", "text"))

    def test_every_change_is_a_row(self, target: Target, builder: ChangeBuilder) -> None:
        destination = target.opened(definition(self.ITEMS), mode="append")
        with builder.transaction():
            builder.insert(self.ITEMS, "1", "long")
            builder.update(self.ITEMS, "2", UNSET, key=["1", None])
            builder.delete(self.ITEMS, key=["2", None])
            builder.truncate(self.ITEMS)
        run = deliver_cut(destination, builder)
        found = target.all(
            "SELECT id, big, _op, _commit_lsn::text, _ordinal, _xid, _unset, _old,"
            " (extract(epoch FROM _commit_time) * 1000000)::bigint FROM items"
            " ORDER BY _commit_lsn, _ordinal"
        )
        lsn, micros = format_lsn(builder.frontier.commit_lsn), builder.micros
        xid = int(run.tables[0].xid[0])
        assert found == [
            (1, "long", "insert", lsn, 0, xid, None, None, micros),
            (2, None, "update", lsn, 1, xid, ["big"], {"id": 1}, micros),
            (2, None, "delete", lsn, 2, xid, None, {"id": 2}, micros),
            (None, None, "truncate", lsn, 3, xid, None, None, micros),
        ]

    def test_rows_that_are_refused(self, target: Target, builder: ChangeBuilder) -> None:
        destination = target.opened(definition(self.ITEMS), mode="append", dead_letter=True)
        target.execute("ALTER TABLE items ADD CHECK (big <> 'bad')")
        with builder.transaction():
            builder.insert(self.ITEMS, "1", "bad")
            builder.insert(self.ITEMS, "2", "good")
        deliver_cut(destination, builder)
        assert target.rows("items", "id, big") == {("2", "good"): 1}
        assert target.all("SELECT op, row_values FROM penstock.dead_letter") == [
            ("insert", {"id": "1", "big": "bad"})
        ]

    def test_a_column_whose_name_a_history_needs(self, target: Target) -> None:
        odd = table("odd", Column("_op", "text", key=True))
        with pytest.raises(DestinationError, match=r"public\.odd has columns .* itself: _op"):
            target.opened(definition(odd), mode="append")
        target.opened(definition(odd))


@pytest.mark.parametrize(
    ("lost", "op"),
    [
        ("INSERT ON apart.items", "insert"),
        ("UPDATE ON apart.items", "update"),
        ("DELETE ON apart.items", "delete"),
        ("SELECT ON apart.items", "update"),
        ("TRUNCATE, DELETE ON apart.items", "truncate"),
        ("USAGE ON SCHEMA apart", "insert"),
    ],
)
def test_a_right_that_is_revoked_stops_one_table(
    target: Target, limited: str, builder: ChangeBuilder, lost: str, op: str
) -> None:
    items = table("items", Column("id", "int8", key=True), Column("v", "text"), schema="apart")
    other = table("other", Column("id", "int8", key=True))
    role = limited.partition("://")[2].partition("@")[0]
    target.execute(
        "CREATE SCHEMA apart; CREATE TABLE apart.items (id bigint PRIMARY KEY, v text);"
        f"GRANT USAGE ON SCHEMA apart TO {role}; GRANT ALL ON apart.items TO {role}"
    )
    destination = target.opened(definition(items), definition(other), url=limited)
    with builder.transaction():
        builder.insert(items, "1", "a")
    deliver_cut(destination, builder)
    target.execute(f"REVOKE {lost} FROM {role}")
    with builder.transaction():
        builder.insert(other, "1")
        match op:
            case "insert":
                builder.insert(items, "2", "b")
            case "update":
                builder.update(items, "1", "b")
            case "delete":
                builder.delete(items, key=["1", None])
            case _:
                builder.truncate(items)
    cut = builder.cut()
    with pytest.raises(TableRefused, match="permission denied") as refused:
        deliver(destination, builder.frontier, [cut])
    assert (refused.value.table, refused.value.may_pass) == (items.oid, True)
    assert target.rows("other") == {}
    for grant in re.findall(r"GRANT [^;]+", refused.value.remedy):
        target.execute(grant)
    deliver(destination, builder.frontier, [cut])
    assert target.rows("other") == {("1",): 1}


def test_a_deferred_foreign_key_of_a_table_that_is_not_followed(
    target: Target, limited: str, builder: ChangeBuilder
) -> None:
    """It stops the table that it refers to, and nothing else."""
    family(target, limited, "DEFERRABLE INITIALLY DEFERRED")
    destination = target.opened(definition(PARENT), url=limited)
    with builder.transaction():
        builder.insert(PARENT, "1", "a")
    deliver_cut(destination, builder)
    target.execute("INSERT INTO child VALUES (1, 1)")
    with builder.transaction():
        builder.delete(PARENT, key=["1", None])
    with pytest.raises(TableRefused, match=r"still referenced|violates foreign key") as refused:
        deliver_cut(destination, builder)
    assert refused.value.table == PARENT.oid


def test_a_table_that_a_copy_and_the_stream_meet_at_once_is_made_once(target: Target) -> None:
    """Each looks for it, and makes what it does not find."""
    destination = target.opened(definition(PARENT))
    lock, both = threading.RLock(), threading.Barrier(2)
    copies = CopyTarget(destination, lock)

    def of_the_copy(new: TableDefinition) -> None:
        both.wait()
        copies.fit(new, ())

    def of_the_stream(new: TableDefinition) -> None:
        both.wait()
        with lock:
            destination.prepare([new])

    with ThreadPoolExecutor(2) as threads:
        for number in range(5):
            new = definition(table(f"later_{number}", Column("id", "int8", key=True)))
            for done in [threads.submit(of, new) for of in (of_the_copy, of_the_stream)]:
                done.result()
            assert target.rows(f"later_{number}") == {}


def test_least_privilege(
    pg_server: EmbeddedPostgres, target: Target, builder: ChangeBuilder
) -> None:
    """What docs/destinations/postgres.md grants is enough for tables that exist."""
    role = f"least_{uuid.uuid4().hex}"
    name = sql.Identifier(role)
    of = table("items", Column("id", "int8", key=True), Column("v", "text"))
    target.execute("CREATE TABLE items (id bigserial PRIMARY KEY, v text)")
    for statement in (
        "CREATE ROLE {} LOGIN",
        "CREATE SCHEMA penstock AUTHORIZATION {}",
        "GRANT USAGE ON SCHEMA public TO {}",
        "GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON items TO {}",
    ):
        target.conn.execute(sql.SQL(statement).format(name))
    try:
        url = pg_server.url(target.conn.info.dbname, role)
        destination = target.opened(definition(of), url=url)
        with builder.transaction():
            builder.insert(of, "1", "a")
            builder.truncate(of, restart=True)
            builder.insert(of, "1", "b")
            builder.insert(of, "2", "b")
        deliver_cut(destination, builder)
        with builder.transaction():
            builder.update(of, "1", "c")
            builder.update(of, "3", UNSET, key=["2", None])
        deliver_cut(destination, builder)
        with builder.transaction():
            builder.insert(of, "1", "over")
        deliver_cut(destination, builder)
        assert target.rows("items") == {("1", "over"): 1, ("3", "b"): 1}
        destination.close()
    finally:
        target.conn.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(name))
        target.conn.execute(sql.SQL("DROP ROLE {}").format(name))
