"""A destination that is away for a while needs nobody's help when it is back.

``PENSTOCK_OUTAGE_SECONDS`` is how long it is away; `make chaos` takes two minutes.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.crash.chaos_seed import SeedReport
from tests.crash.into_postgres import SERVER_SETTINGS
from tests.crash.outage import run_outage
from tests.fix_postgres import FreshServer

pytestmark = pytest.mark.slow


def test_destination_stopped_under_load(fresh_server: FreshServer, tmp_path: Path) -> None:
    servers = fresh_server(**SERVER_SETTINGS), fresh_server(**SERVER_SETTINGS)
    seconds = float(os.environ.get("PENSTOCK_OUTAGE_SECONDS", "2"))
    run_outage(SeedReport("outage"), servers, tmp_path, seconds)
