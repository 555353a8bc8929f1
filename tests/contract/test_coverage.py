"""The contract suite covers every destination that is shipped."""

from __future__ import annotations

from collections import Counter
from importlib.metadata import distribution
from pathlib import Path

from penstock.config.load import DESTINATIONS
from penstock.testing import DestinationContract

FOLDER = Path(__file__).parent


def test_every_destination_that_is_shipped_runs_the_suite() -> None:
    for entry in distribution("penstock").entry_points.select(group=DESTINATIONS):
        test = FOLDER / f"test_{entry.name.replace('-', '_')}.py"
        assert test.exists(), f"{entry.name} has no {test.name}"
        assert "(DestinationContract)" in test.read_text()


def test_no_test_of_the_suite_hides_another() -> None:
    """It is put together from several classes: two tests of one name would be one."""
    counts = Counter(
        name
        for part in DestinationContract.__bases__
        for name in vars(part)
        if name.startswith("test_")
    )
    assert len(counts) > 40
    assert counts.most_common(1)[0][1] == 1
