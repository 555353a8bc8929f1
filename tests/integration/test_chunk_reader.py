"""Chunks as executors read them: the rows of one snapshot, and what can come in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from penstock.config.connection_url import ConnectionUrl
from penstock.config.models import PipelineConfig
from penstock.model.errors import (
    PenstockError,
    RowsRefused,
    SnapshotGone,
    SourceError,
    SourceUnavailable,
    TableRewritten,
)
from penstock.model.lsn import NOTHING
from penstock.model.table_name import TableName
from penstock.model.table_schema import TableSchema
from penstock.source.copy_plan import Chunk
from penstock.source.postgres.catalogue.definitions import read_definitions
from penstock.source.postgres.copy_source import PostgresCopySource
from penstock.source.postgres.snapshot.chunk_reader import SourceChunkReader
from penstock.source.postgres.snapshot.keys import read_keys
from penstock.source.postgres.snapshot.reading import ExportedSnapshot
from penstock.source.postgres.snapshot.relations import read_relations
from penstock.source.postgres.snapshot.snapshot_record import HeldSnapshot
from penstock.source.postgres.snapshot.source_session import APPLICATION, close_idle_sessions
from tests.application_session import connect

if TYPE_CHECKING:
    from tests.fix_copy import Connection, Copies

pytest_plugins = ["tests.fix_copy"]


@pytest.fixture
def conn(database: str) -> Iterator[Connection]:
    with connect(database) as connection:
        yield connection


@pytest.mark.every_postgres
def test_pieces_are_large_and_of_whole_rows(conn: Connection, copy_of: Copies) -> None:
    conn.execute("CREATE TABLE t AS SELECT i, repeat('x', 80) FROM generate_series(1, 10000) i")
    pieces = list(copy_of("t").reader().raw(binary=False))
    assert all(piece.endswith(b"\n") for piece in pieces)
    assert all(len(piece) >= 256 * 1024 for piece in pieces[:-1])
    assert b"".join(pieces).count(b"\n") == 10000


@pytest.mark.every_postgres
def test_chunks_have_each_row_of_the_snapshot_once(conn: Connection, copy_of: Copies) -> None:
    conn.execute(
        "CREATE TABLE t (id int PRIMARY KEY, note text) WITH (autovacuum_enabled = false);"
        " INSERT INTO t SELECT i, repeat('x', 500) FROM generate_series(1, 1000) i;"
        " DELETE FROM t WHERE id % 10 = 0"
    )
    copy = copy_of("t")
    conn.execute(
        "UPDATE t SET note = 'later'; DELETE FROM t WHERE id < 100;"
        " INSERT INTO t SELECT i, 'new' FROM generate_series(2000, 5000) i"
    )
    readers = copy.readers(5 * 8192)
    assert len(readers) > 10
    assert [reader.chunk for reader in readers] == [str(n) for n in range(len(readers))]
    rows = copy.rows(5 * 8192)
    assert Counter(rows) == Counter((str(i), "x" * 500) for i in range(1, 1001) if i % 10)


@pytest.mark.every_postgres
def test_rows_after_the_planned_blocks_are_in_the_last_chunk(
    conn: Connection, copy_of: Copies
) -> None:
    conn.execute("CREATE TABLE t (id int, note text)")
    (planned,) = read_definitions(conn, [TableName("public", "t")], ())
    early = read_relations(conn, [planned], (), {}).found[planned.oid]
    conn.execute("INSERT INTO t SELECT i, repeat('x', 500) FROM generate_series(1, 100) i")
    copy = copy_of("t")
    copy.source = early
    assert len(copy.rows()) == 100


@pytest.mark.every_postgres
def test_a_chunk_is_a_range_scan(conn: Connection, copy_of: Copies) -> None:
    conn.execute(
        "CREATE TABLE t AS SELECT i AS id, repeat('x', 500) FROM generate_series(1, 3000) i;"
        " ANALYZE t"
    )
    for reader in copy_of("t", where="id > 5").readers(40 * 8192):
        plan = conn.execute(sql.SQL("EXPLAIN ") + reader._select([sql.Identifier("id")]))
        assert "Tid Range Scan" in "".join(row[0] for row in plan)


@pytest.mark.every_postgres
def test_where_counts_in_every_form(conn: Connection, copy_of: Copies) -> None:
    conn.execute("CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 10) i")
    copy = copy_of("t", where="id > 7 -- the last ones")
    assert copy.rows() == [("8",), ("9",), ("10",)]
    assert b"".join(copy.reader().raw(binary=False)) == b"8\n9\n10\n"
    (batch,) = copy.reader().typed()
    assert batch.column("id").to_pylist() == [8, 9, 10]


@pytest.mark.every_postgres
def test_partitions_parents_and_tables_without_columns(conn: Connection, copy_of: Copies) -> None:
    conn.execute(
        """
        CREATE TABLE root (id int, kind text) PARTITION BY LIST (kind);
        CREATE TABLE a (kind text, junk int, id int);
        ALTER TABLE a DROP COLUMN junk;
        ALTER TABLE root ATTACH PARTITION a FOR VALUES IN ('a');
        CREATE TABLE b PARTITION OF root FOR VALUES IN ('b');
        INSERT INTO root VALUES (1, 'a'), (2, 'b');
        CREATE TABLE parent (id int);
        CREATE TABLE child (more int) INHERITS (parent);
        INSERT INTO parent VALUES (1);
        INSERT INTO child VALUES (2, 3);
        CREATE TABLE bare ();
        INSERT INTO bare DEFAULT VALUES;
        INSERT INTO bare DEFAULT VALUES;
        CREATE TABLE "Odd ""n"" ame" ("a b" int, "{}" text);
        INSERT INTO "Odd ""n"" ame" VALUES (1, '%s');
        CREATE TABLE hollow (id int);
        """
    )
    assert copy_of("root").rows() == [("1", "a"), ("2", "b")]
    assert copy_of("parent").rows() == [("1",)]
    assert copy_of('Odd "n" ame').rows() == [("1", "%s")]
    bare = copy_of("bare")
    assert bare.rows() == [(), ()]
    assert [batch.num_rows for batch in bare.reader().typed()] == [2]
    assert b"".join(bare.reader().raw(binary=False)) == b"\n\n"
    hollow = copy_of("hollow")
    assert hollow.rows() == []
    assert sum(batch.num_rows for batch in hollow.reader().typed()) == 0
    assert b"".join(hollow.reader().raw(binary=True)).endswith(b"\xff\xff")


@pytest.mark.every_postgres
@pytest.mark.parametrize(
    "change",
    [
        "TRUNCATE t",
        "VACUUM FULL t",
        "ALTER TABLE t ALTER id TYPE bigint",
        "ALTER TABLE t RENAME note TO remark",
        "ALTER TABLE t DROP COLUMN note",
        # What took its name is of another type, and no row was touched.
        "ALTER TABLE t RENAME note TO was_note; ALTER TABLE t ADD COLUMN note bigint",
        "ALTER TABLE t RENAME TO u",
        "ALTER TABLE t RENAME TO u; CREATE TABLE t (id int, note text)",
        "DROP TABLE t",
    ],
)
def test_a_table_that_was_rewritten_is_not_read(
    conn: Connection, copy_of: Copies, change: str
) -> None:
    conn.execute("CREATE TABLE t (id int, note text); INSERT INTO t VALUES (1, 'a')")
    copy = copy_of("t")
    # What the holder looked up locks the table.
    reader, oid = copy.reader(), copy.definition.oid
    conn.execute(change.encode())
    for read in (reader.texts, lambda: reader.raw(binary=True)):
        with pytest.raises(TableRewritten, match=r"public\.t is not what it was") as caught:
            list(read())
        assert caught.value.table == oid


def test_a_relation_is_locked_while_it_is_read(conn: Connection, copy_of: Copies) -> None:
    conn.execute("CREATE TABLE t AS SELECT i, repeat('x', 500) FROM generate_series(1, 2000) i")
    reading = copy_of("t").reader().raw(binary=False)
    next(reading)
    conn.execute("SET lock_timeout = '20ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        conn.execute("TRUNCATE t")
    assert len(list(reading)) > 1
    conn.execute("TRUNCATE t")


@pytest.mark.every_postgres
def test_a_snapshot_that_ended(conn: Connection, copy_of: Copies) -> None:
    conn.execute("CREATE TABLE t (id int)")
    copy = copy_of("t")
    copy.holder.close()
    for read in (copy.reader().typed, lambda: copy.reader().raw(binary=True)):
        with pytest.raises(SnapshotGone, match=f"snapshot {copy.snapshot_name}"):
            list(read())
    copy.snapshot_name = "no such thing"
    with pytest.raises(SnapshotGone):
        list(copy.reader().texts())


def sessions(conn: Connection) -> list[tuple[int, str]]:
    rows = conn.execute(
        "SELECT pid, state FROM pg_stat_activity"
        " WHERE application_name = %s AND datname = current_database() ORDER BY pid",
        [APPLICATION],
    )
    return [(row[0], row[1]) for row in rows]


@pytest.mark.every_postgres
def test_sessions_are_kept_without_a_transaction(conn: Connection, copy_of: Copies) -> None:
    conn.execute("CREATE TABLE t AS SELECT i FROM generate_series(1, 3000) i")
    copy = copy_of("t")
    readers = copy.readers(8192)
    assert len(readers) > 4
    for reader in readers:
        list(reader.typed())
    ((arrow, state),) = sessions(conn)
    assert state == "idle"
    for reader in readers:
        list(reader.raw(binary=True))
    kept = dict(sessions(conn))
    assert len(kept) == 2
    assert set(kept.values()) == {"idle"}
    assert arrow in kept
    close_idle_sessions()
    wait_until_gone(conn)


def wait_until_gone(conn: Connection) -> None:
    for pid, _ in sessions(conn):
        # Waits for the end of a backend that is ending already.
        conn.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
    assert sessions(conn) == []


def test_a_session_that_died_while_idle_is_replaced(conn: Connection, copy_of: Copies) -> None:
    conn.execute("CREATE TABLE t AS SELECT 1 AS id")
    copy = copy_of("t")
    for read in (copy.reader().typed, lambda: copy.reader().raw(binary=True)):
        assert len(list(read())) == 1
        ((pid, _),) = sessions(conn)
        conn.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
        assert list(read())
        close_idle_sessions()
        wait_until_gone(conn)


@pytest.mark.every_postgres
def test_a_session_that_dies_in_the_middle(conn: Connection, copy_of: Copies) -> None:
    conn.execute(
        "CREATE TABLE t AS SELECT i, repeat('x', 500) AS x FROM generate_series(1, 100000) i"
    )
    copy = copy_of("t")
    for read in (
        copy.reader().typed,
        copy.reader().texts,
        lambda: copy.reader().raw(binary=True),
    ):
        reading: Iterator[object] = iter(read())
        next(reading)
        ((pid, _),) = sessions(conn)
        conn.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
        with pytest.raises(SourceUnavailable, match=r"public\.t"):
            list(reading)
        assert sessions(conn) == []


def test_a_reader_that_is_left_early_leaves_no_session(conn: Connection, copy_of: Copies) -> None:
    conn.execute(
        "CREATE TABLE t AS SELECT i, repeat('x', 500) AS x FROM generate_series(1, 50000) i"
    )
    copy = copy_of("t")
    typed = copy.reader().typed()
    raw = copy.reader().raw(binary=True)
    for reading in (typed, raw):
        next(reading)
        reading.close()  # type: ignore[union-attr]
    wait_until_gone(conn)
    assert len(copy.rows()) == 50000


@pytest.mark.every_postgres
def test_what_the_source_refuses_is_no_rewrite(conn: Connection, copy_of: Copies) -> None:
    conn.execute("CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 1000) i")
    cases = [
        ("colour = 1", "colour"),
        ("id IN (SELECT id FROM nowhere)", "nowhere"),
        ("1 / (id - 900) < 5", "division by zero"),
    ]
    for where, told in cases:
        copy = copy_of("t", where=where)
        for read in (copy.reader().typed, lambda c=copy: c.reader().raw(binary=True)):
            with pytest.raises(SourceError, match=told) as caught:
                list(read())
            assert type(caught.value) is RowsRefused
            assert "where" in caught.value.remedy


@pytest.mark.every_postgres
def test_hidden_rows_are_an_error(conn: Connection, database: str, copy_of: Copies) -> None:
    conn.execute(
        """
        CREATE ROLE careful_reader LOGIN;
        CREATE TABLE t (id int);
        INSERT INTO t VALUES (1), (2);
        GRANT SELECT ON t TO careful_reader;
        """
    )
    copy = copy_of("t")
    try:
        copy.url = ConnectionUrl(f"{database}?user=careful_reader")
        assert len(copy.rows()) == 2
        conn.execute("ALTER TABLE t ENABLE ROW LEVEL SECURITY")
        with pytest.raises(SourceError, match="row-level security"):
            copy.rows()
    finally:
        copy.holder.close()
        close_idle_sessions()
        conn.execute("DROP OWNED BY careful_reader; DROP ROLE careful_reader")


@pytest.mark.every_postgres
def test_a_snapshot_that_another_session_has_given_that_name_is_not_read(
    conn: Connection, copy_of: Copies
) -> None:
    """After a restart of the server names come again: it would be of another point."""
    conn.execute("CREATE TABLE t (id int); INSERT INTO t VALUES (1), (2)")
    copy = copy_of("t")
    config = PipelineConfig.model_validate(
        {
            "name": "items",
            "source": {"url": copy.url.reveal()},
            "change_log": {"path": "nowhere"},
            "destination": {"type": "discard"},
        }
    )
    source = PostgresCopySource(config, Path("nowhere"), lambda: None)
    row = conn.execute(
        "SELECT pid, extract(epoch FROM backend_start)::text FROM pg_stat_activity WHERE pid = %s",
        [copy.holder.info.backend_pid],
    ).fetchone()
    assert row is not None
    chunk = copy.reader()._range

    def rows(pid: int, start: str) -> list[bytes]:
        held = HeldSnapshot(copy.snapshot_name, 0x50, pid, start, "here", 1)
        reader = source.opener(held)(copy.source.table, chunk, None)
        assert isinstance(reader, SourceChunkReader)
        return list(reader.raw(binary=False))

    assert rows(*row) == [b"1\n2\n"]
    for other in ((row[0], "1.5"), (conn.info.backend_pid, row[1])):
        with pytest.raises(SnapshotGone, match="is another"):
            rows(*other)


def test_a_server_that_is_not_there() -> None:
    table = TableSchema(1, "public", "t", "d", ())
    chunk = Chunk(1, 0, 1, "public", "t", 1, 0, None, 0)
    url = ConnectionUrl("postgresql://u:secret@127.0.0.1:1/x")
    reader = SourceChunkReader(url, table, chunk, None, ExportedSnapshot("s", NOTHING))
    for read in (reader.typed, lambda: reader.raw(binary=True)):
        with pytest.raises(PenstockError) as caught:
            list(read())
        assert "nothing listens there" in caught.value.message
        assert "secret" not in str(caught.value)


@pytest.mark.every_postgres
def test_rows_by_key(conn: Connection, copy_of: Copies) -> None:
    conn.execute(
        """
        CREATE TYPE mood AS ENUM ('sad', 'glad');
        CREATE TABLE t (k0 mood, at timestamptz, code char(4), note text, flag bool,
                        PRIMARY KEY (at, k0, code));
        INSERT INTO t SELECT 'sad', '2024-01-01 UTC'::timestamptz + i * '1 min'::interval,
                             'x', 'row ' || i, i % 2 = 0
          FROM generate_series(1, 5000) i;
        """
    )
    copy = copy_of("t", where="note = 'none of them'")
    conn.execute("UPDATE t SET note = 'later'")
    minutes = range(1, 4001)
    times = [f"2024-01-0{1 + m // 1440} {m // 60 % 24:02}:{m % 60:02}:00+00" for m in minutes]
    keys = [(time, "sad", "x   ") for time in times]
    keys += [("2024-01-01 00:01:00+00", "glad", "x   "), keys[0]]
    rows = read_keys(copy.url, copy.source, copy.definition, keys, copy.snapshot_name, copy.point)
    assert len(rows) == 4000
    assert rows.snapshot == copy.point
    found = set(zip(*(column.to_pylist() for column in rows.columns), strict=True))
    assert found == {
        ("sad", time, "x   ", f"row {minute}", "f" if minute % 2 else "t")
        for minute, time in zip(minutes, times, strict=True)
    }
    none = read_keys(
        copy.url, copy.source, copy.definition, [keys[-2]], copy.snapshot_name, copy.point
    )
    assert (len(none), [len(column) for column in none.columns]) == (0, [0] * 5)


@pytest.mark.every_postgres
def test_rows_by_key_of_a_partitioned_table(conn: Connection, copy_of: Copies) -> None:
    conn.execute(
        """
        CREATE TABLE root (id int PRIMARY KEY, note text) PARTITION BY RANGE (id);
        CREATE TABLE low PARTITION OF root FOR VALUES FROM (0) TO (10);
        CREATE TABLE high PARTITION OF root FOR VALUES FROM (10) TO (20);
        INSERT INTO root VALUES (1, 'a'), (11, NULL), (12, 'c');
        """
    )
    copy = copy_of("root")
    rows = read_keys(
        copy.url, copy.source, copy.definition, [("1",), ("11",)], copy.snapshot_name, copy.point
    )
    assert sorted(zip(*(c.to_pylist() for c in rows.columns), strict=True)) == [
        ("1", "a"), ("11", None),
    ]  # fmt: skip
