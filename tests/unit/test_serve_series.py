"""Charts: bounded, and there again after a restart of the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.serve.observe import series as module
from penstock.serve.observe.series import COLUMNS, Series, SeriesFile


def said(at: float) -> dict[str, Any]:
    """What a pipeline says that delivers ten rows a second."""
    totals = ("received", "delivered", "copied", "batches")
    levels = ("lag_bytes", "lag_seconds", "log_bytes", "unconfirmed_bytes")
    return {
        **dict.fromkeys(totals, 10 * at),
        **dict.fromkeys(levels, 7.0),
        "batch_seconds": at,
        "commit_seconds": at,
    }


def run(made: Series, begin: int, end: int) -> None:
    for at in range(begin, end, 2):
        made.add(float(at), said(at))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.series"


def test_minutes_are_there_again_after_a_restart(path: Path) -> None:
    run(Series(SeriesFile(path)), 1_000, 4_600)
    again = Series(SeriesFile(path))
    points = again.points(0.0, 1000)
    assert 55 <= len(points) <= 60
    assert points[-1].values["delivered_per_second"] == pytest.approx(10.0)
    assert again.latest is None, "what was is not what is"
    run(again, 5_000, 5_200)
    times = [point.at for point in again.points(0.0, 1000)]
    assert times == sorted(times)
    assert times[0] < 1_100
    assert times[-1] > 5_100
    assert path.stat().st_mode & 0o077 == 0


def test_the_file_stays_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_COARSE_POINTS", 10)
    file = SeriesFile(path)
    for at in range(1_000):
        file.add([float(at), *(1.0 for _ in COLUMNS)])
    assert [row[0] for row in file.read()] == [float(at) for at in range(990, 1_000)]
    assert path.stat().st_size < 22 * 8 * (1 + len(COLUMNS)) + 500


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-11],
        lambda data: b"",
        lambda data: b"X" + data[1:],
        lambda data: data + b"\xff" * 88,
    ],
)
def test_what_is_damaged_does_no_harm(path: Path, spoil: Any) -> None:
    """A server that died in the middle of a row, another version's file."""
    file = SeriesFile(path)
    for at in range(20):
        file.add([float(at), *(1.0 for _ in COLUMNS)])
    path.write_bytes(spoil(path.read_bytes()))
    before = len(file.read())
    assert before in (0, 19, 20)
    file.add([100.0, *(1.0 for _ in COLUMNS)])
    assert len(file.read()) == before + 1
    assert file.read()[-1][0] == 100.0


def test_a_disk_that_refuses_costs_the_past_alone(tmp_path: Path) -> None:
    made = Series(SeriesFile(tmp_path / "gone" / "shop.series"))
    run(made, 1_000, 1_200)
    assert made.points(0.0, 1000)
