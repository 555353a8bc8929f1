"""Pipelines inside a Spark job of somebody's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession

import penstock.cli.submit
from penstock.model.errors import CheckFailed, ConfigError
from penstock.spark.own_job import run_pipeline
from tests.documented import python_examples
from tests.fix_pipeline import PipelineUnderTest

PAGE = Path(__file__).parents[2] / "docs" / "clusters.md"


@pytest.fixture
def shop(pipeline: PipelineUnderTest, tmp_path: Path) -> PipelineUnderTest:
    pipeline.configure(
        copy=True, destination={"type": "files", "path": str(tmp_path / "out"), "format": "ndjson"}
    )
    pipeline.execute(
        "CREATE TABLE orders (id int PRIMARY KEY)", "INSERT INTO orders VALUES (1), (2)"
    )
    return pipeline


def written(tmp_path: Path) -> str:
    return "".join(file.read_text() for file in (tmp_path / "out").rglob("*.ndjson"))


def test_the_example_of_the_page(
    spark: SparkSession, shop: PipelineUnderTest, tmp_path: Path
) -> None:
    (example,) = python_examples(PAGE)
    assert "shop.yaml" in example
    code = example.replace("shop.yaml", str(shop.file))
    exec(code, {"spark": spark})  # noqa: S102 (our own page)
    assert written(tmp_path).count('"orders"') == 2
    # The session is still there, and so is the place where the pipeline stopped.
    assert spark.range(3).count() == 3
    shop.execute("INSERT INTO orders VALUES (3)")
    frontier = run_pipeline(shop.file, spark)
    assert frontier.end_lsn > 0
    assert written(tmp_path).count('"orders"') == 3


@pytest.mark.release
def test_one_of_several_destinations(
    spark: SparkSession, shop: PipelineUnderTest, tmp_path: Path
) -> None:
    content = yaml.safe_load(shop.file.read_text())
    lake = content.pop("destination")
    content["destinations"] = {"lake": lake, "nothing": {"type": "discard"}}
    shop.file.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match="2 destinations"):
        run_pipeline(shop.file, spark)
    run_pipeline(shop.file, spark, only="lake")
    assert written(tmp_path).count('"orders"') == 2


def test_what_the_session_is_set_to_counts(
    spark: SparkSession, shop: PipelineUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.configure(destination={"type": "memory-versioned", "path": str(shop.folder / "rows")})
    held = type(spark.sparkContext.getConf())().setAll([("spark.speculation", "true")])
    monkeypatch.setattr(spark.sparkContext, "getConf", lambda: held)
    with pytest.raises(CheckFailed, match=r"spark\.speculation is on"):
        run_pipeline(shop.file, spark)


@pytest.mark.release
def test_spark_submit(shop: PipelineUnderTest, tmp_path: Path) -> None:
    # The path and the arguments of docs/clusters.md; standalone masters take no Python drivers
    # into the cluster, so this one stays here.
    submit = Path(sys.executable).with_name("spark-submit")
    entry = str(penstock.cli.submit.__file__)
    ended = subprocess.run(
        [str(submit), "--master", "local[2,4]", entry, "run", str(shop.file), "--until-caught-up"],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    said = ended.stdout + ended.stderr  # Spark passes on as stdout what its Python prints
    assert "the destination holds" in said
    assert "Traceback" not in said
    assert written(tmp_path).count('"orders"') == 2
