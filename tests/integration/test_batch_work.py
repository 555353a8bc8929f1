"""Tasks that hang are told from tasks that take long, on a real Spark."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.changelog.chain import Batch
from penstock.model.lsn import NOTHING
from penstock.spark import engine as spark_engine
from penstock.spark.engine import SparkEngine
from penstock.transform.floors import Floors
from tests.fix_pipeline import wait_until
from tests.run_context import run_context


def test_work_of_a_batch_grows_while_its_tasks_work(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spins, ends = tmp_path / "spins", tmp_path / "ends"
    spins.touch()

    def task(_rows: object) -> list[int]:
        while spins.exists():
            pass
        while not ends.exists():
            time.sleep(0.2)
        return []

    def run_batch(*_given: object) -> Any:
        spark.sparkContext.parallelize([1], 1).mapPartitions(task).collect()

    monkeypatch.setattr(spark_engine, "run_batch", run_batch)
    writer: Any = None
    batch = Batch(NOTHING, ())
    with SparkEngine(run_context("shop", tmp_path).config, (), session=spark) as engine:
        assert engine.batch_work is None, "no batch is being written"
        floors = Floors()
        job = threading.Thread(target=engine.write_batch, args=(batch, floors, writer))
        job.start()
        try:
            wait_until(lambda: engine.batch_work is not None, "the batch is being written")

            def grows() -> bool:
                before = engine.batch_work
                time.sleep(0.3)
                return before is not None and (engine.batch_work or 0) > before

            wait_until(grows, "a task that works is seen to")
            spins.unlink()
            wait_until(lambda: not grows(), "one that hangs is not")
        finally:
            spins.unlink(missing_ok=True)
            ends.touch()
            job.join()
        assert engine.batch_work is None
