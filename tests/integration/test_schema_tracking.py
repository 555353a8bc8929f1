"""Event triggers log what a statement changed, and put it into the stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from penstock.model.errors import SourceError
from penstock.model.schema_message import PREFIX, SEAL_BYTES
from penstock.model.table_definition import TableDefinition
from penstock.source.postgres.catalogue.described_tables import Published, tables_in
from penstock.source.postgres.tracking.schema_tracking import (
    install_tracking,
    is_tracking,
    read_key,
    remove_tracking,
)
from tests.application_session import connect

pytestmark = pytest.mark.every_postgres

Connection = psycopg.Connection[tuple[Any, ...]]
Change = tuple[str, dict[str, TableDefinition | None], bool]


class Watched:
    """A database with triggers, and what they sent since it was last asked."""

    def __init__(self, conn: Connection) -> None:
        self.conn = conn
        conn.execute("SELECT pg_create_logical_replication_slot('watch', 'test_decoding', true)")

    def __call__(self, statements: str) -> list[Change]:
        """The changes that the statements make: tag, tables by name, whether it is a rewrite."""
        names = self._names()
        self.conn.execute(statements.encode())
        names |= self._names()
        changes = []
        for value in self.sent():
            assert "failure" not in value, value
            tables = {
                names[told["table"]]: _table(told["table"], told["document"])
                for told in value["tables"]
            }
            changes.append((value["tag"], tables, value["rewrite"]))
        return changes

    def sent(self) -> list[dict[str, Any]]:
        """What the triggers sent, each with a seal that holds."""
        found = self.conn.execute(
            "SELECT data FROM pg_logical_slot_get_changes('watch', NULL, NULL)"
        ).fetchall()
        sent = []
        for (data,) in found:
            head, prefix, text = data.partition(f"prefix: {PREFIX}, ")
            if not prefix:
                continue
            content = text.partition("content:")[2].encode()
            value = json.loads(content[SEAL_BYTES:])
            key = read_key(self.conn)
            assert key is not None
            assert key.holds(content, int(value["xid"]))
            assert "transactional: 1" in head
            sent.append(value)
        return sent

    def _names(self) -> dict[int, str]:
        return dict(self.conn.execute("SELECT oid::bigint, relname::text FROM pg_class").fetchall())


def _table(oid: int, document: Any) -> TableDefinition | None:
    return None if document is None else tables_in(json.dumps(document), Published())[oid]


@pytest.fixture
def watched(database: str) -> Iterator[Watched]:
    with connect(database) as conn:
        conn.execute(
            "CREATE TYPE mood AS ENUM ('calm');"
            "CREATE TABLE items (id int PRIMARY KEY, label text, feels mood, code varchar(10));"
            "CREATE TABLE other (id int PRIMARY KEY, item int REFERENCES items)"
        )
        assert install_tracking(conn)
        yield Watched(conn)
        # It would keep the database from being dropped.
        conn.execute("SELECT pg_drop_replication_slot('watch')")


def test_a_column_that_is_added_and_one_that_is_dropped(watched: Watched) -> None:
    ((tag, tables, rewrite),) = watched("ALTER TABLE items ADD COLUMN price int DEFAULT 7")
    assert (tag, list(tables), rewrite) == ("ALTER TABLE", ["items"], False)
    items = tables["items"]
    assert items is not None
    assert (items.columns[-1].name, items.columns[-1].missing) == ("price", "{7}")
    ((_, tables, _),) = watched("ALTER TABLE items DROP COLUMN label")
    items = tables["items"]
    assert items is not None
    assert [(c.attnum, c.name) for c in items.columns] == [
        (1, "id"),
        (3, "feels"),
        (4, "code"),
        (5, "price"),
    ]


@pytest.mark.parametrize(
    ("statement", "touched"),
    [
        ("ALTER TABLE items RENAME COLUMN label TO title", {"items"}),
        ("ALTER TABLE items RENAME TO things", {"things", "other"}),
        ("ALTER TABLE items ALTER label SET NOT NULL", {"items"}),
        ("ALTER TABLE items ALTER label SET DEFAULT 'x'", {"items"}),
        ("ALTER TABLE items ALTER code TYPE varchar(40)", {"items"}),
        ("ALTER TABLE items REPLICA IDENTITY FULL", {"items"}),
        ("CREATE INDEX by_label ON items (label)", {"items"}),
        ("CREATE TABLE fresh (id int)", {"fresh"}),
        ("CREATE TABLE fresh AS SELECT 1 AS id", {"fresh"}),
        ("ALTER TYPE mood ADD VALUE 'wild'", {"items"}),
        ("ALTER TYPE mood RENAME VALUE 'calm' TO 'quiet'", {"items"}),
        ("ALTER TYPE mood RENAME TO feeling", {"items"}),
        ("ALTER TABLE other DROP CONSTRAINT other_item_fkey", {"other"}),
        ("ALTER TABLE items DROP CONSTRAINT items_pkey CASCADE", {"items", "other"}),
        ("CREATE SCHEMA s; ALTER TABLE items SET SCHEMA s", {"items", "other"}),
        ("ALTER SCHEMA public RENAME TO main", {"items", "other"}),
        ("DROP TYPE mood CASCADE", {"items"}),
    ],
)
def test_what_a_statement_touches(watched: Watched, statement: str, touched: set[str]) -> None:
    changes = watched(statement)
    assert {name for _, tables, _ in changes for name in tables} == touched
    assert not any(rewrite for _, _, rewrite in changes)


def test_an_index_that_is_dropped(watched: Watched) -> None:
    watched("CREATE INDEX by_label ON items (label)")
    ((tag, tables, _),) = watched("DROP INDEX by_label")
    assert (tag, list(tables)) == ("DROP INDEX", ["items"])


def test_an_index_that_was_made_anew_and_is_dropped(watched: Watched) -> None:
    """It has another oid then, of which nothing tells before Postgres 17."""
    watched("CREATE UNIQUE INDEX by_label ON items (label)")
    watched("REINDEX INDEX CONCURRENTLY by_label")
    ((tag, tables, _),) = watched("DROP INDEX by_label")
    items = tables["items"]
    assert items is not None
    assert (tag, items.indexes) == ("DROP INDEX", ())


def test_a_table_that_is_dropped(watched: Watched) -> None:
    changes = watched("DROP TABLE items CASCADE")
    assert {name: table is None for _, tables, _ in changes for name, table in tables.items()} == {
        "items": True,
        "other": False,
    }


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE items ALTER label TYPE int USING length(label)",
        "ALTER TABLE items ADD COLUMN at timestamptz DEFAULT clock_timestamp()",
        "ALTER TABLE items ADD COLUMN number serial",
    ],
)
def test_a_rewrite_is_told(watched: Watched, statement: str) -> None:
    changes = watched(statement)
    assert [rewrite for _, _, rewrite in changes].count(True) == 1
    assert {name for _, tables, _ in changes for name in tables} == {"items"}


@pytest.mark.parametrize(
    "statement",
    [
        "BEGIN; ALTER TABLE items ADD COLUMN a int; ROLLBACK",
        "BEGIN; SAVEPOINT s; ALTER TABLE items ADD COLUMN a int; ROLLBACK TO s; COMMIT",
        "CREATE TEMP TABLE passing (id int); DROP TABLE passing",
        "BEGIN; SET LOCAL penstock.track_ddl = off; ALTER TABLE items ADD COLUMN a int; COMMIT",
        "COMMENT ON TABLE items IS 'what we sell'",
        "CREATE FUNCTION two() RETURNS int LANGUAGE sql AS 'SELECT 2'",
        "CREATE VIEW shown AS SELECT id FROM items",
        "VACUUM FULL items",
        "GRANT SELECT ON items TO public",
    ],
)
def test_what_changes_no_table_is_not_told(watched: Watched, statement: str) -> None:
    for single in statement.split("; ") if "BEGIN" not in statement else [statement]:
        assert watched(single) == []


def test_what_is_told_does_not_depend_on_the_settings_of_a_session(watched: Watched) -> None:
    watched.conn.execute("SET quote_all_identifiers = on")
    ((_, tables, _),) = watched("ALTER TABLE items ADD COLUMN n int DEFAULT length('it')")
    items = tables["items"]
    assert items is not None
    assert (items.columns[1].type.name, items.columns[-1].default) == ("text", "length('it'::text)")
    watched.conn.execute("SET standard_conforming_strings = off")
    watched("CREATE SCHEMA pgx")
    ((_, tables, _),) = watched("CREATE TABLE pgx.fresh (id int)")
    assert list(tables) == ["fresh"]


def test_the_log_is_a_history(watched: Watched) -> None:
    watched("ALTER TABLE items ADD COLUMN a int; ALTER TABLE items ADD COLUMN b int")
    rows = watched.conn.execute(
        "SELECT version, command_tag, schema_name, table_name, before IS NULL, after IS NULL"
        " FROM penstock_ddl.schema_log WHERE table_name = 'items' ORDER BY id"
    ).fetchall()
    assert [row[1:] for row in rows] == [
        ("INIT", "public", "items", True, False),
        ("ALTER TABLE", "public", "items", False, False),
        ("ALTER TABLE", "public", "items", False, False),
    ]
    assert rows[1][0] < rows[2][0]


@pytest.mark.parametrize(
    ("begun", "statement"),
    [
        ("BEGIN; ALTER TYPE mood ADD VALUE 'wild'", ""),
        ("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1", "ALTER TABLE items ADD COLUMN m int"),
    ],
)
def test_each_tells_which_changes_it_has_seen(
    watched: Watched, database: str, begun: str, statement: str
) -> None:
    """What it did not see is not in its document, and was not undone by it."""
    for each in begun.split("; "):
        watched.conn.execute(each.encode())
    with connect(database) as other:
        other.execute("ALTER TABLE items ADD COLUMN n int")
    watched.conn.execute(f"{statement}; COMMIT".encode())
    first, second = watched.sent()
    (seen_first,), (seen_second,) = ([t["seen"] for t in one["tables"]] for one in (first, second))
    assert seen_first == seen_second
    assert first["version"] not in seen_second
    watched.conn.execute("ALTER TABLE items ADD COLUMN o int")
    (third,) = watched.sent()
    assert {first["version"], second["version"]} <= set(third["tables"][0]["seen"])


def test_a_log_that_is_made_anew_has_other_numbers(watched: Watched) -> None:
    watched.conn.execute("ALTER TABLE items ADD COLUMN n int")
    (before,) = watched.sent()
    watched.conn.execute("DROP SCHEMA penstock_ddl CASCADE")
    assert install_tracking(watched.conn)
    watched.conn.execute("ALTER TABLE items ADD COLUMN o int")
    (after,) = watched.sent()
    assert before["version"] < min(after["tables"][0]["seen"]) < after["version"]


def test_what_one_of_two_did_is_told_when_it_is_undone(watched: Watched, database: str) -> None:
    """The newest row of the log knows nothing of it."""
    with connect(database) as other:
        watched.conn.execute("BEGIN")
        watched.conn.execute("CREATE INDEX by_label ON items (label)")
        other.execute("CREATE INDEX by_code ON items (code)")
        watched.conn.execute("COMMIT")
    assert len(watched.sent()) == 2
    ((tag, tables, _),) = watched("DROP INDEX by_label")
    items = tables["items"]
    assert items is not None
    assert (tag, [index.name for index in items.indexes]) == ("DROP INDEX", ["by_code"])


def test_a_statement_does_not_fail_because_of_the_log(watched: Watched) -> None:
    conn = watched.conn
    conn.execute("ALTER TABLE penstock_ddl.schema_log RENAME TO elsewhere")
    conn.execute("ALTER TABLE items ADD COLUMN a int")
    conn.execute("ALTER TABLE items ADD COLUMN b float DEFAULT random()")
    sent = watched.sent()
    items = conn.execute("SELECT 'items'::regclass::oid::bigint").fetchone()
    assert items is not None
    assert {"schema_log" in value["failure"] for value in sent} == {True}
    rewrites = [value["tables"] for value in sent if value["rewrite"]]
    assert rewrites == [[{"table": items[0], "document": None}]], "what it is sure of, it tells"
    conn.execute("DELETE FROM penstock_ddl.seal_key")
    conn.execute("ALTER TABLE items ADD COLUMN c int")
    assert watched.sent() == []


def test_it_is_removed_with_all_that_it_made(watched: Watched) -> None:
    assert is_tracking(watched.conn)
    key = read_key(watched.conn)
    assert install_tracking(watched.conn), "a second time"
    assert read_key(watched.conn) == key
    assert watched("ALTER TABLE items ADD COLUMN again int"), "and it still tells, sealed"
    assert remove_tracking(watched.conn) == [
        "event trigger penstock_ddl",
        "event trigger penstock_drop",
        "event trigger penstock_rewrite",
    ]
    assert not is_tracking(watched.conn)
    assert watched("ALTER TABLE items ADD COLUMN a int") == []


def test_what_replicas_change_is_told(watched: Watched) -> None:
    """Whoever applies another server's changes, or is a Penstock that brings some here."""
    watched.conn.execute("SET session_replication_role = replica")
    ((_, tables, _),) = watched("ALTER TABLE items ADD COLUMN n int")
    assert set(tables) == {"items"}


