"""A pipeline whose change log is deleted between two runs goes on exactly."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.crash.into_files import IntoFiles
from tests.fix_postgres import FreshServer

pytestmark = [pytest.mark.slow, pytest.mark.release]


def test_the_change_log_is_deleted_under_load(fresh_server: FreshServer, tmp_path: Path) -> None:
    """The destination knows where it stands, and with ``confirm: destination`` Postgres still has
    what the destination lacks."""
    with IntoFiles(fresh_server(deadlock_timeout="50ms"), tmp_path, seed=1) as injured:
        injured.load.start()
        run = injured.start()
        injured.wait_delivering()
        run.kill_driver()
        run.wait_gone()
        # With it goes what was captured and never delivered.
        shutil.rmtree(injured.pipeline.log.root.path)

        injured.wait_load(20)
        injured.load.stop()
        injured.catch_up()
        injured.check_all()
