"""A pipeline whose caches are thrown away between runs goes on exactly."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.crash.injured_pipeline import InjuredPipeline
from tests.fix_postgres import FreshServer

pytestmark = [pytest.mark.slow, pytest.mark.newest_postgres]


def test_the_change_log_is_deleted_between_runs(fresh_server: FreshServer, tmp_path: Path) -> None:
    """With ``confirm: destination`` Postgres still has what the destination lacks."""
    with InjuredPipeline(fresh_server(deadlock_timeout="50ms"), tmp_path, seed=1) as injured:
        injured.load.start()
        run = injured.start()
        injured.wait_delivering(run)
        run.kill_driver()
        run.wait_gone()
        # The log now holds what was never delivered.
        shutil.rmtree(injured.pipeline.log.root.path)
        injured.wait_load(20)
        injured.load.stop()
        injured.catch_up()
        injured.check_all()
