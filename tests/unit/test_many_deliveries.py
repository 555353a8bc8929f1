"""The command that starts a process for each destination."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from penstock.metrics.of_many import ManyMetrics
from penstock.model.errors import LogUnavailable
from penstock.pipeline.many.many_deliveries import ManyDeliveries
from tests.run_context import run_context


def test_a_log_that_is_away_ends_no_destination() -> None:
    """Where somebody else captures, what he says is read from there, for the metrics alone."""

    def away() -> dict[str, Any]:
        raise LogUnavailable("the bucket does not answer")

    config = run_context("shop").config
    views = [config.one_of(n, ("lake", "more"), replays_log=False) for n in ("lake", "more")]
    metrics = ManyMetrics("shop", ["lake", "more"])
    many = ManyDeliveries(views, Path("shop.yaml"), metrics, captures=False)
    session: Any = SimpleNamespace(position=lambda: 1)
    capture: Any = SimpleNamespace(report=away)
    many._look(session, capture)
    assert "the bucket does not answer" in str(metrics.capture.health._troubles)
