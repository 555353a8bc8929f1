"""The driver's JVM starts quietly, leaves Ctrl-C to us, and ends when asked to."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SESSION = """
import signal
import psutil
from penstock.config.models import SparkConfig
from penstock.spark.session import end_session, make_session

def answer(number, frame):
    pass

def javas():
    return [p for p in psutil.Process().children(recursive=True) if p.name() == "java"]

signal.signal(signal.SIGINT, answer)
config = SparkConfig(
    master="local[1, 4]", conf={"spark.driver.extraJavaOptions": "-Dpenstock.test=yes"}
)
for _ in range(2):
    spark = make_session("test", config)
    assert signal.getsignal(signal.SIGINT) is answer
    java = spark.sparkContext._jvm.java.lang
    assert java.System.getProperty("penstock.test") == "yes"
    assert len(javas()) == 1
    java.System.err.println("a line that matters")
    end_session(spark)
    assert javas() == []
"""


@pytest.mark.slow
def test_a_session_is_quiet_and_ends_with_its_jvm() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SESSION], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == ["a line that matters"] * 2
    assert done.stdout == ""
