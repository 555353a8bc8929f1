"""Tasks that send at once must not run twice at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.config.models import PipelineConfig, SparkConfig
from penstock.spark.preflight import _destination
from penstock.spark.session import beside_submitted

VERSIONED = {"type": "memory-versioned", "path": "rows"}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check opens the destination, which makes its folder."""
    monkeypatch.chdir(tmp_path)


def config(destination: dict[str, str], speculation: object) -> PipelineConfig:
    content: dict[str, Any] = {
        "name": "shop",
        "source": {"url": "postgresql://db/shop"},
        "destination": destination,
        "spark": {"conf": {"spark.speculation": speculation}},
    }
    return PipelineConfig.model_validate(content)


@pytest.mark.parametrize("written", [True, "TRUE"])
def test_it_is_refused_where_what_was_sent_cannot_be_taken_back(written: object) -> None:
    result = _destination(config(VERSIONED, written))
    assert result.status == "failed"
    assert "spark.speculation is on" in result.detail
    assert "set spark.speculation to false" in result.remedy


def test_spark_submit_does_not_turn_it_on() -> None:
    """By its options, or by a cluster's spark-defaults.conf, which the check knows nothing of."""
    given = {"spark.speculation": "true", "spark.ui.enabled": "true", "spark.driver.memory": "4g"}
    ours = beside_submitted(SparkConfig(), given)
    assert ours["spark.speculation"] == "false"
    assert "spark.ui.enabled" not in ours
    assert "spark.driver.memory" not in ours
    # What the file says counts, and the check has looked at it.
    asked = SparkConfig.model_validate({"conf": {"spark.speculation": "true"}})
    assert beside_submitted(asked, {})["spark.speculation"] == "true"


@pytest.mark.parametrize(
    ("destination", "written"), [(VERSIONED, False), ({"type": "discard"}, True)]
)
def test_it_is_of_no_interest_elsewhere(destination: dict[str, str], written: object) -> None:
    assert _destination(config(destination, written)).status == "passed"
