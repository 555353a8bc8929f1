"""The driver's JVM: started so that it prints only what matters, and ended when asked to."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from penstock.debug import is_debug
from penstock.model.errors import PenstockError, SparkLost
from penstock.spark.trace_lines import TraceLines

_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_LOG_FILE = "-Dlog4j2.configurationFile"
_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
_STOP_SECONDS = 20.0

JVM_GONE = (Py4JError, ConnectionError)
"""What a call into a JVM raises that has ended."""

# Said at every start, straight to stderr, where no log setting reaches. Spark asks for the module
# of the first line itself, and takes pyspark for an interactive shell.
_START_UP_LINES = (
    b"WARNING: Using incubator modules: jdk.incubator.vector",
    b'Setting default log level to "',
    b"To adjust logging level use sc.setLogLevel(newLevel).",
)


def log_options() -> str:
    """JVM options that make Spark log by our file. Spark splits them at blanks; a URI has none."""
    level = "error" if is_debug() else "off"
    return f"{_LOG_FILE}={_LOG_SETTINGS.as_uri()} -Dpenstock.spark.log={level}"


def start_context(conf: SparkConf, folder: Path | None = None) -> SparkContext:
    """This process's Spark context; starts a JVM where there is none yet, with ``folder`` as its
    working folder, if that matters.
    """
    if SparkContext._active_spark_context is None and SparkContext._gateway is None:
        context = SparkContext(conf=conf, gateway=_launch(conf, folder))
        if not is_debug():
            _keep_quiet(context)
        return context
    return SparkContext.getOrCreate(conf)


def _keep_quiet(context: SparkContext) -> None:
    """Let the server of accumulators, which we have no use for, end without a trace.

    Where the JVM is killed, it finds its connection ended; who calls into the JVM gets SparkLost.
    """
    server: Any = context._accumulatorServer
    server.handle_error = lambda _request, _address: None


def end_jvm() -> None:
    """End this process's JVM, and wait for it. Every session must have been stopped before.

    Without this it lives until this process ends, and removes its temporary files only then.
    """
    gateway = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    gateway.shutdown()
    if process is None:
        return
    if process.stdin is not None:
        # It watches its standard input, and ends with it.
        with suppress(BrokenPipeError):
            process.stdin.close()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _launch(conf: SparkConf, folder: Path | None) -> Any:
    reading, writing = os.pipe()
    # Who names a log file of their own wants to see what it says.
    shows_all = is_debug() or conf.get(_DRIVER_OPTIONS, "").count(_LOG_FILE) > 1
    threading.Thread(
        target=_forward, args=(reading, shows_all), name="JVM stderr", daemon=True
    ).start()
    # In a session of its own: a signal for all of a terminal's or a supervisor's processes reaches
    # us alone, and we end it in order. However we end, it does too, for it watches its stdin.
    options = {"stderr": writing, "start_new_session": True, "cwd": folder}
    try:
        return launch_gateway(conf, options)  # type: ignore[no-untyped-call]
    except PySparkRuntimeError as error:
        raise SparkLost(
            "Spark's JVM ended before it could be used",
            remedy="check spark.conf in the pipeline file and the memory of the machine; "
            "`penstock --debug …` shows what it said",
        ) from error
    finally:
        os.close(writing)


def _forward(reading: int, shows_all: bool) -> None:
    """Pass on what the JVM and its Python workers print, but for the lines of every start, and
    for traces unless ``shows_all``.
    """
    is_trace = TraceLines()
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            if not line.startswith(_START_UP_LINES) and (shows_all or not is_trace(line)):
                # Through Python's own stderr: a live view on the terminal then makes room for it.
                sys.stderr.write(line.decode(errors="replace"))
                sys.stderr.flush()


def spark_lost() -> SparkLost:
    """What to tell a person where a call raised JVM_GONE."""
    return SparkLost(
        "Spark's JVM ended unexpectedly: it was killed, or it ran out of memory",
        remedy="start `penstock run` again: it goes on where the destination stands. If it happens "
        "again, look for the kernel's out-of-memory messages, and give the driver more with "
        "spark.conf: spark.driver.memory",
    )


@contextmanager
def jvm_needed() -> Iterator[None]:
    """SparkLost where a call inside of it finds that the JVM has ended."""
    try:
        yield
    except Py4JJavaError as error:
        # It lives, and says what is wrong.
        said = str(error.java_exception).splitlines()[0][:600]
        raise PenstockError(f"Spark failed: {said}") from None
    except JVM_GONE as error:
        raise spark_lost() from error
