"""What holds for every destination that is shipped, whichever these are."""

from __future__ import annotations

from importlib.metadata import EntryPoint, distribution
from itertools import permutations
from pathlib import Path

import grimp
import pytest

from penstock.config.load import DESTINATIONS
from tests.documented import destination_example

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(distribution("penstock").entry_points.select(group=DESTINATIONS))


def _package(entry: EntryPoint) -> str:
    """``penstock.destination.NAME``, whatever is below it."""
    return ".".join(entry.module.split(".")[:3])


def test_destinations_do_not_know_each_other() -> None:
    graph = grimp.build_graph("penstock", exclude_type_checking_imports=True, cache_dir=None)
    for one, other in permutations(SHIPPED, 2):
        chain = graph.find_shortest_chain(_package(one), _package(other), as_packages=True)
        assert chain is None, f"{one.name} reaches {other.name}: {chain}"


@pytest.mark.parametrize("entry", SHIPPED, ids=lambda entry: entry.name)
def test_each_is_a_class_of_its_own_name_with_a_page_that_shows_it(entry: EntryPoint) -> None:
    destination = entry.load()
    assert destination.name == entry.name
    assert entry.module.startswith("penstock.destination.")
    page = (ROOT / "docs" / "destinations" / f"{entry.name}.md").read_text()
    assert page.startswith(f"# {entry.name}\n")
    example = destination_example(entry.name)
    assert example.pop("type") == entry.name
    assert set(example) <= set(destination.options_model.model_fields)
