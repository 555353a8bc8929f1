"""``spark.read.format("penstock")``: a table as it stands, in parallel and consistent."""

from __future__ import annotations

import datetime as dt
import os
import random
import re
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from psycopg import sql
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import count, count_distinct, spark_partition_id
from pyspark.sql.functions import sum as sum_of

from penstock.config.connection_url import ConnectionUrl
from penstock.model.errors import SnapshotGone
from penstock.model.lsn import NOTHING
from penstock.source.postgres.snapshot.held_snapshot import ProcessSnapshotKeeper
from penstock.source.postgres.snapshot.reading import ExportedSnapshot
from penstock.spark import register
from penstock.spark.table_read_settings import TableReadSettings
from penstock.spark.table_reader import PenstockTableReader, read_schema
from tests.application_session import connect
from tests.fix_pipeline import wait_until
from tests.integration.test_chunk_values import VALUES, create_values, same

if TYPE_CHECKING:
    from tests.fix_copy import Connection, Copies

pytest_plugins = ["tests.fix_copy"]
PAGE = Path(__file__).parents[2] / "docs" / "spark_table_read.md"
Load = Callable[..., DataFrame]


@pytest.fixture
def conn(database: str) -> Iterator[Connection]:
    with connect(database, application_name="test") as connection:
        yield connection


@pytest.fixture
def load(spark: SparkSession, database: str) -> Load:
    register(spark)

    def start(table: str, url: str = database, **options: str) -> DataFrame:
        reader = spark.read.format("penstock").option("url", url).option("table", table)
        return reader.options(**options).load()

    return start


def fill(conn: Connection, rows: int = 1000) -> None:
    """Accounts, 50 to 60 a block."""
    conn.execute("CREATE TABLE accounts (id int PRIMARY KEY, balance int, pad text)")
    conn.execute(
        "INSERT INTO accounts SELECT i, 100, repeat('x', 100) FROM generate_series(1, %s) AS i",
        [rows],
    )


BLOCKS = {"chunkBytes": "32KiB"}


def ids(frame: DataFrame) -> list[int]:
    return sorted(row["id"] for row in frame.select("id").collect())


def error_of(action: Callable[[], Any]) -> str:
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


def holder_sessions(conn: Connection) -> int:
    row = conn.execute(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name LIKE 'penstock snapshot%'"
    ).fetchone()
    assert row is not None
    return int(row[0])


def plan(frame: DataFrame) -> int:
    """Plan the read, snapshot included, as its first action would; how many partitions it has."""
    return frame.rdd.getNumPartitions()


# -- what it shows ---------------------------------------------------------------------------------


def test_values_of_all_types(conn: Connection, copy_of: Copies, load: Load) -> None:
    create_values(conn)
    expected = pa.Table.from_batches(copy_of("v").reader().typed()).combine_chunks()
    found = load("v").toArrow().combine_chunks()
    assert found.schema.names == expected.schema.names
    assert found.num_rows == expected.num_rows
    for place, kind in enumerate(VALUES):
        wanted = expected.column(place).chunk(0)
        # Spark has no unsigned numbers: oid is a long, xid8 a text.
        column = found.column(place).cast(wanted.type).combine_chunks()
        column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        assert same(column, wanted), (kind, column, wanted)
    raw = [dict(row) for row in found.column("_raw").to_pylist()]
    assert raw == [dict(row) for row in expected.column("_raw").to_pylist()]
    assert any(raw)


def test_a_row_in_python(conn: Connection, load: Load) -> None:
    conn.execute(
        "CREATE TABLE t (id int, price numeric(8, 2), twice numeric GENERATED ALWAYS AS (price * 2)"
        ' STORED, day date, tags text[], doc jsonb, "at Time" timestamptz)'
    )
    conn.execute(
        "INSERT INTO t VALUES (1, 1.50, DEFAULT, '2024-02-29', '{a,NULL}', '{\"k\": 1}',"
        " '2024-01-01 12:00:00+02'), (2, NULL, DEFAULT, 'infinity', NULL, NULL, NULL)"
    )
    frame = load("t")
    one, two = sorted(frame.collect(), key=lambda row: row["id"])
    assert one.asDict() == {
        "id": 1, "price": Decimal("1.50"), "twice": "3.00", "day": dt.date(2024, 2, 29),
        "tags": ["a", None], "doc": '{"k": 1}', "at Time": one["at Time"], "_raw": {},
    }  # fmt: skip
    assert one["at Time"].timestamp() == dt.datetime(2024, 1, 1, 10, tzinfo=dt.UTC).timestamp()
    assert (two["day"], two["_raw"]) == (None, {"day": "infinity"})


