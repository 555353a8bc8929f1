"""A copy of full tables into a lake under writes, whose driver dies when chunks are in tables.

Tables are committed one by one there: what the control table does not tell yet is in a table.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.copied_tables import Writers, fill_tables
from tests.crash.copying_pipeline import table_phases
from tests.crash.into_delta import IntoDelta
from tests.crash.into_iceberg import IntoIceberg
from tests.crash.into_postgres import SERVER_SETTINGS
from tests.crash.passed_failpoints import copy_failpoints
from tests.crash.penstock_run import PATIENCE, WITHOUT_SPARK
from tests.fix_pipeline import wait_until
from tests.fix_postgres import FreshServer

pytestmark = pytest.mark.slow

# Without ``slips``: it has no key, and delta-rs removes no row of such a table.
TABLES = ("crates", "days", "side")
# At which pass; the counts begin anew with each process that died.
PASSES = {"copy.read": 4, "copy.written": 3}
AGAIN = (2, 5)


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
        others = {each: PASSES[each] for each in copy_failpoints(name) if each in PASSES}
        own = f"{name}.copy_loaded"
        for number, passes in enumerate(AGAIN):
            # The others once: with the first.
            points = {own: passes, **(others if not number else {})}
            _die_at(injured, points, folder / f"fired {number}")
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


def _die_at(injured: IntoDelta | IntoIceberg, points: dict[str, int], fired: Path) -> None:
    """Start the driver again until it has died at each of them."""
    fired.mkdir()
    environment = {
        **WITHOUT_SPARK,
        "PENSTOCK_FAILPOINTS": ",".join(f"{name}=kill:{at}" for name, at in points.items()),
        "PENSTOCK_FAILPOINT_DIR": str(fired),
    }
    while {path.name for path in fired.iterdir()} != set(points):
        injured.start(**environment)
        injured.run.wait_gone()
        assert injured.run.exit_code == -9, injured.run.output[-3000:]
