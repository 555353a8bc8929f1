"""docs/metrics.md, the Grafana board and the catalogue name the same metrics."""

from __future__ import annotations

import json
import re
from pathlib import Path

from penstock.metrics.catalogue import CATALOGUE, RUNNING

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "metrics.md").read_text()
BOARD = (DOCS / "grafana" / "penstock.json").read_text()
_NAME = re.compile(r"\bpenstock_[a-z_]+")


def _exposed() -> set[str]:
    """Names of series, as Prometheus has them."""
    plain = {metric.name for metric in CATALOGUE if metric.kind != "histogram"}
    histograms = [metric.name for metric in CATALOGUE if metric.kind == "histogram"]
    return plain | {f"{name}_{part}" for name in histograms for part in ("bucket", "sum", "count")}


def test_the_page_tells_of_every_metric_as_it_is_and_of_no_other() -> None:
    rows = re.findall(r"^\| `(penstock_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", PAGE, re.MULTILINE)
    assert rows == [
        (m.name, m.kind, ", ".join(f"`{label}`" for label in m.labels), m.help) for m in CATALOGUE
    ]


def test_whatever_else_the_page_names_exists() -> None:
    known = {m.name for m in (*CATALOGUE, RUNNING)}
    unknown = set(_NAME.findall(PAGE)) - known - {"penstock_"}
    assert not unknown


def test_the_board_asks_for_metrics_that_exist_and_shows_all() -> None:
    board = json.loads(BOARD)
    asked = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in _NAME.findall(target["expr"])
    }
    assert asked <= _exposed()
    shown = {re.sub("_bucket$", "", name) for name in asked}
    # One of many counts that tell of the same.
    assert {m.name for m in CATALOGUE} - shown == {
        "penstock_copied_bytes_total",
        "penstock_copied_chunks_total",
        "penstock_received_messages_total",
    }


def test_the_board_asks_for_labels_that_are_there() -> None:
    labels = {label for metric in CATALOGUE for label in metric.labels} | {"pipeline"}
    assert set(re.findall(r"\{\{(\w+)\}\}", BOARD)) <= labels


def test_the_boards_panels_do_not_cover_each_other() -> None:
    cells = [
        (x, y)
        for panel in json.loads(BOARD)["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
