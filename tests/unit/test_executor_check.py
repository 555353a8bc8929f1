"""What `penstock check` finds out about executors, as far as that needs no cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.changelog.changelog import ChangeLog
from penstock.config.models import PipelineConfig
from penstock.model.errors import PenstockError
from penstock.spark import executor_check
from penstock.spark.executor_check import check_executors, settled_count, silent_executors
from penstock.spark.shared_folders import shared_folders


def config(folder: Path, **destination: str) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "name": "shop",
            "source": {"url": "postgresql://u@h/d"},
            "destination": destination or {"type": "discard"},
            "change_log": {"path": str(folder / "log")},
            "spark": {"master": "spark://nowhere:7077"},
        }
    )


class Cluster:
    """Executors that come at given moments."""

    def __init__(self, *at: float) -> None:
        self.at = at
        self.now = 100.0

    def look(self) -> int:
        return sum(self.now >= 100.0 + each for each in self.at)

    def count(self) -> int:
        return settled_count(self.look, lambda: self.now, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_executors_that_come_late_are_waited_for() -> None:
    assert Cluster(2.0, 2.5, 6.0).count() == 3
    assert Cluster(0.0).count() == 1


def test_nobody_is_waited_for_for_ever() -> None:
    empty = Cluster()
    assert empty.count() == 1
    assert empty.now <= 131.0
    assert Cluster(*range(0, 200, 3)).count() >= 10


def test_one_that_did_not_answer_is_a_failure() -> None:
    assert silent_executors(2, 2) == []
    (result,) = silent_executors(3, 2)
    assert result.status == "failed"
    assert "2 of 3 executors answered" in result.detail
    assert "penstock pack" in result.remedy


def test_a_log_that_cannot_be_written_is_one_result(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file where the folder should be")
    (result,) = check_executors([config(tmp_path)])
    assert (result.name, result.status) == ("executors", "failed")
    assert "log" in result.detail


def test_a_master_that_is_away_is_one_result_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ConnectionError("nobody there")

    monkeypatch.setattr(executor_check, "start_session", fail)
    views = [config(tmp_path)]
    (result,) = check_executors(views)
    assert "no session could be started: nobody there" in result.detail
    assert "spark://nowhere:7077" in result.remedy
    assert ChangeLog.of(views[0].change_log).root.entries() == set()


def test_folders_that_destinations_need_on_all_machines(tmp_path: Path) -> None:
    lake = config(tmp_path, type="delta", path=str(tmp_path / "lake" / "new"))
    (folder,) = shared_folders([lake])
    assert (folder.destination, folder.option) == ("delta", "path")
    with folder.shown("check-1"):
        folder.require("check-1")
        # Another machine has no such file in its folder.
        with pytest.raises(PenstockError, match=r"does not see .*lake/new \(path of .* delta\)"):
            folder.require("check-2")
    assert list(tmp_path.iterdir()) == []
    bucket = config(tmp_path, type="files", path="s3://bucket/files")
    places = {"warehouse": "s3://bucket/lake", "stage": "s3://bucket/stage"}
    iceberg = config(tmp_path, type="iceberg", catalog="postgresql://db/catalog", **places)
    assert shared_folders([bucket, iceberg]) == []
