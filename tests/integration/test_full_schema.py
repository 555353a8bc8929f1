"""`destination.schema: full`: the target is what the source's database is, rows and all."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

import psycopg
import pytest
from pyspark.sql import SparkSession

from penstock.embedded.postgres import EmbeddedPostgres
from penstock.pipeline.copy.copy_only import CopyReport, copy_only
from tests.fix_pipeline import PipelineUnderTest
from tests.fix_postgres import drop_database
from tests.integration.copied_tables import CopiedTables
from tests.pipelines import engine_on
from tests.whole_schemas import RENTAL_TABLES, RENTALS, RENTED, execute, schema_text


@pytest.fixture
def empty_target(pg_server: EmbeddedPostgres, pipeline: PipelineUnderTest) -> Iterator[str]:
    """A database of its own: one that others have emptied is not what initdb makes."""
    name = f"whole_{pipeline.name}"
    yield pg_server.create_database(name)
    drop_database(pg_server, name)


@pytest.fixture
def copied(pipeline: PipelineUnderTest, empty_target: str, spark: SparkSession) -> CopiedTables:
    return CopiedTables(pipeline, empty_target, spark)


def configure(copied: CopiedTables, **full: object) -> None:
    copied.pipeline.configure(
        copy=True,
        destination={
            "type": "postgres",
            "url": copied.target_url,
            "schema": "full",
            **({"full_schema": full} if full else {}),
        },
    )


def snapshot(copied: CopiedTables, spark: SparkSession) -> CopyReport:
    config, file = copied.pipeline.config, copied.pipeline.file
    report = copy_only(config, file, engine_on(spark), lambda: False)
    assert report is not None
    return report


def assert_same_schema(source: str, target: str, *options: str) -> None:
    there, here = schema_text(source, *options), schema_text(target, *options)
    difference = difflib.unified_diff(there.splitlines(), here.splitlines(), "source", "target")
    assert there == here, "\n".join(difference)


def test_a_snapshot_is_the_whole_database(copied: CopiedTables, spark: SparkSession) -> None:
    execute(copied.pipeline.url, (*RENTALS, *RENTED))
    configure(copied)
    report = snapshot(copied, spark)
    assert list(report.unrestored) == []
    assert report.refused == {}
    assert copied.is_equal(*RENTAL_TABLES, "store.sums")
    assert_same_schema(copied.pipeline.url, copied.target_url)
