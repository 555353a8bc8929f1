"""A query before it is started: Spark may be gone, and its checkpoint is nobody else's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]

from penstock.config.models import ChangeLogConfig
from penstock.model.errors import SparkLost
from penstock.model.lsn import NOTHING
from penstock.pipeline.run.engine import QueryPart
from penstock.spark.query import PipelineQuery, QuerySettings, _new_checkpoint
from penstock.transform.floors import Floors


@pytest.mark.parametrize(
    "error",
    [
        # What py4j says depends on the moment in which the JVM ends.
        Py4JError("An error occurred while calling o81.readStream"),
        Py4JNetworkError("Error while sending or receiving"),
        ConnectionRefusedError(),
    ],
)
def test_spark_is_lost(error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object) -> None:
        raise error

    monkeypatch.setattr(PipelineQuery, "_start", start)
    nothing: Any = None
    part = QueryPart(nothing, lambda _: Floors(), nothing)
    settings = QuerySettings(ChangeLogConfig(path=str(tmp_path)), 1, 1, 1, 1.0)
    with pytest.raises(SparkLost):
        PipelineQuery(nothing, settings, NOTHING, part, [])


def test_a_checkpoint_is_its_owner_s_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        checkpoint = Path(_new_checkpoint(str(tmp_path)))
    finally:
        os.umask(before)
    assert checkpoint.stat().st_mode & 0o777 == 0o700
    checkpoint.rmdir()
