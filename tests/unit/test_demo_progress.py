"""Turning what the destination shows into rates and lags."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.demo.progress import DemoProgress, ProgressMeter, state_text
from penstock.demo.target_reader import Invariant, TargetLook
from penstock.model.lsn import NOTHING, Frontier
from penstock.pipeline.copy.copy_progress import CopyView

TABLES = ("orders", "carts")
COPIES = {
    "orders": CopyView("public.orders", "data_sync", 1, 4, 100, 300, 1000, 2.0),
    "carts": CopyView("public.carts", "ready", 1, 1, 0, 0, 0, 2.0),
}
INVARIANT = Invariant(7, 3)


def measure(meter: ProgressMeter, now: float, source_lsn: int, look: TargetLook) -> DemoProgress:
    return meter.measure(now, source_lsn, look, INVARIANT, COPIES)


def look(end_lsn: int, orders: int = 0, carts: int = 0, *, rows: int = 0) -> TargetLook:
    """One at which so many rows had been written, and each table held ``rows``."""
    return TargetLook(
        dict.fromkeys(TABLES, rows),
        {"orders": orders, "carts": carts},
        Frontier(end_lsn - 1, end_lsn) if end_lsn else NOTHING,
    )


def test_nothing_delivered_is_no_lag() -> None:
    progress = measure(ProgressMeter(), 100.0, 5000, look(0))
    assert (progress.rows, progress.lag_bytes, progress.lag_seconds) == (0, 0, 0.0)


def test_rows_are_those_that_are_there_and_rates_those_that_were_written() -> None:
    meter = ProgressMeter()
    measure(meter, 0.0, 1, look(1, 1000, rows=50))
    progress = measure(meter, 2.0, 1, look(1, 1100, 10, rows=40))
    assert [table.rows for table in progress.tables] == [40, 40]
    assert progress.rows == 80
    assert [table.rows_per_second for table in progress.tables] == [50.0, 5.0]
    assert progress.rows_per_second == 55.0
    assert progress.invariant is INVARIANT
    assert [table.state for table in progress.tables] == ["copying 30 %", "following"]


def test_a_table_that_comes_later_counts_from_then_on() -> None:
    meter = ProgressMeter()
    measure(meter, 0.0, 1, TargetLook({"orders": 5}, {"orders": 5}, NOTHING))
    progress = measure(meter, 2.0, 1, look(1, 5, 60, rows=5))
    assert [(table.name, table.rows_per_second) for table in progress.tables] == [
        ("orders", 0.0),
        ("carts", 30.0),
    ]


@pytest.mark.parametrize(
    ("phase", "text"),
    [
        ("init", "waiting"),
        ("data_sync", "copying 30 %"),
        ("finished_copy", "catching up"),
        ("catchup", "catching up"),
        ("sync_done", "catching up"),
        ("ready", "following"),
        ("errored", "errored"),
    ],
)
def test_what_a_table_is_at(phase: str, text: str) -> None:
    assert state_text(replace(COPIES["orders"], phase=phase)) == text


def test_a_table_that_nobody_copies_yet_waits() -> None:
    assert state_text(None) == "waiting"


def test_rates_are_of_the_last_seconds() -> None:
    meter = ProgressMeter()
    measure(meter, 0.0, 1, look(1, 1000))
    for now in range(2, 20):
        progress = measure(meter, float(now), 1, look(1, 1100, 10))
    assert progress.rows_per_second == 0.0


def test_lag_is_the_age_of_the_oldest_wal_that_is_not_delivered() -> None:
    meter = ProgressMeter()
    measure(meter, 0.0, 100, look(100))
    measure(meter, 1.0, 200, look(100))
    progress = measure(meter, 2.5, 300, look(100))
    assert (progress.lag_bytes, progress.lag_seconds) == (200, 1.5)
    progress = measure(meter, 3.0, 300, look(250))
    assert progress.lag_bytes == 50
    assert progress.lag_seconds == pytest.approx(0.5)
    progress = measure(meter, 9.0, 300, look(310))
    assert (progress.lag_bytes, progress.lag_seconds) == (0, 0.0)
