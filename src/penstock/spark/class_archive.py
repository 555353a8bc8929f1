"""Spark's classes, loaded once and kept in a file that later JVMs map (class data sharing).

Half of what a JVM with Spark does at its start is reading and checking the same ten thousand
classes. `python -m penstock.spark.class_archive` makes the file; every session that starts on this
machine afterwards takes it. A JVM that finds that it does not fit (another Java, another Spark)
leaves it, and starts as it would without.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame

from penstock.spark.java import cache_folder, ensure_java, java_home

_STREAM_SECONDS = 3.0
# JVMs warn of classes that cannot be kept, and of archives that do not fit.
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xshare:auto"


def archive_options() -> str:
    """Options for a JVM that takes the archive; none where there is none, or where another user
    could have written it: it holds code.
    """
    path = _archive()
    return f"-XX:SharedArchiveFile={path} {_QUIET}" if path and _is_our_own(path) else ""


def make_archive() -> Path | None:
    """Make the archive unless it is there. None where its folder cannot be written."""
    path = _archive()
    if path is None or path.exists():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            made = Path(folder, path.name)
            _run_spark(f"-XX:ArchiveClassesAtExit={made} {_QUIET}")
            made.replace(path)
    except OSError:
        return None
    return path


def _archive() -> Path | None:
    """Named after what it fits."""
    home = java_home()
    if home is None:
        return None
    release = home / "release"
    text = release.read_text(errors="replace") if release.exists() else str(home)
    parts = (pyspark.__version__, str(Path(pyspark.__file__).parent), str(home), text)
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    path = cache_folder() / f"spark-{digest}.jsa"
    # Spark splits the options at blanks.
    return None if " " in str(path) else path


def _is_our_own(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return all(
            found.st_uid in (os.geteuid(), 0) and not found.st_mode & 0o022
            for found in (path.stat(), path.parent.stat())
        )
    return False


def _run_spark(options: str) -> None:
    """Do once what a pipeline does: tasks in Python, and a stream."""
    from penstock.config.models import SparkConfig
    from penstock.spark.session import end_session, make_session

    spark = make_session(
        "class archive", SparkConfig(conf={"spark.driver.extraJavaOptions": options})
    )
    try:
        spark.range(10).mapInArrow(_same, "id long").collect()
        query = spark.readStream.format("rate").load().writeStream.foreachBatch(_take).start()
        time.sleep(_STREAM_SECONDS)
        query.stop()
    finally:
        end_session(spark)


def _take(batch: DataFrame, _number: int) -> None:
    batch.mapInArrow(_same, batch.schema).collect()


def _same(batches: Iterable[Any]) -> Iterable[Any]:
    return batches


if __name__ == "__main__":
    ensure_java()
    made = make_archive()
    print(f"Spark's classes are in {made}" if made else "Spark's classes were not kept")
    sys.exit(0)
