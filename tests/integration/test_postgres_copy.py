"""Copies into Postgres: what goes into the target, what is refused, and what goes on beside it."""

from __future__ import annotations

import pickle
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from penstock.destination.postgres.copying import chunk_writer
from penstock.destination.postgres.copying.chunk_writer import PostgresChunkWriter
from penstock.destination.postgres.destination import PostgresDestination
from penstock.destination.postgres.sessions.session import session_name
from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.errors import DestinationError, Fenced, TableRefused
from penstock.model.lsn import Frontier
from penstock.model.table_definition import TableDefinition
from penstock.model.table_rows import ChunkReader, TableRows
from penstock.model.table_schema import TableSchema
from penstock.model.watermarks import Watermarks
from penstock.source.postgres.catalogue.definitions import read_definitions
from penstock.source.postgres.catalogue.tables import read_tables
from penstock.testing.change_builder import UNSET, ChangeBuilder, Column, table
from penstock.testing.contract.chunk_rows import SNAPSHOT, ChunkRows, copy_chunks, table_schema
from penstock.testing.contract.deliveries import definition, deliver_cut
from tests.application_session import connect
from tests.fix_pipeline import wait_until
from tests.fix_target import Target, as_texts, end_task_sessions

ITEMS = table("items", Column("id", "int8", key=True), Column("v", "text"))
LATER = table("later", Column("id", "int8", key=True), Column("v", "text"))
OTHER = table("other", Column("id", "int8", key=True), Column("v", "text"))
ROWS = [("1", "a"), ("2", None), ("3", "c")]


@pytest.fixture
def builder() -> ChangeBuilder:
    return ChangeBuilder()


class SourceRows(ChunkReader):
    """All rows of a real table, as its server copies them out."""

    chunk = "0"
    snapshot = SNAPSHOT

    def __init__(self, url: str, name: str, schema: TableSchema) -> None:
        self.table = schema
        self._url = url
        self._name = name
        self.forms: list[bool] = []

    def raw(self, *, binary: bool) -> Iterator[bytes]:
        self.forms.append(binary)
        form = "binary" if binary else "text"
        with psycopg.connect(self._url) as conn, conn.cursor() as cursor:
            statement = f"COPY {self._name} TO STDOUT (FORMAT {form})".encode()
            with cursor.copy(statement) as copy:
                for piece in copy:
                    yield bytes(piece)

    def texts(self) -> Iterator[TableRows]:
        raise NotImplementedError

    def typed(self) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError


def source_table(url: str, statements: str) -> TableDefinition:
    with connect(url) as conn:
        conn.execute(statements.encode())
        names = [found.table_name for found in read_tables(conn)]
        return as_texts(*read_definitions(conn, names, ()))


@pytest.mark.parametrize(
    ("columns", "value", "binary"),
    [
        ("a bigint, b numeric(9,2), c timestamp(3) with time zone", "7, 1.25, now()", True),
        ("a text[], b jsonb, c varchar(9), d double precision", "'{a,NULL}', '{}', 'x', 0.1", True),
        (
            "a bytea, b uuid, c inet, d bit(3), e tstzrange",
            "'\\x00', NULL, NULL, '101', NULL",
            True,
        ),
        ("a interval", "'1 day'", False),
        ("a bigint, b mood", "1, 'ok'", False),
        ("a bigint, b small", "1, 5", False),
    ],
)
def test_bytes_pass_as_the_source_sends_them(
    database: str, target: Target, columns: str, value: str, binary: bool
) -> None:
    made = source_table(
        database,
        "CREATE TYPE mood AS ENUM ('ok'); CREATE DOMAIN small AS int;"
        f"CREATE TABLE t (id int PRIMARY KEY, {columns})",
    )
    with psycopg.connect(database) as conn:
        filled = f"INSERT INTO t SELECT i, {value} FROM generate_series(1, 5) i"  # noqa: S608
        conn.execute(filled.encode())
    destination = target.opened(made)
    destination.truncate_table(made)
    columns_of = [Column(c.name, "text", key=c.name == "id") for c in made.columns]
    of = table("t", *columns_of, oid=made.oid)
    rows = SourceRows(database, "t", table_schema(of))
    receipt = destination.chunk_writer(made).write(rows)
    assert rows.forms == [binary]
    assert (receipt.rows, receipt.bytes > 0) == (5, True)
    with psycopg.connect(database) as conn:
        conn.execute("SET timezone = 'UTC'")
        expected = Counter(row for (row,) in conn.execute("SELECT t::text FROM t"))
    assert Counter(row for (row,) in target.all("SELECT t::text FROM t")) == expected