def test_it_shows_the_moment_of_its_plan_in_every_partition(conn: Connection, load: Load) -> None:
    fill(conn)
    frame = load("accounts", **BLOCKS)
    partitions = plan(frame)
    assert partitions > 3
    # All that could be seen in parts: moved, deleted, new, and a whole transaction over the blocks.
    conn.execute("DELETE FROM accounts WHERE id % 7 = 0")
    conn.execute("UPDATE accounts SET balance = balance + 1")
    conn.execute("UPDATE accounts SET id = -id WHERE id % 5 = 0")
    conn.execute("INSERT INTO accounts SELECT i, 5, '' FROM generate_series(2000, 3000) AS i")
    conn.execute("VACUUM accounts")
    rows = frame.collect()
    assert sorted((row["id"], row["balance"]) for row in rows) == [(i, 100) for i in range(1, 1001)]


def is_longer(numbers: list[int], count: int) -> bool:
    return len(numbers) > count


def test_transfers_never_change_the_sum(conn: Connection, database: str, load: Load) -> None:
    fill(conn)
    stop = threading.Event()
    moved: list[int] = []

    def transfer() -> None:
        rng = random.Random(5)
        with connect(database) as mine:
            # Not faster: the dead rows of each update make the table, and so the read, longer.
            while not stop.wait(0.005):
                a, b = rng.sample(range(1, 1001), 2)
                with mine.transaction():
                    mine.execute("UPDATE accounts SET balance = balance - 7 WHERE id = %s", [a])
                    mine.execute("UPDATE accounts SET balance = balance + 7 WHERE id = %s", [b])
                moved.append(a)

    thread = threading.Thread(target=transfer)
    thread.start()
    try:
        for _ in range(3):
            frame = load("accounts", **BLOCKS)
            before = len(moved)
            wait_until(partial(is_longer, moved, before + 10), "transfers go on")
            total = frame.agg(sum_of("balance"), count("id"), count_distinct("id")).collect()
            assert [tuple(row) for row in total] == [(100_000, 1000, 1000)]
    finally:
        stop.set()
        thread.join()


def test_partitions_are_read_by_several_tasks(conn: Connection, load: Load) -> None:
    fill(conn)
    frame = load("accounts", **BLOCKS)
    used = frame.select(spark_partition_id().alias("p")).groupBy("p").count().collect()
    assert len(used) == plan(frame) > 3
    assert sum(row["count"] for row in used) == 1000
    # About as many rows in each: nobody waits for one that has them all.
    assert max(row["count"] for row in used) < 400


def test_partitioned_tables_and_their_children(conn: Connection, load: Load) -> None:
    conn.execute("CREATE TABLE p (id int, kind text) PARTITION BY LIST (kind)")
    assert load("p").collect() == []
    conn.execute("CREATE TABLE p_a PARTITION OF p FOR VALUES IN ('a')")
    conn.execute("CREATE TABLE p_b PARTITION OF p FOR VALUES IN ('b') PARTITION BY RANGE (id)")
    conn.execute("CREATE TABLE p_b_1 PARTITION OF p_b FOR VALUES FROM (0) TO (10)")
    conn.execute("CREATE TABLE p_b_2 PARTITION OF p_b FOR VALUES FROM (10) TO (20)")
    conn.execute("INSERT INTO p VALUES (1, 'a'), (2, 'b'), (12, 'b')")
    assert ids(load("p")) == [1, 2, 12]
    assert ids(load("p_b")) == [2, 12]
    frame = load("p")
    plan(frame)
    conn.execute("CREATE TABLE p_c PARTITION OF p FOR VALUES IN ('c')")
    conn.execute("INSERT INTO p VALUES (3, 'c')")
    conn.execute("UPDATE p SET kind = 'c' WHERE id = 1")
    assert sorted((row["id"], row["kind"]) for row in frame.collect()) == [
        (1, "a"), (2, "b"), (12, "b"),
    ]  # fmt: skip


def test_where_and_columns(conn: Connection, load: Load) -> None:
    conn.execute('CREATE TABLE "T 1" (id int, note text, "full, name" text)')
    conn.execute("""INSERT INTO "T 1" VALUES (1, 'a', 'x'), (2, 'b', 'y'), (3, 'it''s', 'z')""")
    frame = load('"T 1"', where="note = 'it''s' OR id = 1 -- both")
    assert ids(frame) == [1, 3]
    narrow = load('public."T 1"', columns='"full, name", id')
    assert narrow.columns == ["id", "full, name", "_raw"]
    assert sorted(tuple(row)[:2] for row in narrow.collect()) == [(1, "x"), (2, "y"), (3, "z")]


