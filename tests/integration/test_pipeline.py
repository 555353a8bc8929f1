"""Whole pipelines on Spark: from commits in Postgres to what the destination holds."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for_end
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from penstock.destination.files.committed_files import list_files
from penstock.destination.files.manifest import read_manifest
from penstock.model.errors import SlotError, SourceError
from penstock.model.lsn import Frontier, Position, parse_lsn
from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.pipelines import logged, pipeline_on
from tests.threads_engine import Threads

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text)"


@pytest.fixture
def shop(pipeline: PipelineUnderTest) -> PipelineUnderTest:
    """A pipeline into NDJSON files, and a table for it."""
    pipeline.configure(
        destination={"type": "files", "path": str(pipeline.folder / "out"), "format": "ndjson"}
    )
    pipeline.execute(ITEMS)
    pipeline.subscribe()
    return pipeline


def catch_up(shop: PipelineUnderTest, tasks: SparkSession | Threads) -> Frontier:
    return pipeline_on(tasks, shop.config, shop.file).run(lambda: False, until_caught_up=True)


def _silent(_text: str) -> None:
    pass


@contextmanager
def running(
    shop: PipelineUnderTest,
    tasks: SparkSession | Threads,
    say: Callable[[str], None] = _silent,
) -> Iterator[Future[Frontier]]:
    """Run the pipeline beside the test, and stop it at the end of the block."""
    stop = False
    with ThreadPoolExecutor(1) as pool:
        runner = pipeline_on(tasks, shop.config, shop.file)
        future = pool.submit(runner.run, lambda: stop)
        with logged(say):
            try:
                yield future
            finally:
                stop = True
                wait_for_end([future])


def delivered(shop: PipelineUnderTest) -> list[tuple[str, str]]:
    """Operation and key of every change of ``items``, in position order; no position twice."""
    lines = [
        json.loads(line)
        for file in list_files(shop.folder / "out", shop.name, "public.items")
        for line in file.read_text().splitlines()
    ]
    positions = [
        Position(parse_lsn(line["position"]["commit_lsn"]), line["position"]["ordinal"])
        for line in lines
    ]
    assert positions == sorted(set(positions))
    return [(line["op"], str(line["key"]["id"])) for line in lines]


def insert(shop: PipelineUnderTest, *numbers: int) -> None:
    with psycopg.connect(shop.url, autocommit=True) as conn:
        for number in numbers:
            conn.execute("INSERT INTO items VALUES (%s, 'x')", [number])


def inserts(*numbers: int) -> list[tuple[str, str]]:
    return [("insert", str(number)) for number in numbers]


def wait_for(shop: PipelineUnderTest, future: Future[Frontier], count: int) -> None:
    def there() -> bool:
        if future.done():
            future.result()
        return len(delivered(shop)) >= count

    wait_until(there, f"{count} changes are delivered")


def test_a_second_run_goes_on_where_the_first_stopped(
    shop: PipelineUnderTest, spark: SparkSession
) -> None:
    shop.execute(
        "INSERT INTO items VALUES (1, 'a'), (2, 'b')",
        "UPDATE items SET name = 'c' WHERE id = 1",
        "DELETE FROM items WHERE id = 2",
    )
    target = shop.wal_end()
    held = catch_up(shop, spark)
    assert held.end_lsn >= target
    first = [("insert", "1"), ("insert", "2"), ("update", "1"), ("delete", "2")]
    assert delivered(shop) == first
    manifest = read_manifest(shop.folder / "out", shop.name)
    assert manifest is not None
    assert manifest.frontier == held
    # What the destination holds, and no more, was confirmed.
    assert shop.confirmed <= held.end_lsn
    assert not shop.slot().active
    insert(shop, 3)
    again = catch_up(shop, spark)
    assert again > held
    assert delivered(shop) == [*first, *inserts(3)]
    assert shop.confirmed >= held.end_lsn


def test_it_ends_also_when_there_is_nothing_for_it(
    shop: PipelineUnderTest, threads: Threads
) -> None:
    shop.execute("CREATE TABLE later (id int)", "INSERT INTO later VALUES (1)")
    target = shop.wal_end()
    assert catch_up(shop, threads).end_lsn >= target
    assert delivered(shop) == []
    # The slot follows: unpublished tables must not hold WAL back.
    assert catch_up(shop, threads).end_lsn >= target
    assert shop.confirmed >= target


def test_the_change_log_is_deleted_between_runs(shop: PipelineUnderTest, threads: Threads) -> None:
    insert(shop, 1, 2)
    catch_up(shop, threads)
    insert(shop, 3)
    # Captured, but not delivered: only the log has it, and nothing of it is confirmed.
    with shop.capturing() as capture:
        shop.sync(capture)
    shutil.rmtree(shop.log.root.path)
    insert(shop, 4)
    catch_up(shop, threads)
    assert delivered(shop) == inserts(1, 2, 3, 4)


def test_a_second_run_beside_the_first_is_refused(
    shop: PipelineUnderTest, threads: Threads
) -> None:
    with running(shop, threads) as future:
        insert(shop, 1)
        wait_for(shop, future, 1)
        with pytest.raises(SourceError, match=f"Pipeline {shop.name} is busy: its run lock"):
            catch_up(shop, threads)
        # The first one does not notice.
        insert(shop, 2)
        wait_for(shop, future, 2)
    future.result()
    assert delivered(shop) == inserts(1, 2)


def test_a_killed_capture_is_started_again(shop: PipelineUnderTest, threads: Threads) -> None:
    said: list[str] = []
    with running(shop, threads, said.append) as future:
        insert(shop, 1)
        wait_for(shop, future, 1)
        os.kill((shop.log.capture_report() or {})["pid"], signal.SIGKILL)
        insert(shop, 2)
        wait_for(shop, future, 2)
    future.result()
    assert any("starting it again" in text for text in said)
    assert delivered(shop) == inserts(1, 2)
    assert not shop.slot().active


def test_a_lost_slot_ends_the_run_with_its_reason(
    shop: PipelineUnderTest, threads: Threads
) -> None:
    insert(shop, 1)
    catch_up(shop, threads)
    shop.execute(f"SELECT pg_drop_replication_slot('{shop.slot().name}')")
    # Something to wait for: else the run may be done before capture has looked for its slot.
    insert(shop, 2)
    with pytest.raises(SlotError, match="does not exist"):
        catch_up(shop, threads)
    assert delivered(shop) == inserts(1)


def test_damage_in_the_log_ends_the_run_and_names_the_file(
    shop: PipelineUnderTest, threads: Threads
) -> None:
    insert(shop, 1)
    shop.capture_all()
    (name,) = (name for name in shop.log.list().segments if name.rows)
    segment = Path(shop.log.segments.full(str(name)))
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    with pytest.raises(Exception, match="is torn, truncated or altered") as caught:
        catch_up(shop, threads)
    assert type(caught.value).__name__ == "CorruptSegment"
    assert str(name) in str(caught.value)
    # Nothing was confirmed, so the remedy that the message gives works.
    shutil.rmtree(shop.log.root.path)
    catch_up(shop, threads)
    assert delivered(shop) == inserts(1)
