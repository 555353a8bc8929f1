"""`penstock snapshot` that was stopped, and goes on with other rules, or into another table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from penstock.pipeline.copy.copy_only import CopyReport, copy_only
from penstock.pipeline.copy.copy_progress import CopyView
from tests.fix_pipeline import PipelineUnderTest
from tests.pipelines import engine_on
from tests.threads_engine import Threads
from tests.tree_of_tables import KEY

ROWS = 15000
"""So many chunks that a copy is seen before all of them are done."""


@pytest.mark.parametrize(
    "now",
    [
        {"transform": {"email": "hash"}},
        {"filter": {"columns": {"people": {"exclude": ["email"]}}}},
        {},
    ],
    ids=["rules", "columns", "nothing"],
)
def test_rows_that_came_under_others_come_again(
    pipeline: PipelineUnderTest,
    threads: Threads,
    target_url: str,
    caplog: pytest.LogCaptureFixture,
    now: dict[str, Any],
) -> None:
    run = _stopped_halfway(pipeline, threads, target_url)
    if columns := now.get("transform"):
        rule = {"table": "people", "columns": columns, "keep": ["id"]}
        now = {"transform": {"key": KEY, "rules": [rule]}}
    pipeline.also(**now)
    report = run(lambda: False)
    assert report is not None
    assert dict(report.rows) == {"public.people": ROWS}
    assert ("all tables are copied anew" in caplog.text) == bool(now)
    with psycopg.connect(target_url) as conn:
        found = "SELECT count(*) FROM people p WHERE p::text LIKE '%xxx%'"
        assert conn.execute(found).fetchone() == (0 if now else ROWS,)
        assert conn.execute("SELECT count(*) FROM people").fetchone() == (ROWS,)


def test_rows_that_went_with_their_table_come_again(
    pipeline: PipelineUnderTest, threads: Threads, target_url: str
) -> None:
    """As where somebody wants to begin anew, or gives another database."""
    run = _stopped_halfway(pipeline, threads, target_url)
    with psycopg.connect(target_url) as conn:
        conn.execute("DROP TABLE people")
    report = run(lambda: False)
    assert report is not None
    assert dict(report.rows) == {"public.people": ROWS}
    with psycopg.connect(target_url) as conn:
        assert conn.execute("SELECT count(*) FROM people").fetchone() == (ROWS,)


@pytest.mark.parametrize("how", ["excluded", "dropped"])
def test_a_table_that_is_asked_for_no_longer_is_not_copied_on(
    pipeline: PipelineUnderTest,
    threads: Threads,
    target_url: str,
    caplog: pytest.LogCaptureFixture,
    how: str,
) -> None:
    run = _stopped_halfway(pipeline, threads, target_url)
    pipeline.execute("CREATE TABLE later AS SELECT 1 AS id")
    if how == "dropped":
        pipeline.execute("DROP TABLE people")
    else:
        into = {"type": "postgres", "url": target_url}
        pipeline.configure(destination=into, exclude=("people",))
    report = run(lambda: "people starts again" in caplog.text)
    assert report is not None
    assert dict(report.rows) == {"public.later": 1}


def _stopped_halfway(
    pipeline: PipelineUnderTest, threads: Threads, target_url: str
) -> Callable[[Callable[[], bool]], CopyReport | None]:
    """What goes on with a snapshot of which some chunks are copied."""
    pipeline.execute(
        "CREATE TABLE people (id int PRIMARY KEY, email text)",
        "INSERT INTO people SELECT n, repeat('x', 200) || n FROM generate_series(1, 15000) n",
    )
    into = {"type": "postgres", "url": target_url}
    pipeline.configure(destination=into, copy={"chunk_bytes": "64KiB", "parallelism": 1})
    begun: list[CopyView] = []

    def run(stopping: Callable[[], bool]) -> CopyReport | None:
        return copy_only(
            pipeline.config,
            pipeline.file,
            engine_on(threads),
            stopping,
            observe_copies=lambda views: begun.extend(v for v in views if v.bytes_done),
        )

    assert run(lambda: bool(begun)) is None
    assert 0 < begun[-1].chunks_done < begun[-1].chunks
    return run
