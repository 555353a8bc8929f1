"""A Spark session with settings that suit many small micro-batches."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from penstock.config.models import SparkConfig
from penstock.spark import register
from penstock.spark.class_archive import archive_options
from penstock.spark.environment import PYTHON, driver_folder, environment_settings
from penstock.spark.java import ensure_java, is_submitted
from penstock.spark.jvm import JVM_GONE, end_jvm, log_options, start_context

_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
_SPECULATION = "spark.speculation"
# The JVM plans batches and carries pointers; no row passes through it. Compiling its code twice
# over and collecting garbage on several threads would cost more than either gains. Left alone, its
# heap begins with a 64th of the machine's memory, all of which is touched before it collects once.
_JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xms64m"


def default_settings() -> dict[str, str]:
    """What Penstock sets unless the pipeline file says otherwise. docs/spark.md says why."""
    return {
        "spark.python.daemon.module": "penstock.spark.daemon",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.ui.retainedExecutions": "10",
        "spark.ui.enabled": "false",
        "spark.ui.retainedJobs": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.showConsoleProgress": "false",
        _SPECULATION: "false",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        _DRIVER_OPTIONS: f"{log_options()} {_JVM_OPTIONS} {archive_options()}".rstrip(),
    }


def make_session(name: str, config: SparkConfig) -> SparkSession:
    """Start (or reuse) this process's session, with the ``penstock`` source registered."""
    spark = start_session(name, config)
    register(spark)
    return spark


def start_session(name: str, config: SparkConfig) -> SparkSession:
    """Start (or reuse) this process's session, for plain jobs: a pipeline has no use for the
    source, and to register it takes a second, and two Python processes that stay.

    Under spark-submit that is the one which it was told to make: master and driver are its affair,
    and of our settings only those count that it does not have.
    """
    if is_submitted():
        return _submitted_session(config)
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = default_settings()
    folder: Path | None = None
    if config.environment is not None:
        settings |= environment_settings(config.environment)
        os.environ["PYSPARK_PYTHON"] = PYTHON
        folder = driver_folder(Path(tempfile.mkdtemp(prefix="penstock-driver-")))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if not config.master.startswith("local"):
        # A driver that listens on loopback only cannot be reached by executors elsewhere.
        del settings["spark.driver.bindAddress"], settings["spark.driver.host"]
    given = dict(config.conf)
    if _DRIVER_OPTIONS in given:
        # Of two equal options the later one counts.
        given[_DRIVER_OPTIONS] = f"{settings[_DRIVER_OPTIONS]} {given[_DRIVER_OPTIONS]}"
    conf = SparkConf().setAppName(f"penstock {name}").setMaster(config.master)
    conf.setAll(list((settings | given).items()))
    with _own_sigint():
        context = start_context(conf, folder)
    # Not by the builder, which hands our settings to SQL and so starts that at once.
    return SparkSession.getActiveSession() or SparkSession(context)


def beside_submitted(config: SparkConfig, given: Mapping[str, str]) -> dict[str, str]:
    """What is set beside what spark-submit was given, by its options or its defaults: what that
    does not have, and speculation, which is the pipeline's affair. The preflight looks at the file
    alone, and refuses it there where tasks send at once.
    """
    ours = default_settings() | dict(config.conf)
    missing = {
        name: value
        for name, value in ours.items()
        if name not in given and not name.startswith("spark.driver.")
    }
    return missing | {_SPECULATION: ours[_SPECULATION]}


def _submitted_session(config: SparkConfig) -> SparkSession:
    SparkContext._ensure_initialized()
    conf = SparkConf()  # knows, from now on, what spark-submit was given
    conf.setAll(list(beside_submitted(config, dict(conf.getAll())).items()))
    with _own_sigint():
        return SparkSession.builder.config(conf=conf).getOrCreate()


def end_session(spark: SparkSession) -> None:
    """Stop a session that ``make_session`` made, and its JVM with it."""
    with suppress(*JVM_GONE):
        spark.stop()
    end_jvm()


@contextmanager
def _own_sigint() -> Iterator[None]:
    """Keep this process's answer to Ctrl-C: a Spark context puts its own in its place."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
