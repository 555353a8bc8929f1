"""The reference members of the families behind a real pipeline: every row is compared."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from penstock.destination import memory_tables, memory_versioned
from penstock.model.lsn import Frontier
from penstock.pipeline.copy.finish_copies import FinishCopies
from penstock.pipeline.copy.replay import Replay
from penstock.pipeline.run.joins import Joins
from penstock.pipeline.run.stream_batches import CommitsInTurn
from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.integration.copied_tables import CopiedTables, Writers
from tests.threads_engine import Threads

READERS = {
    "memory-tables": memory_tables.read_rows,
    "memory-versioned": memory_versioned.read_rows,
}


class Member(CopiedTables):
    """A pipeline into a reference member."""

    def __init__(self, pipeline: PipelineUnderTest, threads: Threads, name: str) -> None:
        super().__init__(pipeline, "", threads)
        self.name = name

    def configure(self, **copy: Any) -> None:
        self.pipeline.configure(
            copy=copy or True,
            destination={"type": self.name, "path": str(self.pipeline.folder / "out")},
        )

    def is_equal(self, *tables: str) -> bool:
        return all(self._there(table) == self._here(table) for table in tables)

    def expect_equal(self, *tables: str) -> None:
        for table in tables:
            assert self._there(table) == self._here(table), table

    def _here(self, table: str) -> list[str]:
        with psycopg.connect(self.pipeline.url, row_factory=dict_row) as conn:
            columns = conn.execute(f"SELECT * FROM {table} LIMIT 0".encode()).description or []  # noqa: S608
            texts = ", ".join(f"{column.name}::text" for column in columns)
            rows = conn.execute(f"SELECT {texts} FROM {table}".encode()).fetchall()  # noqa: S608
        return sorted(map(repr, (sorted(row.items()) for row in rows)))

    def _there(self, table: str) -> list[str]:
        folder = self.pipeline.folder / "out"
        rows = READERS[self.name](folder, self.pipeline.name, "public", table)
        return sorted(map(repr, (sorted(row.items()) for row in rows)))


@pytest.fixture(params=READERS)
def member(request: pytest.FixtureRequest, pipeline: PipelineUnderTest, threads: Threads) -> Member:
    return Member(pipeline, threads, request.param)


def test_a_copy_changes_and_a_restart(member: Member) -> None:
    member.fill("items")
    member.pipeline.execute(
        "CREATE TABLE loose (a int, b text)",
        "ALTER TABLE loose REPLICA IDENTITY FULL",
        "INSERT INTO loose SELECT n % 7, 'twice' FROM generate_series(1, 50) n",
        "CREATE TABLE gone (id int PRIMARY KEY, note text)",
        "INSERT INTO gone VALUES (1, 'x'), (2, 'y')",
        "CREATE TABLE empty (id int PRIMARY KEY)",
    )
    member.configure(chunk_bytes="512KiB")
    member.run_until_caught_up()
    tables = ("items", "loose", "gone", "empty")
    member.expect_equal(*tables)
    member.pipeline.execute(
        "UPDATE items SET note = 'the body is not sent' WHERE id < 100",
        "UPDATE items SET id = id + 100000 WHERE id BETWEEN 50 AND 150",
        "UPDATE items SET id = -id WHERE id IN (1, 2)",
        "UPDATE items SET id = 3 - abs(id) WHERE id IN (-1, -2)",
        "DELETE FROM items WHERE id BETWEEN 200 AND 210",
        "INSERT INTO loose VALUES (1, 'twice'), (1, NULL)",
        "TRUNCATE gone",
        "INSERT INTO gone VALUES (2, 'again')",
        "INSERT INTO empty VALUES (1)",
    )
    member.run_until_caught_up()
    member.expect_equal(*tables)
    member.pipeline.execute(
        "ALTER TABLE gone RENAME note TO text",
        "ALTER TABLE gone ADD more text DEFAULT 'it''s'",
        "INSERT INTO gone VALUES (3, 'new', NULL)",
        "UPDATE gone SET id = 4 WHERE id = 2",
    )
    member.run_until_caught_up()
    member.expect_equal(*tables)


def test_rows_change_while_they_are_copied(member: Member) -> None:
    member.fill("items")
    member.configure(chunk_bytes="256KiB", parallelism=1)
    with Writers(member.pipeline.url) as writers:
        member.run_until_caught_up()
        assert writers.written
    member.run_until_caught_up()
    member.expect_equal("items")


def test_a_table_joins_the_stream_after_what_comes_before(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream brings a change that does not say all of its row, and the row itself is still to
    be replayed."""
    join, point, replay, commit = (
        FinishCopies._join,
        Joins.point,
        Replay.bring_to,
        CommitsInTurn.begin,
    )
    is_written = threading.Event()

    def insert_before(self: FinishCopies, tables: Mapping[int, Frontier]) -> bool:
        member.pipeline.execute("INSERT INTO items VALUES (-1, 'new', repeat('x', 9000))")
        lsn = member.pipeline.wal_end()
        committer = self._committer
        wait_until(lambda: committer.standing.frontier.end_lsn >= lsn, "the stream has passed it")
        return join(self, tables)

    def update_behind(joins: Joins, *arguments: Any) -> Frontier | None:
        def update() -> None:
            wait_until(lambda: bool(joins._asking), "it asks to join")
            is_written.clear()
            member.pipeline.execute("UPDATE items SET note = 'other' WHERE id = -1")

        with ThreadPoolExecutor(1) as pool:
            pool.submit(update)
            return point(joins, *arguments)

    def replay_late(self: Replay, *arguments: Any) -> None:
        # Nobody may write meanwhile what comes behind the point.
        is_written.wait(1)
        replay(self, *arguments)

    def written(self: CommitsInTurn, *arguments: Any) -> None:
        is_written.set()
        commit(self, *arguments)

    monkeypatch.setattr(FinishCopies, "_join", insert_before)
    monkeypatch.setattr(Joins, "point", update_behind)
    monkeypatch.setattr(Replay, "bring_to", replay_late)
    monkeypatch.setattr(CommitsInTurn, "begin", written)
    member.fill("items")
    member.configure()
    member.run_until_caught_up()
    member.run_until_caught_up()
    member.expect_equal("items")
    assert not any("set aside" in text for text in member.said)


@pytest.mark.release
def test_rows_change_while_they_are_copied_anew(member: Member) -> None:
    member.fill("items")
    member.configure(chunk_bytes="256KiB", parallelism=1)
    member.run_until_caught_up()
    member.command("tables", "resync", str(member.pipeline.file), "items")
    member.said.clear()
    with Writers(member.pipeline.url):
        member.run_until_caught_up()
    member.run_until_caught_up()
    assert any("public.items: init -> " in text for text in member.said)
    member.expect_equal("items")