# -- the snapshot's life ---------------------------------------------------------------------------


def test_the_snapshot_is_let_go_when_all_was_read(conn: Connection, load: Load) -> None:
    fill(conn)
    frame = load("accounts", **BLOCKS, snapshotGrace="1s")
    plan(frame)
    assert holder_sessions(conn) > 0
    assert len(frame.collect()) == 1000
    wait_until(lambda: holder_sessions(conn) == 0, "the holder has ended")
    # What Spark planned once would show another moment now; who has cached a part, two of them.
    text = error_of(frame.count)
    assert "The snapshot of this read has ended" in text
    assert "Call load() again" in text
    assert load("accounts", **BLOCKS).count() == 1000


def test_all_actions_on_a_frame_show_one_moment(conn: Connection, load: Load) -> None:
    fill(conn)
    frame = load("accounts", **BLOCKS)
    assert frame.count() == 1000
    conn.execute("DELETE FROM accounts WHERE id > 10")
    assert frame.where("id > 5").count() == 995
    assert load("accounts", **BLOCKS).count() == 10


def test_one_that_is_never_read_goes_by_itself(conn: Connection, load: Load) -> None:
    fill(conn)
    frame = load("accounts", **BLOCKS, snapshotIdle="1s")
    assert plan(frame) > 3
    wait_until(lambda: holder_sessions(conn) == 0, "the holder has ended")
    assert "The snapshot of this read has ended" in error_of(frame.collect)


def test_it_would_end_with_sparks_own_process(
    conn: Connection, load: Load, spark: SparkSession
) -> None:
    fill(conn)
    frame = load("accounts", **BLOCKS)
    plan(frame)
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    assert holders_of(str(jvm.java.lang.ProcessHandle.current().pid()))


def holders_of(owner: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_text()
        except OSError:
            continue
        if (
            "penstock.source.postgres.snapshot.holder_process" in arguments
            and f"--owner\0{owner}\0" in arguments
        ):
            found.append(process.name)
    return found


def test_who_still_reads_is_not_idle(conn: Connection, database: str, tmp_path: Path) -> None:
    keeper = ProcessSnapshotKeeper(
        ConnectionUrl(database), tmp_path / "held", owner=os.getpid(), idle_seconds=2
    )
    held = keeper.take()
    with connect(database) as reader:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        reader.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(held.name)))
        # Reading one chunk may take longer than the snapshot may be idle.
        reader.execute("SELECT pg_sleep(5)")
        assert keeper.current() == held
    wait_until(lambda: holder_sessions(conn) == 0, "the holder has ended")
    assert not (tmp_path / "held").exists()


def test_a_snapshot_s_name_may_be_another_s(conn: Connection, database: str) -> None:
    """After a restart of the server names come again: it would be a table of another moment."""
    fill(conn)
    options = {"url": database, "table": "accounts", **BLOCKS}
    reader = PenstockTableReader(TableReadSettings.of(options), read_schema(options))
    with connect(database) as holder, holder.transaction():
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        row = holder.execute(
            "SELECT pg_export_snapshot(), extract(epoch FROM backend_start)::text"
            " FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        ).fetchone()
        assert row is not None
        name, start = row

        def read(began: str) -> int:
            snapshot = ExportedSnapshot(name, NOTHING, (holder.info.backend_pid, began))
            part, *_ = reader._parts(reader._source(), snapshot)
            return sum(batch.num_rows for batch in reader.read(part))

        assert read(start)
        with pytest.raises(SnapshotGone, match="is another"):
            read("1.5")


def test_one_partition_needs_no_holder(conn: Connection, load: Load) -> None:
    fill(conn, rows=10)
    frame = load("accounts")
    assert plan(frame) == 1
    assert holder_sessions(conn) == 0
    assert len(frame.collect()) == 10
    conn.execute("DELETE FROM accounts WHERE id > 5")
    assert len(frame.collect()) == 5

    def sessions() -> tuple[Any, ...] | None:
        return conn.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name LIKE 'penstock%'"
        ).fetchone()

    # The server takes a moment to end those that tasks have closed.
    wait_until(lambda: sessions() == (0,), "nothing is left")


def test_a_table_that_was_rewritten_meanwhile_is_an_error(conn: Connection, load: Load) -> None:
    fill(conn)
    frame = load("accounts", **BLOCKS)
    plan(frame)
    conn.execute("TRUNCATE accounts")
    text = error_of(frame.collect)
    assert "public.accounts is not what it was" in text
    assert "Call load() again" in text
    changed = load("accounts")
    conn.execute("ALTER TABLE accounts ADD COLUMN more int")
    assert "has other columns than when the DataFrame was made" in error_of(changed.collect)


