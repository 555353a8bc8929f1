"""Rows that are there before the stream are copied, and changes meanwhile are not lost."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from penstock.changelog.storage.folder import FolderStorage
from penstock.model.table_state import DataSync, Init
from penstock.pipeline.copy.copy_only import copy_only
from penstock.source.copy_plan import CopyPlan
from penstock.source.postgres.snapshot.snapshot_record import SnapshotRecord
from tests.fix_pipeline import PipelineUnderTest
from tests.integration.copied_tables import CopiedTables, Writers
from tests.pipelines import engine_on
from tests.threads_engine import Threads


@pytest.fixture
def copied(pipeline: PipelineUnderTest, target_url: str, threads: Threads) -> CopiedTables:
    return CopiedTables(pipeline, target_url, threads)


@pytest.fixture
def on_spark(pipeline: PipelineUnderTest, target_url: str, spark: SparkSession) -> CopiedTables:
    return CopiedTables(pipeline, target_url, spark)


def test_tables_with_rows_come_whole(copied: CopiedTables) -> None:
    copied.pipeline.execute(
        "CREATE TABLE a (id int PRIMARY KEY, note text)",
        "INSERT INTO a SELECT n, repeat('x', n % 50) FROM generate_series(1, 3000) n",
        "CREATE TABLE loose (a int, b text)",
        "ALTER TABLE loose REPLICA IDENTITY FULL",
        "INSERT INTO loose SELECT n % 7, 'twice' FROM generate_series(1, 50) n",
        "CREATE TABLE empty (id int PRIMARY KEY)",
        "CREATE TABLE parted (id int, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
        "CREATE TABLE p1 PARTITION OF parted FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')",
        "CREATE TABLE p2 PARTITION OF parted FOR VALUES FROM ('2026-02-01') TO ('2026-03-01')",
        "INSERT INTO parted SELECT n, date '2026-01-01' + n FROM generate_series(0, 50) n",
    )
    # Some chunks a table.
    copied.configure(chunk_bytes="32KiB")
    copied.run_until_caught_up()
    assert copied.is_equal("a", "loose", "empty", "parted")
    assert set(copied.phases().values()) == {"ready"}
    copied.pipeline.execute(
        "UPDATE a SET note = 'new' WHERE id < 10",
        "DELETE FROM loose WHERE ctid IN (SELECT ctid FROM loose WHERE a = 3 LIMIT 1)",
        "INSERT INTO empty VALUES (1)",
    )
    assert any("public.a: init -> " in text for text in copied.said)
    copied.said.clear()
    copied.run_until_caught_up()
    assert copied.is_equal("a", "loose", "empty", "parted")
    assert not any("public.a: " in text for text in copied.said)


def test_nothing_is_lost_or_doubled_under_writes(on_spark: CopiedTables) -> None:
    on_spark.fill("items")
    on_spark.configure(chunk_bytes="512KiB")
    with Writers(on_spark.pipeline.url) as writers, on_spark.running() as future:
        on_spark.wait(future, lambda: "ready" in on_spark.phases().values(), "the table is ready")
        seen = writers.written
        on_spark.wait(future, lambda: writers.written > seen + 20, "some more is written")
    on_spark.run_until_caught_up()
    assert on_spark.is_equal("items")


def test_tables_come_and_go_while_it_runs(copied: CopiedTables) -> None:
    copied.fill("items")
    copied.configure(tables={"reconcile": "1s", "on_remove": "drop"}, exclude=("public.not_*",))
    file = str(copied.pipeline.file)
    with Writers(copied.pipeline.url), copied.running() as future:
        copied.wait(future, lambda: copied.phases() == {"public.items": "ready"}, "it is ready")
        copied.fill("later")
        copied.pipeline.execute("CREATE TABLE not_this (id int PRIMARY KEY)")
        with Writers(copied.pipeline.url, "later"):
            both = {"public.items": "ready", "public.later": "ready"}
            copied.wait(future, lambda: copied.phases() == both, "the new table is ready")
        copied.command("tables", "add", file, "not_this")
        copied.wait(
            future, lambda: copied.phases().get("public.not_this") == "ready", "it was asked for"
        )
        copied.command("tables", "resync", file, "later")
        copied.wait(
            future, lambda: copied.phases()["public.later"] != "ready", "it is copied again"
        )
        copied.wait(future, lambda: copied.phases()["public.later"] == "ready", "it was copied")
        copied.command("tables", "remove", file, "not_this")
        copied.wait(future, lambda: copied.phases() == both, "it is followed no longer")
    copied.run_until_caught_up()
    assert copied.is_equal("items", "later")
    with psycopg.connect(copied.target_url) as conn:
        assert conn.execute("SELECT to_regclass('not_this')").fetchone() == (None,)


def test_a_copy_rests_and_goes_on(copied: CopiedTables) -> None:
    copied.fill("items")
    copied.configure(chunk_bytes="256KiB", parallelism=1)
    file = str(copied.pipeline.file)

    with copied.running() as future:
        copied.wait(future, lambda: copied.chunks_done("items") > 0, "some chunks are copied")
        copied.command("tables", "pause", file, "items")
        assert "paused" in copied.command("tables", "list", file)
        assert copied.phases() == {"public.items": "data_sync"}
        copied.command("tables", "resume", file, "items")
        copied.wait(future, lambda: copied.phases() == {"public.items": "ready"}, "it is ready")
        copied.command("tables", "resync", file, "items")
        copied.wait(future, lambda: copied.phases() != {"public.items": "ready"}, "again")
        copied.command("tables", "cancel", file, "items")
        copied.wait(future, lambda: copied.phases() == {"public.items": "init"}, "it is given up")


def test_only_a_copy(copied: CopiedTables, spark: SparkSession) -> None:
    """All tables at one point, under transfers between two of them; nothing stays in the source."""
    copied.fill("items")
    copied.pipeline.execute(
        "CREATE TABLE more (id int PRIMARY KEY, n int)",
        "INSERT INTO more SELECT n, 0 FROM generate_series(1, 100) n",
        "CREATE UNLOGGED TABLE scratch (id int PRIMARY KEY)",
        "INSERT INTO scratch VALUES (1), (2)",
        "CREATE TABLE nothing ()",
        "INSERT INTO nothing DEFAULT VALUES",
        "CREATE VIEW seen AS SELECT 1 AS one",
    )
    copied.configure(chunk_bytes="512KiB")
    config, file = copied.pipeline.config, copied.pipeline.file
    report = copy_only(config, file, engine_on(spark), lambda: False)
    assert report is not None
    assert dict(report.rows) == {
        "public.items": 4000,
        "public.more": 100,
        "public.nothing": 1,
        "public.scratch": 2,
    }
    assert report.refused == {}
    assert copied.is_equal("items", "more", "nothing", "scratch")
    with psycopg.connect(copied.pipeline.url) as conn:
        left = conn.execute(
            "SELECT (SELECT count(*) FROM pg_publication), (SELECT count(*) FROM"
            " pg_replication_slots WHERE database = current_database())"
        ).fetchone()
    assert left == (0, 0)
    # Again: what it brought itself may be replaced.
    copied.pipeline.execute("DELETE FROM more WHERE id > 50")
    assert copy_only(config, file, engine_on(spark), lambda: False) is not None
    assert copied.is_equal("items", "more", "nothing", "scratch")


def test_rows_of_somebody_else_are_not_removed(copied: CopiedTables) -> None:
    copied.pipeline.execute("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    with psycopg.connect(copied.target_url) as conn:
        conn.execute("CREATE TABLE a (id int PRIMARY KEY)")
        conn.execute("INSERT INTO a VALUES (99)")
    copied.configure()
    copied.run_until_caught_up()
    assert copied.phases() == {"public.a": "errored"}
    assert copied.rows(copied.target_url, "a") == [("(99)",)]
    assert any("did not bring" in text and "existing_rows" in text for text in copied.said)
    copied.configure(existing_rows="truncate")
    copied.command("tables", "retry", str(copied.pipeline.file), "a")
    copied.run_until_caught_up()
    assert copied.is_equal("a")


def test_a_copy_goes_on_under_another_snapshot(copied: CopiedTables) -> None:
    """The holder is gone, rows have moved meanwhile: chunks that are done are not read again."""
    copied.fill("items")
    copied.pipeline.execute(
        "CREATE TABLE loose (a int, b text)",
        "ALTER TABLE loose REPLICA IDENTITY FULL",
        "INSERT INTO loose SELECT n % 7, repeat('x', 500) FROM generate_series(1, 3000) n",
    )
    copied.configure(chunk_bytes="512KiB", parallelism=1)
    with Writers(copied.pipeline.url):
        with copied.running() as future:
            copied.wait(future, lambda: copied.chunks_done("items") > 3, "some chunks are done")
        before, loose = copied.copy_of("items"), copied.copy_of("loose")
        assert before is not None
        assert not before.is_complete
        _end_holders(Path(copied.pipeline.config.change_log.path))
        copied.run_until_caught_up()
        after = copied.copy_of("items")
    copied.run_until_caught_up()
    assert after is not None
    assert (after.copy_id, after.first_lsn) == (before.copy_id, before.first_lsn)
    assert after.snapshots == 2
    assert before.done.items() <= after.done.items()
    # Unless all of it was there already.
    was_complete = loose is not None and loose.is_complete
    assert was_complete or any("public.loose starts again" in text for text in copied.said)
    assert copied.is_equal("items", "loose")


def _end_holders(log: Path) -> None:
    for folder in (log / "snapshots").iterdir():
        record = SnapshotRecord(FolderStorage(str(folder)))
        assert record.read() is not None
        record.remove()


def test_a_table_that_is_rewritten_starts_again(copied: CopiedTables) -> None:
    copied.fill("items")
    copied.configure(chunk_bytes="256KiB", parallelism=1)
    with copied.running() as future:
        copied.wait(future, lambda: copied.chunks_done("items") > 0, "some chunks are done")
        copied.pipeline.execute("TRUNCATE items", "INSERT INTO items VALUES (1, 'new', 'row')")
        copied.wait(future, lambda: copied.phases() == {"public.items": "ready"}, "it is ready")
        copied.wait(future, lambda: copied.is_equal("items"), "it is equal")
    assert len(copied.rows(copied.target_url, "items")) == 1


def test_a_table_that_was_copied_and_dropped_while_nothing_ran(copied: CopiedTables) -> None:
    """It is on its way still, and nobody publishes it any more."""
    copied.pipeline.execute("CREATE TABLE kept (id int PRIMARY KEY)", "CREATE TABLE gone (a int)")
    copied.configure()
    copied.run_until_caught_up()
    with copied.store() as store:
        oid = store.find_table("public", "gone")
        assert oid is not None
        store.update_table_state(oid, Init())
        store.start_copies({oid: CopyPlan(oid, ("a",), None, ())}, copied.pipeline.wal_end())
        store.update_table_state(oid, DataSync())
    copied.pipeline.execute("DROP TABLE gone", "INSERT INTO kept VALUES (1)")
    copied.run_until_caught_up()
    assert copied.phases() == {"public.kept": "ready"}
    assert copied.is_equal("kept")
