"""Pipelines into `ducklake` and `iceberg`, with their catalogues in Postgres, and `delta`: every
row is compared. DuckDB's own readers of Delta and Iceberg tables read what is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.destination.ducklake.lake import Lake
from penstock.destination.ducklake.options import DucklakeOptions
from penstock.destination.iceberg.options import IcebergOptions
from tests.fix_pipeline import PipelineUnderTest
from tests.integration.copied_tables import CopiedTables, Writers
from tests.integration.lake_changes import AFTER, BEFORE, WITHOUT_A_KEY, deliver_every_type
from tests.integration.type_matrix import TYPES
from tests.lake_rows import IcebergReader, expect_same_in_delta, expect_same_in_ducklake
from tests.threads_engine import Threads


class LakePipeline(CopiedTables):
    """A pipeline into a lake. Its maintenance is done after every commit."""

    name: str
    _reader: Lake | None = None
    _iceberg: IcebergReader | None = None

    def configure(self, *, unfit: str = "refuse", **copy: Any) -> None:
        options = {"unfit": unfit, "maintenance": {"every": "1ms"}}
        self.root = self.pipeline.folder / "data"
        if self.name == "ducklake":
            options |= {"catalog": self.target_url, "data_path": str(self.root)}
            self._reader = Lake(DucklakeOptions.model_validate(options))
        elif self.name == "iceberg":
            options |= {"catalog": self.target_url, "warehouse": str(self.root)}
            self._iceberg = IcebergReader(IcebergOptions.model_validate(options))
        else:
            options |= {"path": str(self.root)}
        destination = {"type": self.name, **options}
        batch = {"max_age": "1s"}  # lakes wait longer by themselves
        self.pipeline.configure(copy=copy or True, destination=destination, batch=batch)

    def expect_equal(self, *tables: str, unfit: bool = False) -> None:
        for table in tables:
            if self._reader is not None:
                expect_same_in_ducklake(self.pipeline.url, self._reader, table, unfit=unfit)
            elif self._iceberg is not None:
                self._iceberg.expect_same(self.pipeline.url, table, unfit=unfit)
            else:
                expect_same_in_delta(self.pipeline.url, self.root, table)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        if self._iceberg is not None:
            self._iceberg.close()


@pytest.fixture(params=["ducklake", "delta", "iceberg"])
def lake(
    request: pytest.FixtureRequest,
    pipeline: PipelineUnderTest,
    target_url: str,
    threads: Threads,
) -> Iterator[LakePipeline]:
    lake = LakePipeline(pipeline, target_url, threads)
    lake.name = request.param
    yield lake
    lake.close()


def test_a_copy_changes_schema_changes_and_maintenance(lake: LakePipeline) -> None:
    lake.fill("items")
    lake.pipeline.execute(*BEFORE)
    lake.configure(chunk_bytes="4MiB")
    lake.run_until_caught_up()
    lake.expect_equal("items", "loose", "gone", "empty")
    lake.pipeline.execute(*AFTER)
    if lake.name != "delta":
        lake.pipeline.execute(WITHOUT_A_KEY)
    lake.run_until_caught_up()
    lake.expect_equal("items", "loose", "kept", "empty")


@pytest.mark.release
def test_a_value_that_does_not_fit_sets_its_table_aside(lake: LakePipeline) -> None:
    lake.pipeline.execute(
        "CREATE TABLE odd (id int PRIMARY KEY, n numeric(5,2))",
        "CREATE TABLE even (id int PRIMARY KEY)",
    )
    lake.configure()
    lake.run_until_caught_up()
    lake.pipeline.execute(
        "INSERT INTO odd VALUES (1, 1.25), (2, 'NaN')", "INSERT INTO even VALUES (1)"
    )
    lake.run_until_caught_up()
    lake.expect_equal("even")
    (refused, *_) = [text for text in lake.said if "does not fit" in text]
    assert "public.odd: 'NaN' in column n does not fit decimal128(5, 2)" in refused
    assert "the row with id = 2, changed at" in refused
    lake.pipeline.execute("UPDATE odd SET n = 2 WHERE id = 2")
    lake.command("tables", "resync", str(lake.pipeline.file), "odd")
    lake.run_until_caught_up()
    lake.expect_equal("odd", "even")


@pytest.mark.release
def test_rows_change_while_they_are_copied(lake: LakePipeline) -> None:
    lake.fill("items")
    lake.configure(chunk_bytes="1MiB", parallelism=1)
    with Writers(lake.pipeline.url) as writers:
        lake.run_until_caught_up()
        assert writers.written
    lake.run_until_caught_up()
    lake.expect_equal("items")


@pytest.mark.release
@pytest.mark.parametrize("lake", ["ducklake", "iceberg"], indirect=True)
def test_every_type(lake: LakePipeline) -> None:
    deliver_every_type(lake, lake.pipeline.url, TYPES)
