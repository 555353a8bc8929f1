"""Event triggers log what a statement changed, and put it into the stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from penstock.model.schema_message import PREFIX
from penstock.model.table_definition import TableDefinition
from penstock.source.postgres.catalogue.described_tables import Published, tables_in
from penstock.source.postgres.connect import connect
from penstock.source.postgres.schema_tracking import install_tracking, is_tracking, remove_tracking

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
        found = self.conn.execute(
            "SELECT data FROM pg_logical_slot_get_changes('watch', NULL, NULL)"
        ).fetchall()
        changes = []
        for (data,) in found:
            head, prefix, text = data.partition(f"prefix: {PREFIX}, ")
            if not prefix:
                continue
            value = json.loads(text.partition("content:")[2])
            assert "transactional: 1" in head
            assert "failure" not in value, value
            tables = {
                names[told["table"]]: _table(told["table"], told["document"])
                for told in value["tables"]
            }
            changes.append((value["tag"], tables, value["rewrite"]))
        return changes

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


def test_the_log_is_a_history(watched: Watched) -> None:
    watched("ALTER TABLE items ADD COLUMN a int; ALTER TABLE items ADD COLUMN b int")
    rows = watched.conn.execute(
        "SELECT version, command_tag, schema_name, table_name, before IS NULL, after IS NULL"
        " FROM penstock.schema_log WHERE table_name = 'items' ORDER BY id"
    ).fetchall()
    assert [row[1:] for row in rows] == [
        ("INIT", "public", "items", True, False),
        ("ALTER TABLE", "public", "items", False, False),
        ("ALTER TABLE", "public", "items", False, False),
    ]
    assert rows[1][0] < rows[2][0]


def test_a_statement_does_not_fail_because_of_the_log(watched: Watched) -> None:
    watched.conn.execute("ALTER TABLE penstock.schema_log RENAME TO elsewhere")
    watched.conn.execute("ALTER TABLE items ADD COLUMN a int")
    row = watched.conn.execute(
        "SELECT data FROM pg_logical_slot_get_changes('watch', NULL, NULL) WHERE data ~ %s",
        [PREFIX],
    ).fetchone()
    assert row is not None
    assert "failure" in row[0]


def test_it_is_removed_with_all_that_it_made(watched: Watched) -> None:
    assert is_tracking(watched.conn)
    assert install_tracking(watched.conn), "a second time"
    assert remove_tracking(watched.conn) == [
        "event trigger penstock_ddl",
        "event trigger penstock_drop",
        "event trigger penstock_rewrite",
    ]
    assert not is_tracking(watched.conn)
    assert watched("ALTER TABLE items ADD COLUMN a int") == []


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
