"""What a copy has to read, as the catalogue tells it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql

from penstock.model.table_definition import TableDefinition
from penstock.model.table_name import TableName
from penstock.model.table_schema import TableSchema
from penstock.pgoutput.messages import Relation, parse_message
from penstock.source.postgres.capture.relations import RelationDescriber
from penstock.source.postgres.catalogue.definitions import read_definitions
from penstock.source.postgres.catalogue.tables import resolve_types
from penstock.source.postgres.snapshot.reading import written
from penstock.source.postgres.snapshot.relations import CopyRelations, CopySources, read_relations
from tests.application_session import connect

Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def conn(database: str) -> Iterator[Connection]:
    with connect(database) as connection:
        yield connection


def read(
    conn: Connection, *names: str, publications: tuple[str, ...] = (), **where: str
) -> CopySources:
    tables = [TableName("public", name) for name in names]
    definitions = read_definitions(conn, tables, publications)
    conditions = {f"public.{name}": condition for name, condition in where.items()}
    return read_relations(conn, definitions, publications, conditions)


def read_one(
    conn: Connection, name: str, publications: tuple[str, ...] = (), **where: str
) -> CopyRelations:
    sources = read(conn, name, publications=publications, **where)
    assert not sources.refused
    (found,) = sources.found.values()
    return found


def refusal(conn: Connection, name: str) -> tuple[str, str]:
    sources = read(conn, name)
    assert not sources.found
    (error,) = sources.refused.values()
    return error.message, error.remedy


@pytest.mark.every_postgres
def test_sizes_count_heap_and_toast(conn: Connection) -> None:
    conn.execute(
        "CREATE TABLE t (id int, long text); ALTER TABLE t ALTER long SET STORAGE EXTERNAL;"
        " INSERT INTO t SELECT i, repeat('x', 50000) FROM generate_series(1, 100) i"
    )
    found = read_one(conn, "t")
    (relation,) = found.relations
    row = conn.execute(
        "SELECT 't'::regclass::oid::bigint, pg_relation_filenode('t')::bigint,"
        " pg_relation_size('t') / 8192, pg_relation_size('t')"
    ).fetchone()
    assert row is not None
    assert (relation.oid, relation.file, relation.blocks) == row[:3]
    assert (relation.schema, relation.name) == ("public", "t")
    assert relation.bytes > row[3] + 100 * 50000
    assert found.columns == ("id", "long")
    assert (found.condition, found.is_partitioned) == (None, False)


@pytest.mark.every_postgres
def test_partitions_are_read_by_leaf(conn: Connection) -> None:
    conn.execute(
        """
        CREATE SCHEMA other;
        CREATE TABLE root (id int, kind text) PARTITION BY LIST (kind);
        CREATE TABLE other.a PARTITION OF root FOR VALUES IN ('a');
        CREATE TABLE b PARTITION OF root FOR VALUES IN ('b') PARTITION BY RANGE (id);
        CREATE TABLE b_low PARTITION OF b FOR VALUES FROM (0) TO (10);
        CREATE TABLE b_high PARTITION OF b FOR VALUES FROM (10) TO (20);
        CREATE TABLE hollow (id int) PARTITION BY RANGE (id);
        INSERT INTO root VALUES (1, 'b'), (11, 'b');
        """
    )
    found = read_one(conn, "root")
    assert found.is_partitioned
    assert [(r.schema, r.name, r.blocks) for r in found.relations] == [
        ("other", "a", 0),
        ("public", "b_high", 1),
        ("public", "b_low", 1),
    ]
    assert read_one(conn, "hollow").relations == ()


@pytest.mark.every_postgres
def test_a_parent_stands_for_its_own_rows(conn: Connection) -> None:
    conn.execute("CREATE TABLE parent (id int); CREATE TABLE child (more int) INHERITS (parent)")
    assert [relation.name for relation in read_one(conn, "parent").relations] == ["parent"]


@pytest.mark.every_postgres
def test_unlogged_and_columnless_tables_can_be_read(conn: Connection) -> None:
    conn.execute(
        "CREATE UNLOGGED TABLE u (id int); CREATE TABLE n (); INSERT INTO n DEFAULT VALUES"
    )
    sources = read(conn, "u", "n")
    assert [source.columns for source in sources.found.values()] == [("id",), ()]


def ids_where(conn: Connection, condition: str) -> list[int]:
    query = sql.SQL("SELECT id FROM t WHERE {} ORDER BY 1").format(written(condition))
    return [row[0] for row in conn.execute(query)]


@pytest.mark.every_postgres
def test_what_a_condition_is_made_of(conn: Connection) -> None:
    conn.execute("CREATE TABLE t (id int PRIMARY KEY, note text)")
    found = read_one(conn, "t", t="note <> 'x' -- not those")
    assert (found.row_filter, found.where) == (None, "note <> 'x' -- not those")
    conn.execute("INSERT INTO t VALUES (1, 'a'), (2, 'x'), (3, NULL)")
    assert found.condition is not None
    assert ids_where(conn, found.condition) == [1]


@pytest.mark.every_postgres
def test_row_filters_of_publications(conn: Connection, pg_version: int) -> None:
    if pg_version < 15:
        pytest.skip("row filters came with 15")
    conn.execute(
        """
        CREATE TABLE t (id int PRIMARY KEY, mood text);
        ALTER TABLE t REPLICA IDENTITY FULL;
        CREATE PUBLICATION small FOR TABLE t WHERE (id < 10);
        CREATE PUBLICATION glad FOR TABLE t WHERE (mood = 'glad');
        CREATE PUBLICATION whole FOR TABLE t;
        INSERT INTO t VALUES (1, 'sad'), (20, 'sad'), (30, 'glad');
        """
    )
    ids = {}
    for names in (("small",), ("small", "glad"), ("small", "whole"), ()):
        ids[names] = ids_where(conn, read_one(conn, "t", names).condition or "true")
    assert ids == {
        ("small",): [1],
        ("small", "glad"): [1, 30],
        ("small", "whole"): [1, 20, 30],
        (): [1, 20, 30],
    }
    both = read_one(conn, "t", ("small",), t="mood = 'glad'")
    assert both.condition is not None
    assert ids_where(conn, both.condition) == []


def announced(conn: Connection, publication: str, table: str) -> TableSchema:
    """The table as the stream describes it before its first change."""
    rows = conn.execute(
        "SELECT data FROM pg_logical_slot_get_binary_changes('s', NULL, NULL,"
        " 'proto_version', '1', 'publication_names', %s)",
        [publication],
    )
    decoded = (parse_message(row[0]) for row in rows)
    relations = [m for m in decoded if isinstance(m, Relation) and m.name == table]
    return RelationDescriber(lambda oids: resolve_types(conn, oids))(relations[-1])


INSERTS = {
    "plain": "INSERT INTO plain (id, part) VALUES (1, 2)",
    "by_index": "INSERT INTO by_index VALUES (1, 2)",
    "all_of_it": "INSERT INTO all_of_it VALUES (1, 'b')",
    "root": "INSERT INTO root VALUES (1, now())",
    "listed": "INSERT INTO listed VALUES (1, 's', 't')",
}


@pytest.mark.every_postgres
def test_a_table_is_described_as_the_stream_does(conn: Connection, pg_version: int) -> None:
    conn.execute(
        """
        CREATE TYPE mood AS ENUM ('a');
        CREATE DOMAIN price AS numeric(12, 2);
        CREATE TABLE plain (gone int, id bigint, part int, m mood, p price[], v varchar(7),
                            twice bigint GENERATED ALWAYS AS (id * 2) STORED,
                            PRIMARY KEY (part, id) INCLUDE (v));
        ALTER TABLE plain DROP COLUMN gone;
        CREATE TABLE by_index (a int NOT NULL, b int NOT NULL);
        CREATE UNIQUE INDEX by_b ON by_index (b);
        ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_b;
        CREATE TABLE all_of_it (a int, b text);
        ALTER TABLE all_of_it REPLICA IDENTITY FULL;
        CREATE TABLE root (id int PRIMARY KEY, t timestamptz(3)) PARTITION BY RANGE (id);
        CREATE TABLE leaf (t timestamptz(3), id int PRIMARY KEY);
        ALTER TABLE root ATTACH PARTITION leaf FOR VALUES FROM (0) TO (10);
        CREATE PUBLICATION p FOR TABLE plain, by_index, all_of_it, root
            WITH (publish_via_partition_root = true);
        """
    )
    names = ["plain", "by_index", "all_of_it", "root"]
    if pg_version >= 15:
        conn.execute(
            "CREATE TABLE listed (id int PRIMARY KEY, secret text, shown text);"
            " ALTER PUBLICATION p ADD TABLE listed (shown, id)"
        )
        names.append("listed")
    if pg_version >= 18:
        conn.execute("ALTER PUBLICATION p SET (publish_generated_columns = stored)")
    conn.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    found = {s.table.name: s for s in read(conn, *names, publications=("p",)).found.values()}
    for name in names:
        conn.execute(INSERTS[name].encode())
        assert found[name].table == announced(conn, "p", name)
    assert found["plain"].column_types[2:4] == ("public.mood", "public.price[]")


@pytest.mark.every_postgres
def test_what_cannot_be_read_is_refused_with_a_reason(
    conn: Connection, database: str, pg_version: int
) -> None:
    conn.execute(
        """
        CREATE ROLE reader_of_copies LOGIN;
        CREATE EXTENSION file_fdw;
        CREATE SERVER files FOREIGN DATA WRAPPER file_fdw;
        CREATE TABLE root (id int) PARTITION BY RANGE (id);
        CREATE FOREIGN TABLE far PARTITION OF root FOR VALUES FROM (0) TO (10)
            SERVER files OPTIONS (filename '/nowhere');
        CREATE TABLE private (id int);
        CREATE TABLE guarded (id int);
        ALTER TABLE guarded ENABLE ROW LEVEL SECURITY;
        GRANT SELECT ON guarded TO reader_of_copies;
        """
    )
    try:
        message, remedy = refusal(conn, "root")
        assert "public.root cannot be copied: its partition public.far is a foreign" in message
        assert 'DETACH PARTITION "public"."far"' in remedy
        with connect(f"{database}?user=reader_of_copies") as limited:
            message, remedy = refusal(limited, "private")
            assert "role reader_of_copies may not read public.private" in message
            assert 'GRANT SELECT ON "public"."private" TO "reader_of_copies"' in remedy
            message, remedy = refusal(limited, "guarded")
            assert "row level security" in message
            assert "BYPASSRLS" in remedy
    finally:
        conn.execute("DROP OWNED BY reader_of_copies; DROP ROLE reader_of_copies")


def test_views_and_foreign_tables_are_refused(conn: Connection) -> None:
    conn.execute("CREATE VIEW v AS SELECT 1 AS id; CREATE MATERIALIZED VIEW m AS SELECT 1 AS id")
    for name, kind in (("v", "a view"), ("m", "a materialised view")):
        row = conn.execute("SELECT to_regclass(%s)::oid::bigint", [name]).fetchone()
        assert row is not None
        definition = TableDefinition(row[0], "public", name, "n", ())
        sources = read_relations(conn, [definition], (), {})
        assert f"it is {kind}" in sources.refused[row[0]].message


def test_a_table_that_is_gone_is_in_no_answer(conn: Connection) -> None:
    conn.execute("CREATE TABLE t (id int)")
    definitions = read_definitions(conn, [TableName("public", "t")], ())
    conn.execute("DROP TABLE t")
    sources = read_relations(conn, definitions, (), {})
    assert (sources.found, sources.refused) == ({}, {})


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE t RENAME a TO x; ALTER TABLE t RENAME b TO a; ALTER TABLE t RENAME x TO b",
        "ALTER TABLE t ALTER a TYPE bigint",
        "ALTER TABLE t DROP a; ALTER TABLE t ADD a int",
    ],
)
def test_a_table_with_other_columns_than_were_told_is_in_no_answer(
    conn: Connection, change: LiteralString
) -> None:
    """Its rows would be read in one form and written in another."""
    conn.execute("CREATE TABLE t (id int, a int, b text)")
    definitions = read_definitions(conn, [TableName("public", "t")], ())
    conn.execute("ALTER TABLE t ADD more text")
    assert read_relations(conn, definitions, (), {}).found.keys() == {definitions[0].oid}
    conn.execute(change)
    sources = read_relations(conn, definitions, (), {})
    assert (sources.found, sources.refused) == ({}, {})


def test_many_tables_take_as_many_queries_as_one(conn: Connection, database: str) -> None:
    for number in range(30):
        conn.execute(f"CREATE TABLE t{number} (id int, m{number} text)".encode())
    conn.execute("CREATE TYPE mood AS ENUM ('a'); ALTER TABLE t3 ADD m mood")
    tables = [TableName("public", f"t{number}") for number in range(30)]
    definitions = read_definitions(conn, tables, ())
    with connect(database) as counted:
        sent: list[object] = []

        class Counting(psycopg.Cursor[Any]):
            def execute(self, query: Any, *rest: Any, **named: Any) -> Any:
                sent.append(query)
                return super().execute(query, *rest, **named)

        counted.cursor_factory = Counting
        found = read_relations(counted, definitions, (), {}).found
        for_all, sent[:] = len(sent), []
        read_relations(counted, definitions[3:4], (), {})
        assert len(found) == 30
        assert for_all == len(sent)