# -- rights and mistakes ---------------------------------------------------------------------------


def test_a_role_that_may_only_select_will_do(conn: Connection, database: str, load: Load) -> None:
    fill(conn)
    url = ConnectionUrl(database)
    role = f"reader_{url.database}"[:40]
    as_reader = database.replace(f"{url.user}@", f"{role}:s3cr3t@")
    assert as_reader != database
    conn.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
    try:
        text = error_of(lambda: load("accounts", url=as_reader))
        assert f"role {role} may not read public.accounts" in text
        assert f'GRANT SELECT ON "public"."accounts" TO "{role}"' in text
        assert "s3cr3t" not in text
        conn.execute(sql.SQL("GRANT SELECT ON accounts TO {}").format(sql.Identifier(role)))
        frame = load("accounts", url=as_reader, **BLOCKS)
        assert plan(frame) > 3
        assert ids(frame) == list(range(1, 1001))
    finally:
        conn.execute(
            sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(sql.Identifier(role)).as_bytes(None)
        )


def test_secrets_are_not_shown(
    conn: Connection, database: str, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(conn, rows=1)
    url = database.replace("@", ":s3cr3t@")
    frame = load("accounts", url=url)
    frame.explain(True)
    frame.explain("formatted")
    shown = capsys.readouterr().out
    assert "BatchScan penstock" in shown
    assert "s3cr3t" not in shown
    assert "s3cr3t" not in frame._jdf.queryExecution().toString()
    conn.execute("DROP TABLE accounts")
    for text in (
        error_of(frame.collect),
        error_of(lambda: load("t", url="postgresql://u:s3cr3t@127.0.0.1:1/x")),
        error_of(lambda: load("t", url="postgresql://u:s3cr3t@@127.0.0.1/x")),
    ):
        assert "s3cr3t" not in text


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"table": "nope"}, "has no table public.nope"),
        ({"table": "seen"}, "public.seen is a view"),
        ({"table": "accounts", "where": "no_such > 1"}, 'column "no_such" does not exist'),
        ({"table": "accounts", "columns": "id,b"}, "has no column 'b'; it has id, balance, pad"),
        ({"table": "accounts", "columns": "id,,"}, "is no list of names"),
        ({"table": "accounts", "chunkBytes": "many"}, "'many' is no size"),
        ({"table": "accounts", "snapshotAge": "0"}, "'0' is no duration"),
        ({"table": "accounts", "path": "/x"}, "has no option 'path'"),
    ],
)
def test_mistakes_are_named(
    conn: Connection, load: Load, options: dict[str, str], expected: str
) -> None:
    fill(conn, rows=1)
    conn.execute("CREATE VIEW seen AS SELECT * FROM accounts")
    assert expected in error_of(lambda: load(**options))


def test_stream_and_batch_do_not_take_the_other_s_options(
    spark: SparkSession, conn: Connection, database: str, tmp_path: Path
) -> None:
    fill(conn, rows=1)
    register(spark)
    log = spark.read.format("penstock").option("path", str(tmp_path))
    assert "read with spark.readStream" in error_of(lambda: log.load().collect())
    table = spark.readStream.format("penstock").option("url", database).option("table", "accounts")
    assert "read by url with spark.read" in error_of(
        lambda: table.load().writeStream.format("noop").start().processAllAvailable()
    )


def test_the_example_of_the_page(
    spark: SparkSession, conn: Connection, database: str, tmp_path: Path
) -> None:
    conn.execute("CREATE TABLE orders (id int PRIMARY KEY, status text, total numeric(8, 2))")
    conn.execute("INSERT INTO orders VALUES (1, 'paid', 2.50), (2, 'new', 1), (3, 'paid', 4)")
    file = tmp_path / "shop.yaml"
    file.write_text(f"name: shop\nsource:\n  url: {database}\ndestination:\n  type: discard\n")
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    code = "\n".join(examples)
    for shown, real in (
        ("postgresql://reader@db.example.com/shop", database),
        ("/etc/penstock/shop.yaml", str(file)),
    ):
        assert shown in code
        code = code.replace(shown, real)
    names: dict[str, Any] = {"spark": spark}
    exec(code, names)  # noqa: S102 (our own page)
    assert names["revenue"].collect() == [Row(status="paid", total=Decimal("6.50"))]
    assert ids(names["paid"]) == [1, 3]