def test_a_target_of_a_wider_type_takes_texts(target: Target) -> None:
    narrow = table("items", Column("id", "int4", key=True), Column("v", "text"))
    target.execute("CREATE TABLE items (id bigint PRIMARY KEY, v text, extra int DEFAULT 4)")
    destination = target.opened(definition(narrow))
    writer = destination.chunk_writer(definition(narrow))
    assert isinstance(writer, PostgresChunkWriter)
    assert not writer.binary
    copy_chunks(destination, ChunkRows(narrow, "0", ROWS))
    assert target.rows("items") == {("1", "a", "4"): 1, ("2", None, "4"): 1, ("3", "c", "4"): 1}


def test_a_chunk_that_stands_says_what_it_was(target: Target) -> None:
    destination = target.opened(definition(ITEMS))
    writer = destination.chunk_writer(definition(ITEMS))
    first = writer.write(ChunkRows(ITEMS, "0", ROWS))
    assert writer.write(ChunkRows(ITEMS, "0", [])) == first
    assert target.all("SELECT chunk, rows, bytes FROM penstock.copied_chunk") == [
        ("0", 3, first.bytes)
    ]


def test_a_writer_that_is_frozen_holds_up_nobody(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the chunk in a transaction that it does not go on with: a machine that sleeps."""
    monkeypatch.setattr(chunk_writer, "_PATIENCE", 0.3)
    destination = target.opened(definition(ITEMS))
    writer = destination.chunk_writer(definition(ITEMS))
    assert isinstance(writer, PostgresChunkWriter)
    name = session_name(writer.pipeline, "copy")
    with psycopg.connect(target.url, application_name=name) as frozen:
        frozen.execute(
            "INSERT INTO penstock.copied_chunk (pipeline, source_table, chunk)"
            " VALUES (%s, %s, '0')",
            [writer.pipeline, ITEMS.oid],
        )
        assert writer.write(ChunkRows(ITEMS, "0", ROWS)).rows == 3
        with pytest.raises(psycopg.errors.AdminShutdown):
            frozen.execute("SELECT 1")
    assert len(target.rows("items")) == 3


def test_a_task_of_a_copy_that_was_given_up_writes_nothing(target: Target) -> None:
    destination = target.opened(definition(ITEMS))
    destination.truncate_table(definition(ITEMS))
    stale = destination.chunk_writer(definition(ITEMS))
    destination.truncate_table(definition(ITEMS))
    with pytest.raises(Fenced, match="chunk 0 belongs to was given up"):
        stale.write(ChunkRows(ITEMS, "0", ROWS))
    assert target.rows("items") == {}
    copy_chunks(destination, ChunkRows(ITEMS, "0", [("9", "z")]))
    assert target.rows("items") == {("9", "z"): 1}


@pytest.mark.parametrize("again", [False, True])
class TestRefusals:
    def test_name_table_chunk_and_cause(self, target: Target, again: bool) -> None:
        target.execute("CREATE TABLE items (id bigint PRIMARY KEY, v text CHECK (v <> 'b'))")
        destination = target.opened(definition(ITEMS))
        bad = ChunkRows(ITEMS, "7", [("1", "a"), ("2", "b")])
        with pytest.raises(
            TableRefused, match=r"public\.items: .* chunk 7, .*items_v_check"
        ) as why:
            copy_chunks(destination, bad, again=again)
        assert why.value.table == ITEMS.oid
        assert target.rows("items") == {}
        copy_chunks(destination, ChunkRows(ITEMS, "7", [("1", "a")]), again=again)
        assert target.rows("items") == {("1", "a"): 1}

    def test_become_dead_letters_if_asked_for(self, target: Target, again: bool) -> None:
        target.execute("CREATE TABLE items (id bigint PRIMARY KEY, v text CHECK (v <> 'b'))")
        destination = target.opened(definition(ITEMS), dead_letter=True)
        rows = [("1", "a"), ("2", "b"), ("3", "c"), ("4", "b"), ("5", None)]
        for _ in range(2):
            copy_chunks(destination, ChunkRows(ITEMS, "0", rows, piece=3), again=again)
        assert target.rows("items") == {("1", "a"): 1, ("3", "c"): 1, ("5", None): 1}
        assert target.all(
            "SELECT op, commit_lsn::text, row_values, sqlstate FROM penstock.dead_letter"
            " ORDER BY id"
        ) == [
            ("read", "0/50", {"id": "2", "v": "b"}, "23514"),
            ("read", "0/50", {"id": "4", "v": "b"}, "23514"),
        ]
        assert destination.dead_letters() == {"public.items": 2}


def test_triggers_are_off(target: Target) -> None:
    target.execute(
        "CREATE TABLE items (id bigint PRIMARY KEY, v text);"
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE 'fired'; END $$;"
        "CREATE TRIGGER t BEFORE INSERT OR TRUNCATE ON items EXECUTE FUNCTION refuse()"
    )
    destination = target.opened(definition(ITEMS))
    destination.truncate_table(definition(ITEMS))
    copy_chunks(destination, ChunkRows(ITEMS, "0", ROWS))
    copy_chunks(destination, ChunkRows(ITEMS, "1", ROWS), again=True)
    assert target.rows("items") == Counter(ROWS)


def test_rows_that_somebody_else_put_there(target: Target) -> None:
    target.execute("CREATE TABLE items (id bigint PRIMARY KEY, v text)")
    target.execute("INSERT INTO items VALUES (7, 'theirs')")
    destination = target.opened(definition(ITEMS), definition(OTHER))
    assert destination.has_foreign_rows(definition(ITEMS))
    assert not destination.has_foreign_rows(definition(OTHER))
    # A person says that they may go, or removes them.
    destination = target.opened(definition(ITEMS), definition(OTHER))
    assert destination.has_foreign_rows(definition(ITEMS))
    destination.truncate_table(definition(ITEMS))
    copy_chunks(destination, ChunkRows(ITEMS, "0", ROWS), ChunkRows(OTHER, "0", ROWS))
    destination = target.opened(definition(ITEMS), definition(OTHER))
    assert not destination.has_foreign_rows(definition(ITEMS))
    assert not destination.has_foreign_rows(definition(OTHER))


def test_rows_that_the_stream_put_there_are_ours(target: Target, builder: ChangeBuilder) -> None:
    target.execute("CREATE TABLE items (id bigint PRIMARY KEY, v text)")
    destination = target.opened(definition(ITEMS))
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
    deliver_cut(destination, builder)
    assert not target.opened(definition(ITEMS)).has_foreign_rows(definition(ITEMS))


def test_a_table_that_somebody_refers_to_is_emptied_row_by_row(target: Target) -> None:
    target.execute(
        "CREATE TABLE items (id bigint PRIMARY KEY, v text);"
        "CREATE TABLE child (item bigint REFERENCES items); INSERT INTO items VALUES (7, 'x')"
    )
    destination = target.opened(definition(ITEMS))
    destination.truncate_table(definition(ITEMS))
    assert target.rows("items") == {}


def test_the_key_of_a_created_table_that_somebody_refers_to_stays(target: Target) -> None:
    destination = target.opened(definition(ITEMS))
    target.execute("CREATE TABLE child (item bigint REFERENCES items)")
    destination.truncate_table(definition(ITEMS))
    copy_chunks(destination, ChunkRows(ITEMS, "0", ROWS))
    destination.finish_copy(definition(ITEMS))
    assert target.rows("items") == Counter(ROWS)
    assert target.all("SELECT count(*) FROM pg_constraint WHERE conname = 'items_pkey'") == [(1,)]


def test_numbers_go_on_after_the_copied_ones(database: str, target: Target) -> None:
    made = source_table(database, "CREATE TABLE items (id bigserial PRIMARY KEY, v text)")
    destination = target.opened(made)
    destination.truncate_table(made)
    of = table("items", *ITEMS.columns, oid=made.oid)
    destination.chunk_writer(made).write(ChunkRows(of, "0", ROWS))
    destination.finish_copy(made)
    target.execute("INSERT INTO items (v) VALUES ('ours')")
    assert target.rows("items") == Counter([*ROWS, ("4", "ours")])


def test_a_table_that_was_made_anew_has_no_chunks(target: Target) -> None:
    destination = target.opened(definition(ITEMS))
    copy_chunks(destination, ChunkRows(ITEMS, "0", ROWS))
    target.execute("DROP TABLE items")
    destination = target.opened(definition(ITEMS))
    copy_chunks(destination, ChunkRows(ITEMS, "0", ROWS))
    assert target.rows("items") == Counter(ROWS)


def test_a_history_keeps_what_it_has(target: Target, builder: ChangeBuilder) -> None:
    destination = target.opened(definition(ITEMS), mode="append")
    copy_chunks(destination, ChunkRows(ITEMS, "0", ROWS[:1]))
    assert not destination.has_foreign_rows(definition(ITEMS))
    destination.truncate_table(definition(ITEMS))
    later = Frontier(0x90, 0x98)
    copy_chunks(destination, ChunkRows(ITEMS, "0", [("1", "b")], later), again=True)
    destination.finish_copy(definition(ITEMS))
    destination.replaying([ITEMS.oid])
    with builder.transaction():
        builder.update(ITEMS, "1", UNSET)
    deliver_cut(destination, builder)
    destination.complete_table(definition(ITEMS))
    assert destination.parked_keys(ITEMS.oid) == ()
    assert target.all("SELECT id, v, _op, _commit_lsn::text FROM items ORDER BY _commit_lsn") == [
        (1, "a", "read", "0/50"),
        (1, "b", "read", "0/90"),
        (1, None, "update", target.all("SELECT max(_commit_lsn)::text FROM items")[0][0]),
    ]


class TestBesideTheStream:
    def catch_up(
        self, destination: PostgresDestination, builder: ChangeBuilder, frontier: Frontier
    ) -> None:
        writer = pickle.loads(pickle.dumps(destination.catchup_writer([ITEMS.oid])))  # noqa: S301
        receipt = writer.write([builder.cut()])
        destination.commit([receipt], Watermarks(frontier, {ITEMS.oid: builder.frontier}))

    def test_a_table_catches_up_between_two_batches(
        self, target: Target, builder: ChangeBuilder
    ) -> None:
        destination = target.opened(definition(ITEMS), definition(OTHER), on_conflict="error")
        destination.truncate_table(definition(ITEMS))
        copy_chunks(destination, ChunkRows(ITEMS, "0", ROWS))
        destination.finish_copy(definition(ITEMS))
        destination.replaying([ITEMS.oid])
        stream = ChangeBuilder(first_lsn=0x9_0000_0010)
        with stream.transaction():
            stream.insert(OTHER, "1", "streamed")
        ordinary = destination.writer().write([stream.cut()])
        with builder.transaction():
            builder.insert(ITEMS, "1", "was there")
            builder.update(ITEMS, "8", "was not there")
            builder.update(ITEMS, "9", UNSET)
            builder.delete(ITEMS, key=["3", None])
            builder.delete(ITEMS, key=["4", None])
        self.catch_up(destination, builder, Frontier(0x10, 0x18))
        destination.commit([ordinary], Watermarks(stream.frontier, {ITEMS.oid: builder.frontier}))
        behind = {ITEMS.oid: builder.frontier}
        assert destination.committed() == Watermarks(stream.frontier, behind)
        assert target.rows("other") == {("1", "streamed"): 1}
        assert target.rows("items") == {
            ("1", "was there"): 1,
            ("2", None): 1,
            ("8", "was not there"): 1,
        }
        assert destination.parked_keys(ITEMS.oid) == (("9",),)
        # What is parked outlives the driver.
        destination = target.opened(definition(ITEMS), definition(OTHER))
        assert destination.parked_keys(ITEMS.oid) == (("9",),)
        rows = next(ChunkRows(ITEMS, "", [("8", "read"), ("9", "again")]).texts())
        destination.settle_parked(rows, [("9",), ("8",), ("2",), ("77",)])
        assert target.rows("items") == {
            ("1", "was there"): 1,
            ("8", "read"): 1,
            ("9", "again"): 1,
        }
        assert destination.parked_keys(ITEMS.oid) == ()

    def test_a_row_that_the_target_refuses(self, target: Target, builder: ChangeBuilder) -> None:
        target.execute("CREATE TABLE items (id bigint PRIMARY KEY, v text CHECK (v <> 'b'))")
        destination = target.opened(definition(ITEMS), dead_letter=True)
        copy_chunks(destination, ChunkRows(ITEMS, "0", ROWS))
        destination.replaying([ITEMS.oid])
        with builder.transaction():
            builder.update(ITEMS, "1", "b")
            builder.insert(ITEMS, "2", "new")
            builder.update(ITEMS, "9", UNSET)
        self.catch_up(destination, builder, Frontier(0x10, 0x18))
        assert target.rows("items") == {("1", "a"): 1, ("2", "new"): 1, ("3", "c"): 1}
        assert target.all("SELECT op, row_values FROM penstock.dead_letter") == [
            ("update", {"id": "1", "v": "b"})
        ]
        assert destination.parked_keys(ITEMS.oid) == (("9",),)


def test_a_table_that_is_dropped(target: Target, database: str) -> None:
    made = source_table(database, "CREATE TABLE items (id bigserial PRIMARY KEY, v text)")
    destination = target.opened(made)
    of = table("items", *ITEMS.columns, oid=made.oid)
    destination.truncate_table(made)
    destination.chunk_writer(made).write(ChunkRows(of, "0", ROWS))
    destination.catchup_writer([made.oid])
    target.execute("CREATE VIEW seen AS SELECT * FROM items")
    with pytest.raises(DestinationError, match=r"view public\.seen depends on"):
        destination.drop_table(made)
    target.execute("DROP VIEW seen")
    destination.drop_table(made)
    assert target.all("SELECT relname FROM pg_class WHERE relname ~ '^(items|stage_shop_)'") == []
    for name in ("copied_chunk", "parked_key", "target_table", "target_object"):
        assert target.all(f"SELECT count(*) FROM penstock.{name}") == [(0,)]  # noqa: S608
    assert destination.forget() != ()


def test_least_privilege(pg_server: EmbeddedPostgres, target: Target) -> None:
    """A role that owns nothing but Penstock's own schema copies into tables that exist."""
    role = f"least_{uuid.uuid4().hex}"
    name = sql.Identifier(role)
    target.execute("CREATE TABLE items (id bigint PRIMARY KEY, v text)")
    target.execute("INSERT INTO items VALUES (7, 'theirs')")
    for statement in (
        "CREATE ROLE {} LOGIN",
        "CREATE SCHEMA penstock AUTHORIZATION {}",
        "GRANT USAGE ON SCHEMA public TO {}",
        "GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON items TO {}",
    ):
        target.conn.execute(sql.SQL(statement).format(name))
    try:
        url = pg_server.url(target.conn.info.dbname, role)
        destination = target.opened(definition(ITEMS), url=url)
        assert destination.has_foreign_rows(definition(ITEMS))
        destination.truncate_table(definition(ITEMS))
        copy_chunks(destination, ChunkRows(ITEMS, "0", ROWS))
        copy_chunks(destination, ChunkRows(ITEMS, "1", [("3", "d")]), again=True)
        destination.finish_copy(definition(ITEMS))
        destination.complete_table(definition(ITEMS))
        assert target.rows("items") == {("1", "a"): 1, ("2", None): 1, ("3", "d"): 1}
        destination.close()
        end_task_sessions()
    finally:
        target.conn.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(name))
        target.conn.execute(sql.SQL("DROP ROLE {}").format(name))


