"""A Spark session with settings that suit many small micro-batches."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.config.models import SparkConfig
from penstock.spark import register
from penstock.spark.java import ensure_java

_CHECKPOINTS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


def default_settings() -> dict[str, str]:
    """What Penstock sets unless the pipeline file says otherwise. docs/spark.md says why."""
    return {
        "spark.python.daemon.module": "penstock.spark.daemon",
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.sql.streaming.pollingDelay": "20ms",
        "spark.sql.streaming.minBatchesToRetain": "2",
        "spark.sql.streaming.numRecentProgressUpdates": "5",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.ui.retainedExecutions": "10",
        "spark.ui.enabled": "false",
        "spark.ui.retainedJobs": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.showConsoleProgress": "false",
        "spark.speculation": "false",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
    }


def make_session(name: str, config: SparkConfig) -> SparkSession:
    """Start (or reuse) this process's session, with the ``penstock`` source registered."""
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"penstock {name}").master(config.master)
    settings = default_settings()
    if not config.master.startswith("local"):
        # A driver that listens on loopback only cannot be reached by executors elsewhere.
        del settings["spark.driver.bindAddress"], settings["spark.driver.host"]
    for key, value in (settings | config.conf).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def checkpoint_parent() -> str | None:
    """A memory file system where there is one: the checkpoint is a cache, not the truth."""
    memory = Path("/dev/shm")  # noqa: S108 (its content is worthless to others)
    return str(memory) if os.access(memory, os.W_OK) else None
