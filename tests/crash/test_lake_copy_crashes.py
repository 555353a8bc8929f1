"""A copy of full tables into a lake under writes, whose driver dies when chunks are in tables.

Tables are committed one by one there: what the control table does not tell yet is in a table. What
else is passed by those that copy, test_copy_crashes.py walks.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.copied_tables import Writers, fill_tables
from tests.crash.copying_pipeline import table_phases
from tests.crash.into_delta import IntoDelta
from tests.crash.into_iceberg import IntoIceberg
from tests.crash.into_postgres import SERVER_SETTINGS
from tests.crash.penstock_run import PATIENCE, WITHOUT_SPARK
from tests.fix_pipeline import wait_until
from tests.fix_postgres import FreshServer

pytestmark = pytest.mark.slow

# Without ``slips``: it has no key, and delta-rs removes no row of such a table.
TABLES = ("crates", "days", "side")
# At which pass drivers die, one after the other: in the first units, and later.
PASSES = (2, 5)


def test_a_driver_dies_while_it_copies_into_delta(
    fresh_server: FreshServer, tmp_path: Path
) -> None:
    with IntoDelta(fresh_server(**SERVER_SETTINGS), tmp_path, seed=5, copied=TABLES) as injured:
        _die_and_compare(injured, "delta", tmp_path)


@pytest.mark.release
def test_a_driver_dies_while_it_copies_into_iceberg(
    fresh_server: FreshServer, tmp_path: Path
) -> None:
    with IntoIceberg(fresh_server(**SERVER_SETTINGS), tmp_path, seed=5, copied=TABLES) as injured:
        _die_and_compare(injured, "iceberg", tmp_path)


def _die_and_compare(injured: IntoDelta | IntoIceberg, name: str, folder: Path) -> None:
    fill_tables(injured.url)
    injured.load.start()
    with Writers(injured.url, seed=5) as writers:
        for passes in PASSES:
            _die_at(injured, f"{name}.copy_loaded=kill:{passes}", folder / f"fired {passes}")
        injured.start(**WITHOUT_SPARK)

        def ready() -> bool:
            injured.check_alive()
            writers.check()
            phases = table_phases(injured.url, injured.pipeline.name)
            assert "errored" not in phases.values(), phases
            return [phases.get(table) for table in TABLES] == ["ready"] * len(TABLES)

        wait_until(ready, "all tables are ready", PATIENCE)
        writers.stop()
        injured.load.stop()
        injured.wait_delivered()
        injured.run.stop()
    assert injured.check_all() > 1000


def _die_at(injured: IntoDelta | IntoIceberg, failpoint: str, fired: Path) -> None:
    fired.mkdir()
    failing = {"PENSTOCK_FAILPOINTS": failpoint, "PENSTOCK_FAILPOINT_DIR": str(fired)}
    injured.start(**WITHOUT_SPARK, **failing)
    injured.run.wait_gone()
    assert injured.run.exit_code == -9, injured.run.output[-3000:]
    assert list(fired.iterdir())
