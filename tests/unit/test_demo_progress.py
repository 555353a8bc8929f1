"""Counting what was delivered, and how far behind that is."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.demo.progress import DeliveredSoFar, Deliveries, ProgressMeter
from penstock.destination.files.layout import ControlFolder
from penstock.destination.files.manifest import Manifest, Manifests, StagedFile
from penstock.lsn import NOTHING, Frontier
from penstock.pipeline.apply_batch import Delivered


def so_far(rows: dict[str, int], end_lsn: int) -> DeliveredSoFar:
    return DeliveredSoFar(rows, {}, Frontier(end_lsn - 1, end_lsn))


def staged(folder: str, rows: int, last: str) -> StagedFile:
    return StagedFile("x", f"{folder}/commit_date=2026-01-01/x.ndjson", rows, 1, "0/1+0", last)


def test_rows_are_counted_by_table_from_each_manifest(tmp_path: Path) -> None:
    folder = ControlFolder(tmp_path, "shop").manifests
    folder.mkdir(parents=True)
    manifests = Manifests(folder)
    deliveries = Deliveries(tmp_path, "shop", ["orders", "carts"])
    frontier = Frontier(9, 10)
    for number, files in enumerate(
        [
            (staged("public.orders", 3, "0/2+2"), staged("_messages", 1, "0/2+3")),
            (staged("public.orders", 4, "0/3+0"), staged("public.carts", 5, "0/4+1")),
        ],
        start=1,
    ):
        assert manifests.create(Manifest(number, "epoch", frontier, files))
        deliveries(Delivered(frontier, 1, 0.0))
    seen = deliveries.so_far()
    assert seen.rows == {"orders": 7, "carts": 5}
    assert seen.positions == {"orders": "0/3+0", "carts": "0/4+1"}
    assert seen.frontier == frontier


def test_nothing_delivered_is_no_lag() -> None:
    progress = ProgressMeter(["orders"]).measure(100.0, 5000, DeliveredSoFar({}, {}, NOTHING))
    assert (progress.rows, progress.lag_bytes, progress.lag_seconds) == (0, 0, 0.0)


def test_rates_are_of_the_last_seconds() -> None:
    meter = ProgressMeter(["orders", "carts"])
    meter.measure(0.0, 1, so_far({"orders": 1000}, 1))
    progress = meter.measure(2.0, 1, so_far({"orders": 1100, "carts": 10}, 1))
    assert [table.rows_per_second for table in progress.tables] == [50.0, 5.0]
    assert progress.rows == 1110
    assert progress.rows_per_second == 55.0
    for now in range(3, 20):
        progress = meter.measure(float(now), 1, so_far({"orders": 1100, "carts": 10}, 1))
    assert progress.rows_per_second == 0.0


def test_lag_is_the_age_of_the_oldest_wal_that_is_not_delivered() -> None:
    meter = ProgressMeter(["orders"])
    meter.measure(0.0, 100, so_far({}, 100))
    meter.measure(1.0, 200, so_far({}, 100))
    progress = meter.measure(2.5, 300, so_far({}, 100))
    assert (progress.lag_bytes, progress.lag_seconds) == (200, 1.5)
    progress = meter.measure(3.0, 300, so_far({}, 250))
    assert progress.lag_bytes == 50
    assert progress.lag_seconds == pytest.approx(0.5)
    progress = meter.measure(9.0, 300, so_far({}, 310))
    assert (progress.lag_bytes, progress.lag_seconds) == (0, 0.0)
