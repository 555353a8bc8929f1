"""The ``penstock`` source in a Spark user's own job, without the command line."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession

from penstock.model.lsn import format_lsn
from penstock.source.capture import keeper
from penstock.spark import register
from tests.fix_pipeline import PipelineUnderTest, wait_until

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text)"


@pytest.fixture
def shop(pipeline: PipelineUnderTest, spark: SparkSession) -> PipelineUnderTest:
    """A pipeline with a table, for the log that capture fills."""
    register(spark)
    pipeline.configure(segment_age="1ms")
    pipeline.execute(ITEMS)
    pipeline.subscribe()
    return pipeline


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def stream(spark: SparkSession, shop: PipelineUnderTest, **options: str) -> DataFrame:
    return spark.readStream.format("penstock").options(path=shop.log.root.path, **options).load()


def batches(frame: DataFrame, checkpoint: Path) -> list[list[Row]]:
    """Run a query until it has all there is; the rows of its micro-batches that had some."""
    found: list[list[Row]] = []

    def take(batch: DataFrame, _number: int) -> None:
        rows = batch.collect()
        if rows:
            found.append(rows)

    query = (
        frame.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="0 seconds")
        .start()
    )
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return found


def rows(frame: DataFrame, checkpoint: Path) -> list[Row]:
    """All rows in commit order."""
    prefix = "" if "commit_lsn" in frame.columns else "_"
    return sorted(
        (row for batch in batches(frame, checkpoint) for row in batch),
        key=lambda row: (row[f"{prefix}commit_lsn"], row[f"{prefix}ordinal"]),
    )


def ids(found: list[Row]) -> list[int]:
    return [row["id"] for row in found]


def insert(shop: PipelineUnderTest, *numbers: int) -> None:
    with psycopg.connect(shop.url, autocommit=True) as conn:
        for number in numbers:
            conn.execute("INSERT INTO items (id, name) VALUES (%s, 'x')", [number])


def test_the_envelope_stream(
    spark: SparkSession, shop: PipelineUnderTest, checkpoint: Path
) -> None:
    shop.execute(
        "INSERT INTO items VALUES (1, 'a'), (2, NULL)",
        "UPDATE items SET id = 3 WHERE id = 2",
        "DELETE FROM items WHERE id = 1",
        "TRUNCATE items",
        "SELECT pg_logical_emit_message(true, 'note', 'hello')",
    )
    logged = shop.capture_all()
    frame = stream(spark, shop)
    assert frame.isStreaming
    found = [row for row in rows(frame, checkpoint) if row.prefix != "test sentinel"]
    assert [(row.op, row.schema, row.table, row.new, row.old) for row in found] == [
        ("insert", "public", "items", {"id": "1", "name": "a"}, None),
        ("insert", "public", "items", {"id": "2", "name": None}, None),
        ("update", "public", "items", {"id": "3", "name": None}, {"id": "2"}),
        ("delete", "public", "items", None, {"id": "1"}),
        ("truncate", "public", "items", None, None),
        ("message", None, None, None, None),
    ]
    assert [(row.commit_lsn, row.ordinal) for row in found] == [c.position for c in logged]
    assert [row.xid for row in found] == [c.xid for c in logged]
    assert found[0].key_columns == ["id"]
    assert (found[-1].prefix, bytes(found[-1].content)) == ("note", b"hello")


def test_the_typed_stream_of_a_table(
    spark: SparkSession, shop: PipelineUnderTest, checkpoint: Path
) -> None:
    shop.execute(
        'CREATE SCHEMA "My Schema"',
        'CREATE TABLE "My Schema"."T.1" (id bigint PRIMARY KEY, price numeric(10,2),'
        " at timestamptz, tags text[], long text, day date)",
        'ALTER TABLE "My Schema"."T.1" ALTER long SET STORAGE EXTERNAL',
        f'ALTER PUBLICATION penstock_{shop.name} ADD TABLE "My Schema"."T.1"',
        "INSERT INTO \"My Schema\".\"T.1\" VALUES (1, 12.50, '2026-01-02 03:04:05+00', '{a,NULL}',"
        " repeat('x', 9000), 'infinity')",
        'UPDATE "My Schema"."T.1" SET price = NULL',
        'DELETE FROM "My Schema"."T.1"',
        'TRUNCATE "My Schema"."T.1"',
        "INSERT INTO items VALUES (1, 'of another table')",
    )
    shop.capture_all()
    frame = stream(spark, shop, table='"My Schema"."T.1"')
    types = {field.name: field.dataType.simpleString() for field in frame.schema}
    assert types["id"] == "bigint"
    assert types["price"] == "decimal(10,2)"
    assert types["at"] == "timestamp"
    assert types["tags"] == "array<string>"
    inserted, updated, deleted, truncated = rows(frame, checkpoint)
    assert (inserted.id, inserted.price, inserted.tags) == (1, Decimal("12.50"), ["a", None])
    assert inserted["at"].astimezone(dt.UTC) == dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    assert inserted.long == "x" * 9000
    # What a date of Spark cannot hold is null there, and exact beside it.
    assert (inserted.day, inserted["_raw"]) == (None, {"day": "infinity"})
    assert (updated["_op"], updated.price, updated.long) == ("update", None, None)
    assert updated["_unset"] == ["long"]
    assert (deleted["_op"], deleted.id) == ("delete", 1)
    assert (truncated["_op"], truncated.id) == ("truncate", None)


def test_where_a_query_starts(spark: SparkSession, shop: PipelineUnderTest, tmp_path: Path) -> None:
    insert(shop, 1, 2, 3)
    second = shop.capture_all()[1].position.commit_lsn

    def found(start: str) -> list[int]:
        checkpoint = tmp_path / start.replace("/", "-")
        return ids(rows(stream(spark, shop, table="items", start=start), checkpoint))

    assert found(start="earliest") == [1, 2, 3]
    # After the transaction that is named, so that a job can go on from the last one it has.
    assert found(start=format_lsn(second)) == [3]
    assert found(start="latest") == []
    insert(shop, 4)
    shop.capture_all()
    assert found(start="latest") == [4]  # its checkpoint says where the log ended


def test_a_limit_makes_batches_that_end_at_commits(
    spark: SparkSession, shop: PipelineUnderTest, checkpoint: Path
) -> None:
    shop.configure(segment_bytes="1 KiB", segment_age="1ms")
    with shop.capturing() as capture:
        for number in range(5):
            with psycopg.connect(shop.url) as conn:
                conn.execute(
                    "INSERT INTO items SELECT n + %s, 'x' FROM generate_series(1, 200) n",
                    [number * 1000],
                )
            shop.sync(capture)
    assert len(shop.log.list().segments) >= 5
    found = batches(stream(spark, shop, table="items", maxBytesPerTrigger="1"), checkpoint)
    assert len(found) >= 3
    commits = [{row["_commit_lsn"] for row in batch} for batch in found]
    assert sum(map(len, commits)) == 5, "a transaction is in two batches"
    assert sorted(row.id for batch in found for row in batch) == [
        n + number * 1000 for number in range(5) for n in range(1, 201)
    ]


def test_a_kept_checkpoint_goes_on_and_a_deleted_one_begins_again(
    spark: SparkSession, shop: PipelineUnderTest, checkpoint: Path
) -> None:
    insert(shop, 1, 2)
    shop.capture_all()
    frame = stream(spark, shop, table="items")
    assert ids(rows(frame, checkpoint)) == [1, 2]
    assert rows(frame, checkpoint) == []
    insert(shop, 3)
    shop.capture_all()
    assert ids(rows(frame, checkpoint)) == [3]
    # A batch that was planned but not finished is read again, and only that.
    failing = frame.writeStream.foreachBatch(_fail).option("checkpointLocation", str(checkpoint))
    insert(shop, 4)
    shop.capture_all()
    query = failing.start()
    with pytest.raises(StreamingQueryException, match="the job's own mistake"):
        query.processAllAvailable()
    insert(shop, 5)
    shop.capture_all()
    assert ids(rows(frame, checkpoint)) == [4, 5]
    shutil.rmtree(checkpoint)
    assert ids(rows(frame, checkpoint)) == [1, 2, 3, 4, 5]


def _fail(_batch: DataFrame, _number: int) -> None:
    raise RuntimeError("the job's own mistake")


def test_a_killed_worker_is_replaced(
    spark: SparkSession, shop: PipelineUnderTest, checkpoint: Path, tmp_path: Path
) -> None:
    insert(shop, *range(20))
    shop.capture_all()
    frame = stream(spark, shop, table="items").select("id", "_commit_lsn", "_ordinal")
    dying = frame.mapInArrow(_die_once(str(tmp_path / "died")), frame.schema)
    assert ids(rows(dying, checkpoint)) == list(range(20))
    assert (tmp_path / "died").exists()


def _die_once(marker: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    # Made here, because Spark sends a function of a test module by name, which workers lack.
    def die_once(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            yield part
            if not os.path.exists(marker):  # noqa: PTH110 (runs on a worker)
                os.close(os.open(marker, os.O_CREAT))
                os.kill(os.getpid(), signal.SIGKILL)

    return die_once


def test_a_named_reader_keeps_what_it_needs(
    spark: SparkSession,
    shop: PipelineUnderTest,
    checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keeper, "_HOUSEKEEPING_SECONDS", 0.05)
    shop.configure(segment_age="1ms", grace=0)
    frame = stream(spark, shop, reader="report")
    with shop.capturing() as capture:
        insert(shop, 1)
        first = shop.sync(capture)
        # The query holds this much; its next batch tells the log so.
        batches(frame, checkpoint)
        insert(shop, 2)
        second = shop.sync(capture)
        batches(frame, checkpoint)
        insert(shop, 3)
        end = shop.sync(capture)
        state = shop.log.reader("report")
        assert state is not None
        assert first.commit_lsn <= state.frontier.commit_lsn <= second.commit_lsn
        # Everybody else is done, so only the named reader still needs anything.
        shop.log.set_reader("other", end)
        wait_until(
            lambda: shop.log.list().segments[0].after >= first.commit_lsn,
            "what all have passed is removed",
        )
    found = [row.new["id"] for row in rows(frame, checkpoint) if row.op == "insert"]
    assert found[-1] == "3"


def test_a_named_reader_counts_from_its_start_on(
    spark: SparkSession, shop: PipelineUnderTest, checkpoint: Path
) -> None:
    """Otherwise what it needs could be removed before it has told of its first batch."""
    insert(shop, 1)
    shop.capture_all()
    batches(stream(spark, shop, reader="report"), checkpoint)
    state = shop.log.reader("report")
    assert state is not None
    assert state.frontier.commit_lsn == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"maxRows": "5"}, "has no option 'maxrows'; it has path, "),
        ({"start": "yesterday"}, "expected earliest, latest or an LSN such as 16/B374D848"),
        ({"maxBytesPerTrigger": "-1"}, "'-1' is no positive number"),
        ({"table": "public.nowhere"}, "knows no table 'public.nowhere'; it has seen: public.items"),
        ({"table": "a.b.c"}, "write schema.table"),
    ],
)
def test_wrong_options_are_explained(
    spark: SparkSession,
    shop: PipelineUnderTest,
    checkpoint: Path,
    options: dict[str, str],
    text: str,
) -> None:
    insert(shop, 1)
    shop.capture_all()
    with pytest.raises(Exception) as caught:  # noqa: PT011 (Spark's own kinds, by version)
        rows(stream(spark, shop, **options), checkpoint)
    assert text in str(caught.value)


def test_the_option_path_is_needed(spark: SparkSession) -> None:
    register(spark)
    with pytest.raises(Exception, match="needs the option path"):
        spark.readStream.format("penstock").load()


def test_a_start_before_the_log_begins_is_an_error_not_a_gap(
    spark: SparkSession,
    shop: PipelineUnderTest,
    checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keeper, "_HOUSEKEEPING_SECONDS", 0.05)
    shop.configure(segment_age="1ms", grace=0)
    with shop.capturing() as capture:
        insert(shop, 1)
        first = shop.sync(capture)
        insert(shop, 2)
        end = shop.sync(capture)
        shop.log.set_reader("other", end)
        wait_until(lambda: shop.log.list().segments[0].after > first.commit_lsn, "it is removed")
    with pytest.raises(StreamingQueryException, match="the change log lacks what was committed"):
        rows(stream(spark, shop, start="0/1"), checkpoint)


def test_rows_of_another_definition_are_never_bent_into_the_querys(
    spark: SparkSession, shop: PipelineUnderTest, tmp_path: Path
) -> None:
    insert(shop, 1)
    shop.execute("ALTER TABLE items ADD extra int")
    insert(shop, 2)
    changed = shop.capture_all()[0].position.commit_lsn
    with pytest.raises(StreamingQueryException, match="has other columns in the stream"):
        rows(stream(spark, shop, table="items"), tmp_path / "all")
    found = rows(stream(spark, shop, table="items", start=format_lsn(changed)), tmp_path / "new")
    assert [(row.id, row.extra) for row in found] == [(2, None)]
