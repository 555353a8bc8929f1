"""A target follows each change of its table: it becomes what would be made anew, with its rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql

from penstock.destination.postgres.own_tables import ensure_own_tables
from penstock.destination.postgres.targets import alter_columns
from penstock.destination.postgres.targets.alter_table import alter_target
from penstock.destination.postgres.targets.table_names import TableNames
from penstock.destination.postgres.targets.target_objects import TargetObjects
from penstock.destination.postgres.targets.target_record import record_targets
from penstock.destination.postgres.targets.target_table import ensure_targets, wanted_targets
from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.array_text import first_element
from penstock.model.lsn import Frontier
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import TableDefinition
from penstock.model.table_name import TableName
from penstock.source.postgres.catalogue.definitions import definitions_of
from penstock.source.postgres.catalogue.tables import read_tables
from tests.application_session import connect
from tests.fix_postgres import drop_database
from tests.integration.altered_table import CASES, SETUP

Connection = psycopg.Connection[tuple[Any, ...]]
NAMES = TableNames({"moved": "Moved"})


@pytest.fixture(scope="module")
def databases(pg_server: EmbeddedPostgres) -> Iterator[list[str]]:
    """A source, a target that is changed, and one that is made from the result."""
    names = ["alter_source", "alter_target", "alter_fresh"]
    yield [pg_server.create_database(name) for name in names]
    for name in names:
        drop_database(pg_server, name)


@pytest.fixture
def connections(databases: list[str]) -> Iterator[list[Connection]]:
    """Each with a transaction that never commits: every test finds them empty."""
    opened = [connect(url) for url in databases]
    for conn in opened:
        conn.autocommit = False
        conn.execute("SELECT")  # begins it: what the code opens are savepoints then
    yield opened
    for conn in opened:
        conn.rollback()
        conn.close()


def table_of(conn: Connection) -> TableDefinition:
    """The only table there is."""
    names = [
        found.table_name for found in read_tables(conn) if found.table_name.schema != "penstock"
    ]
    (found,) = definitions_of(conn, [TableName(name.schema, name.name) for name in names])
    return found


def name_of(table: TableDefinition) -> sql.Identifier:
    return sql.Identifier(table.schema, table.name)


def rows(conn: Connection, table: TableDefinition) -> list[Any]:
    query = sql.SQL("SELECT to_jsonb(t)::text FROM {} AS t ORDER BY 1").format(name_of(table))
    return [json.loads(text) for (text,) in conn.execute(query)]


def fill(conn: Connection, table: TableDefinition, found: list[Any]) -> None:
    written = [sql.Identifier(c.name) for c in table.columns if c.generated is None]
    names = sql.SQL(", ").join(written)
    statement = sql.SQL(
        "INSERT INTO {table} ({names}) OVERRIDING SYSTEM VALUE"
        " SELECT {names} FROM jsonb_populate_recordset(null::{table}, {rows})"
    )
    conn.execute(
        statement.format(table=name_of(table), names=names, rows=sql.Literal(json.dumps(found)))
    )


def prepare(target: Connection, table: TableDefinition) -> None:
    ensure_own_tables(target)
    made = ensure_targets(target, [table], NAMES)
    record_targets(target, "p", made, is_new=True)
    (wanted,) = wanted_targets(target, [table], NAMES)
    objects = TargetObjects(target, "p")
    objects.make(table.oid, wanted)
    assert objects.notes == []


def seen(table: TableDefinition) -> TableDefinition:
    """Without what differs between two databases."""
    return replace(
        table,
        oid=0,
        replica_identity="d",
        identity_key=(),
        columns=tuple(
            sorted(
                (replace(column, attnum=0) for column in table.columns),
                key=lambda column: column.name,
            )
        ),
        types=tuple(sorted(table.types, key=lambda kind: kind.qualified_name)),
    )


def storage(conn: Connection, oid: int) -> Any:
    return conn.execute("SELECT pg_relation_filenode(%s::oid)", [oid]).fetchone()


def follow(source: Connection, target: Connection, statement: str) -> list[str]:
    """One statement in the source, and the change that it is at the target."""
    before = table_of(source)
    old_rows, old_storage = rows(source, before), storage(source, before.oid)
    source.execute(statement.encode())
    after = table_of(source)
    if statement.startswith("UPDATE"):
        target.execute(statement.encode())
        return []
    is_rewrite = storage(source, before.oid) != old_storage
    here, there = wanted_targets(target, [before, after], NAMES)
    change = TableChange(here, there, is_rewrite)
    notes = alter_target(target, "p", change)
    assert old_rows
    if is_rewrite:
        (wanted,) = wanted_targets(target, [after], NAMES)
        target.execute(sql.SQL("TRUNCATE {}").format(name_of(wanted)))
        fill(target, wanted, rows(source, after))
    return notes


def recorded(conn: Connection) -> list[Any]:
    return conn.execute(
        "SELECT kind, source_name, name FROM penstock.target_object ORDER BY 1, 2"
    ).fetchall()


@pytest.mark.parametrize("case", CASES)
def test_the_target_becomes_what_would_be_made(case: str, connections: list[Connection]) -> None:
    source, target, fresh = connections
    if case == "set expression" and source.info.server_version < 170000:
        pytest.skip("SET EXPRESSION came with Postgres 17")
    source.execute(SETUP)
    prepare(target, table_of(source))
    fill(target, table_of(target), rows(source, table_of(source)))
    statements = CASES[case]
    for statement in (statements,) if isinstance(statements, str) else statements:
        assert follow(source, target, statement) == []
    after = table_of(source)
    prepare(fresh, after)
    assert rows(target, table_of(target)) == rows(source, after)
    changed, made = seen(table_of(target)), seen(table_of(fresh))
    if case == "identity index":
        # The index was there already, under its own name, which the new target's has not.
        assert replace(changed, indexes=()) == replace(made, indexes=())
        return
    assert changed == made
    assert recorded(target) == recorded(fresh)


# -- what does not fit ----------------------------------------------------------------------------


@pytest.fixture
def followed(connections: list[Connection]) -> tuple[Connection, Connection]:
    """A source and a target that has its rows."""
    source, target, _fresh = connections
    source.execute(SETUP)
    prepare(target, table_of(source))
    fill(target, table_of(target), rows(source, table_of(source)))
    return source, target


Followed = tuple[Connection, Connection]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("ALTER TABLE t ADD COLUMN k int DEFAULT f(7)", "column k goes without its default"),
        ("ALTER TABLE t ADD k int NOT NULL DEFAULT f(7)", "column k goes without its default"),
        ("ALTER TABLE t ALTER COLUMN a SET DEFAULT f(7)", "column a goes without its default"),
        ("ALTER TABLE t ADD k int GENERATED ALWAYS AS (f(n)) STORED", "column k, generated as"),
        ("CREATE INDEX added ON t (f(n))", "public.t goes without the index added"),
        ("ALTER TABLE t ADD CONSTRAINT k CHECK (f(n) > 0)", "goes without the constraint k"),
        ("ALTER DOMAIN price SET DEFAULT f(1)", "the domain public.price goes without"),
        ("ALTER DOMAIN price ADD CHECK (f(1) = 1)", "the domain public.price goes without"),
    ],
)
def test_what_the_destination_does_not_know_is_noted(
    followed: Followed, statement: str, said: str
) -> None:
    source, target = followed
    source.execute("CREATE FUNCTION f(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1'")
    (note,) = follow(source, target, statement)
    assert said in note
    assert "function public.f(integer) does not exist" in note
    after, there = table_of(source), table_of(target)
    if not any(column.generated and column.name == "k" for column in after.columns):
        assert rows(target, there) == rows(source, after)
    assert follow(source, target, "ALTER TABLE t RENAME COLUMN u TO v") == []


def test_a_view_of_the_target_stands_in_the_way(followed: Followed) -> None:
    source, target = followed
    target.execute("CREATE VIEW v AS SELECT a, c FROM t")
    with pytest.raises(errors.DependentObjectsStillExist), target.transaction():
        follow(source, target, "ALTER TABLE t DROP COLUMN a")
    with pytest.raises(errors.FeatureNotSupported), target.transaction():
        follow(source, target, "ALTER TABLE t ALTER COLUMN c TYPE text")


def test_what_a_person_did_before_is_left(followed: Followed) -> None:
    source, target = followed
    target.execute(
        "ALTER TABLE t ADD COLUMN k bigint, DROP COLUMN c; ALTER TABLE t RENAME u TO v;"
        "ALTER TYPE mood ADD VALUE 'wild'; DROP INDEX by_g; ALTER TABLE t ALTER a TYPE numeric"
    )
    for statement in (
        "ALTER TABLE t ADD COLUMN k int",
        "ALTER TABLE t DROP COLUMN c",
        "ALTER TABLE t RENAME u TO v",
        "ALTER TYPE mood ADD VALUE 'wild'",
        "ALTER INDEX by_g RENAME TO by_g2",
        "ALTER TABLE t ALTER COLUMN a TYPE bigint",
    ):
        assert follow(source, target, statement) == []
    types = {column.name: column.type.name for column in table_of(target).columns}
    assert (types["k"], types["a"]) == ("bigint", "numeric")
    target.execute("ALTER TABLE t RENAME TO t2")
    assert follow(source, target, "ALTER TABLE t RENAME TO t2") == []


def test_a_target_that_was_there_gets_columns_and_keys_alone(followed: Followed) -> None:
    source, target = followed
    target.execute("UPDATE penstock.target_table SET created = false")
    target.execute("DELETE FROM penstock.target_object")
    indexes = table_of(target).indexes
    for statement in (
        "CREATE INDEX added ON t (a)",
        "DROP INDEX by_g",
        "ALTER TABLE t ADD CONSTRAINT k CHECK (n > 0)",
        "ALTER TABLE t ADD COLUMN k int DEFAULT 3",
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (n, id)",
    ):
        assert follow(source, target, statement) == []
    there = table_of(target)
    assert (there.indexes, len(there.constraints)) == (indexes, 2)
    assert there.primary_key == ("n", "id")
    assert rows(target, there) == rows(source, table_of(source))


def test_keys_and_indexes_wait_for_a_copy(followed: Followed) -> None:
    source, target = followed
    target.execute("UPDATE penstock.target_table SET complete = false")
    target.execute("ALTER TABLE t DROP CONSTRAINT t_pkey")
    for statement in (
        "CREATE INDEX added ON t (a)",
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (n, id)",
    ):
        assert follow(source, target, statement) == []
    there = table_of(target)
    assert there.primary_key == ()
    assert "added" not in {index.name for index in there.indexes}


SHOP = """
CREATE TYPE mood AS ENUM ('sad', 'calm');
CREATE TABLE a (id int PRIMARY KEY, m mood);
CREATE TABLE b (id int PRIMARY KEY, a int, m mood[]);
"""


def follow_all(source: Connection, target: Connection, statement: str) -> list[str]:
    """As ``follow``, of all tables that the statement touched."""

    def tables() -> dict[int, TableDefinition]:
        names = [found.table_name for found in read_tables(source)]
        return {table.oid: table for table in definitions_of(source, names)}

    before = tables()
    source.execute(statement.encode())
    notes = []
    for oid, table in tables().items():
        here, there = wanted_targets(target, [before[oid], table], NAMES)
        notes += alter_target(target, "p", TableChange(here, there))
    return notes


@pytest.fixture
def shop(connections: list[Connection]) -> Followed:
    source, target, _fresh = connections
    source.execute(SHOP)
    names = [found.table_name for found in read_tables(source)]
    ensure_own_tables(target)
    made = ensure_targets(target, definitions_of(source, names), NAMES)
    record_targets(target, "p", made, is_new=True)
    target.execute("SET LOCAL session_replication_role = replica")
    return source, target


def foreign_keys(conn: Connection) -> list[str]:
    found = conn.execute(
        "SELECT conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'f'"
    )
    return [text for (text,) in found]


def test_foreign_keys_follow(shop: Followed) -> None:
    source, target = shop
    add = "ALTER TABLE b ADD CONSTRAINT up FOREIGN KEY (a) REFERENCES a"
    assert follow_all(source, target, add) == []
    assert foreign_keys(target) == ["up FOREIGN KEY (a) REFERENCES a(id)"]
    for statement, shown in (
        ("ALTER TABLE a RENAME COLUMN id TO key", "up FOREIGN KEY (a) REFERENCES a(key)"),
        ("ALTER TABLE a RENAME TO c", "up FOREIGN KEY (a) REFERENCES c(key)"),
        (
            "ALTER TABLE b ALTER CONSTRAINT up DEFERRABLE",
            "up FOREIGN KEY (a) REFERENCES c(key) DEFERRABLE",
        ),
    ):
        assert follow_all(source, target, statement) == []
        assert foreign_keys(target) == [shown]
    # A key takes along what refers to it.
    assert follow_all(source, target, "ALTER TABLE c DROP CONSTRAINT a_pkey CASCADE") == []
    assert foreign_keys(target) == []
    assert recorded(target) == []


@pytest.mark.parametrize("behind", [False, True], ids=["together", "behind"])
def test_a_foreign_key_that_does_not_hold_now(shop: Followed, behind: bool) -> None:
    """There is nothing to say of it while one of its tables stands elsewhere."""
    source, target = shop
    (oid,) = target.execute(
        "SELECT source_table FROM penstock.target_table WHERE target = 'public.a'::regclass"
    ).fetchone() or (0,)
    at = {str(oid): Frontier(5, 5).to_json()} if behind else {}
    target.execute(
        "INSERT INTO penstock.progress (pipeline, epoch, commit_lsn, end_lsn, behind)"
        " VALUES ('p', 1, '0/9', '0/9', %s)",
        [json.dumps(at)],
    )
    target.execute("INSERT INTO b VALUES (1, 7)")
    add = "ALTER TABLE b ADD CONSTRAINT up FOREIGN KEY (a) REFERENCES a"
    notes = follow_all(source, target, add)
    assert foreign_keys(target) == ["up FOREIGN KEY (a) REFERENCES a(id) NOT VALID"]
    said = "public.b: the foreign key up stays NOT VALID"
    assert [note.rpartition(": ")[0] for note in notes] == ([] if behind else [said])


def test_a_type_of_two_tables_is_changed_once(shop: Followed) -> None:
    source, target = shop
    for statement in (
        "ALTER TYPE mood ADD VALUE 'wild' AFTER 'sad'",
        "ALTER TYPE mood RENAME VALUE 'calm' TO 'quiet'",
        'ALTER TYPE mood RENAME TO "Mood"',
        'CREATE SCHEMA s; ALTER TYPE "Mood" SET SCHEMA s',
    ):
        assert follow_all(source, target, statement) == []
    labels = target.execute("SELECT enumlabel::text FROM pg_enum ORDER BY enumsortorder")
    assert labels.fetchall() == [("sad",), ("wild",), ("quiet",)]
    assert target.execute("SELECT to_regtype('s.\"Mood\"') IS NOT NULL").fetchone() == (True,)


def test_a_server_without_set_expression_makes_the_column_anew(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = followed
    if source.info.server_version < 170000:
        pytest.skip("SET EXPRESSION came with Postgres 17")
    monkeypatch.setattr(alter_columns, "_SET_EXPRESSION", 990000)
    before = recorded(target)
    assert follow(source, target, "ALTER TABLE t ALTER g SET EXPRESSION AS (n * 10)") == []
    assert rows(target, table_of(target)) == rows(source, table_of(source))
    # What went with it is there again.
    assert recorded(target) == before
    assert "by_g" in {index.name for index in table_of(target).indexes}


@pytest.mark.parametrize(
    ("array", "element"),
    [
        (None, None),
        ("{7}", "7"),
        ("{NULL}", None),
        ('{"NULL"}', "NULL"),
        ('{""}', ""),
        ('{"{1,2}"}', "{1,2}"),
        ('{"a\\\\b\\"c"}', 'a\\b"c'),
    ],
)
def test_the_value_of_rows_that_are_older(array: str | None, element: str | None) -> None:
    assert first_element(array) == element
