"""A large transaction whose rows are at their targets while capture has not got all of it yet."""

from __future__ import annotations

import psycopg
import pytest

from tests.crash.penstock_run import WITHOUT_SPARK, PenstockRun
from tests.crash.row_texts import expect_same_rows
from tests.fix_pipeline import PipelineUnderTest, wait_until

pytestmark = pytest.mark.slow

_ROWS = 100_000
FILL = "INSERT INTO items SELECT n, repeat(md5(n::text), 6) FROM generate_series(1, 100000) n"


def has_pieces(target_url: str, pipeline: str) -> bool:
    """Whether the run has taken pieces: it keeps the session that it took them on."""
    with psycopg.connect(target_url) as conn:
        found = conn.execute(
            "SELECT 1 FROM pg_stat_activity WHERE application_name = %s"
            " AND datname = current_database()",
            [f"penstock {pipeline} pieces"],
        )
        return found.fetchone() is not None


def is_prepared(target_url: str) -> bool:
    with psycopg.connect(target_url) as conn:
        found = conn.execute("SELECT to_regclass('public.items')").fetchone()
        return found != (None,)


@pytest.mark.parametrize("place", ["", "capture.published=kill:3", "capture.before_publish=kill:3"])
def test_a_transaction_that_is_taken_while_it_is_written(
    pipeline: PipelineUnderTest, target_url: str, place: str
) -> None:
    """The next capture sweeps what was left of it and receives all of it again: what was taken is
    undone, nobody has seen it, and the run goes on by itself.
    """
    pipeline.execute("CREATE TABLE items (id bigint PRIMARY KEY, v text)")
    pipeline.configure(
        include=("public.*",),
        destination={"type": "postgres", "url": target_url},
        copy=False,
        segment_bytes="64 KiB",
        grace="0s",
        batch={"max_bytes": "512 KiB"},
    )
    fired = pipeline.folder / "fired"
    fired.mkdir()
    environment = {**WITHOUT_SPARK, "PENSTOCK_FAILPOINT_DIR": str(fired)}
    run = PenstockRun(pipeline.file, environment={**environment, "PENSTOCK_FAILPOINTS": place})
    try:
        wait_until(lambda: is_prepared(target_url), "its table is made")
        pipeline.execute(FILL)

        def count() -> int:
            run.expect_running()
            with psycopg.connect(target_url) as conn:
                row = conn.execute("SELECT count(*) FROM items").fetchone()
            assert row is not None
            assert row[0] in (0, _ROWS), "a part of a transaction is visible"
            return int(row[0])

        wait_until(lambda: count() == _ROWS, "all of it is there")
        assert has_pieces(target_url, pipeline.name)
        assert [file.name for file in fired.iterdir()] == [*filter(None, [place.partition("=")[0]])]
    finally:
        run.end()
    run.expect_no_bug()
    assert expect_same_rows(pipeline.url, target_url, ["items"]) == _ROWS
