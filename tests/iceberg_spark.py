"""Iceberg tables as Spark sees them, with Iceberg's own runtime, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from penstock.spark.java import java_home
from tests.maven import fetched_jars, fetching

_CACHE = Path(__file__).resolve().parents[1] / ".cache" / "iceberg"
_POM = Path(__file__).resolve().parent / "iceberg" / "pom.xml"
_READ = """
import json, sys
from pyspark.sql import SparkSession
jars, catalog, warehouse, *statements = sys.argv[1:]
conf = "spark.sql.catalog.penstock"
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars", jars)
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.extensions",
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
    .config(conf, "org.apache.iceberg.spark.SparkCatalog")
    .config(conf + ".type", "jdbc")
    .config(conf + ".uri", "jdbc:sqlite:" + catalog)
    .config(conf + ".warehouse", warehouse)
    .getOrCreate()
)
found = [[row.asDict() for row in spark.sql(each).collect()] for each in statements]
print("FOUND " + json.dumps(found, default=str))
"""


def spark_sql(catalog_file: Path, warehouse: Path, *statements: str) -> list[list[dict[str, Any]]]:
    """The rows of each statement; the catalogue's name is ``penstock``."""
    home = java_home()
    assert home is not None
    jars = ",".join(str(jar) for jar in sorted(iceberg_jars().iterdir()))
    done = subprocess.run(
        [sys.executable, "-c", _READ, jars, str(catalog_file), f"file://{warehouse}", *statements],
        env={**os.environ, "JAVA_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, done.stderr[-3000:]
    found: list[list[dict[str, Any]]] = json.loads(lines[0].removeprefix("FOUND "))
    return found


def iceberg_jars() -> Path:
    """The folder of the jars; fetched where it is not there."""
    folder = _CACHE / "jars"
    with fetching(_CACHE):
        if not folder.is_dir():
            fetched_jars(_POM, folder, "Iceberg's runtime for Spark")
    return folder
