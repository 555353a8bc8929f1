"""The examples of docs/spark_source.md run as they stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.documented import python_examples
from tests.fix_pipeline import PipelineUnderTest

PAGE = Path(__file__).parents[2] / "docs" / "spark_source.md"


def test_the_examples(spark: SparkSession, pipeline: PipelineUnderTest, tmp_path: Path) -> None:
    pipeline.execute("CREATE TABLE orders (id int PRIMARY KEY, status text)")
    pipeline.subscribe()
    pipeline.execute(
        "INSERT INTO orders VALUES (1, 'new'), (2, 'new'), (3, 'new')",
        "UPDATE orders SET status = 'paid' WHERE id = 1",
        "DELETE FROM orders WHERE id = 2",
    )
    pipeline.capture_all()
    examples = python_examples(PAGE)
    assert len(examples) == 3
    code = "\n".join(examples)
    for shown, real in (
        ("/data/penstock/shop/log", pipeline.log.root.path),
        ("/data/checkpoints/orders", str(tmp_path / "checkpoint")),
    ):
        assert shown in code
        code = code.replace(shown, real)
    names: dict[str, Any] = {"spark": spark}
    exec(code, names)  # noqa: S102 (our own page)
    try:
        names["query"].processAllAvailable()
    finally:
        names["query"].stop()
    assert names["merged"] == {1: "paid", 3: "new"}
    counts = (
        names["per_table"].writeStream.format("memory").queryName("per_table")
        .outputMode("complete").start()
    )  # fmt: skip
    try:
        counts.processAllAvailable()
    finally:
        counts.stop()
    assert {tuple(row) for row in spark.table("per_table").collect()} == {
        ("public", "orders", "insert", 3),
        ("public", "orders", "update", 1),
        ("public", "orders", "delete", 1),
    }