@pytest.mark.parametrize("state", ["DISABLE", "ENABLE REPLICA"])
def test_a_trigger_that_somebody_turned_off_is_on_again(watched: Watched, state: str) -> None:
    watched.conn.execute(f"ALTER EVENT TRIGGER penstock_drop {state}".encode())
    assert not is_tracking(watched.conn)
    assert install_tracking(watched.conn)
    assert is_tracking(watched.conn)
    ((_, tables, _),) = watched("DROP TABLE items CASCADE")
    assert set(tables) == {"items", "other"}


def test_without_the_right_nothing_is_made(database: str) -> None:
    with connect(database) as conn:
        conn.execute("CREATE ROLE plain NOLOGIN; GRANT ALL ON SCHEMA public TO plain")
        try:
            conn.execute("SET ROLE plain")
            assert not install_tracking(conn)
            conn.execute("RESET ROLE")
            assert not is_tracking(conn)
        finally:
            conn.execute("RESET ROLE; DROP OWNED BY plain; DROP ROLE plain")


def test_only_roles_that_may_replicate_get_the_key(database: str) -> None:
    conn = psycopg.connect(database, autocommit=True)
    assert install_tracking(conn)
    conn.execute("CREATE ROLE curious LOGIN; CREATE ROLE follower LOGIN REPLICATION")
    try:
        for role, may in (("curious", False), ("follower", True)):
            conn.execute(f"SET SESSION AUTHORIZATION {role}".encode())
            assert (read_key(conn) is not None) == may
            assert is_tracking(conn) == may
            for statement in (
                "SELECT * FROM penstock_ddl.seal_key",
                "SELECT * FROM penstock_ddl.schema_log",
                "INSERT INTO penstock_ddl.schema_log DEFAULT VALUES",
                "SELECT penstock_ddl.send('{}')",
                "SELECT penstock_ddl.log_schema('x', '{}', '{}', false)",
                "CREATE FUNCTION penstock_ddl.mine() RETURNS int RETURN 1",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    conn.execute(statement.encode())
            conn.execute("RESET SESSION AUTHORIZATION")
    finally:
        conn.execute("RESET SESSION AUTHORIZATION; DROP ROLE curious; DROP ROLE follower")
        conn.close()


@pytest.mark.parametrize(
    "intrusion",
    [
        "GRANT CREATE ON SCHEMA penstock_ddl TO intruder",
        "ALTER FUNCTION penstock_ddl.table_document(oid) OWNER TO intruder",
        "ALTER TABLE penstock_ddl.schema_log OWNER TO intruder",
        "GRANT INSERT ON penstock_ddl.schema_log TO intruder",
        "GRANT SELECT ON penstock_ddl.seal_key TO intruder",
        "GRANT EXECUTE ON FUNCTION penstock_ddl.send(json) TO PUBLIC",
        "ALTER SCHEMA penstock_ddl OWNER TO intruder",
    ],
)
def test_triggers_that_others_could_replace_are_refused_and_the_remedy_heals_them(
    watched: Watched, intrusion: str
) -> None:
    conn = watched.conn
    conn.execute("CREATE ROLE intruder")
    try:
        conn.execute(intrusion.encode())
        with pytest.raises(SourceError, match=r"(?s)could replace.*(intruder|everybody)") as found:
            is_tracking(conn)
        assert "DROP SCHEMA penstock_ddl CASCADE" in found.value.remedy
        conn.execute("DROP SCHEMA penstock_ddl CASCADE")
        assert install_tracking(conn)
        assert is_tracking(conn)
        assert watched("ALTER TABLE items ADD COLUMN healed int")
    finally:
        conn.execute("DROP OWNED BY intruder; DROP ROLE intruder")


def test_default_privileges_open_nothing(database: str) -> None:
    with connect(database) as conn:
        conn.execute("CREATE ROLE reader")
        try:
            conn.execute(
                "ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO reader;"
                "ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO reader;"
                "ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO reader"
            )
            assert install_tracking(conn)
            assert is_tracking(conn)
        finally:
            remove_tracking(conn)
            conn.execute("DROP OWNED BY reader; DROP ROLE reader")


def test_a_schema_that_somebody_else_put_there_is_not_used(database: str) -> None:
    with connect(database) as conn:
        conn.execute("CREATE ROLE squatter; CREATE SCHEMA penstock_ddl AUTHORIZATION squatter")
        try:
            with pytest.raises(SourceError, match="belongs to squatter") as found:
                install_tracking(conn)
            assert "DROP SCHEMA penstock_ddl CASCADE" in found.value.remedy
            conn.execute("SET ROLE squatter")
            assert not install_tracking(conn), "who could not make triggers goes on without"
            conn.execute("RESET ROLE; DROP SCHEMA penstock_ddl CASCADE")
            assert install_tracking(conn)
        finally:
            conn.execute("RESET ROLE; DROP OWNED BY squatter; DROP ROLE squatter")