def test_a_copy_does_not_wait_for_the_stream(target: Target, builder: ChangeBuilder) -> None:
    """Nor the other way round: each has a session of its own."""
    destination = target.opened(definition(ITEMS), definition(OTHER))
    destination.truncate_table(definition(ITEMS))
    copy_chunks(destination, ChunkRows(ITEMS, "0", ROWS))
    with builder.transaction():
        builder.insert(OTHER, "1", "streamed")
    with target.conn.transaction(), ThreadPoolExecutor(1) as pool:
        # A commit that stands still in the middle.
        target.execute("LOCK TABLE other")
        receipt = destination.writer().write([builder.cut()])
        commit = pool.submit(destination.commit, [receipt], Watermarks(builder.frontier))
        wait_until(
            lambda: target.all("SELECT 1 FROM pg_locks WHERE NOT granted"), "the commit waits"
        )
        copy_chunks(destination, ChunkRows(ITEMS, "1", [("4", "d")]))
        destination.finish_copy(definition(ITEMS))
        destination.complete_table(definition(ITEMS))
        destination.prepare([definition(ITEMS), definition(LATER)])
        assert not commit.done()
        target.execute("COMMIT; BEGIN")
        commit.result(60)
    assert target.rows("other") == {("1", "streamed"): 1}
    assert len(target.rows("items")) == 4
