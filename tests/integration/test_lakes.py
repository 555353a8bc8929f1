"""Pipelines into `ducklake` and `iceberg`, with their catalogues in Postgres, and `delta`: every
row is compared. DuckDB's own readers of Delta and Iceberg tables read what is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from deltalake import DeltaTable

from penstock.destination.ducklake.lake import Lake
from penstock.destination.ducklake.options import DucklakeOptions
from penstock.destination.iceberg.options import IcebergOptions
from penstock.verify.report import VerifyReport
from penstock.verify.verification import verify
from tests.fix_pipeline import PipelineUnderTest
from tests.integration.copied_tables import CopiedTables, Writers
from tests.integration.lake_changes import (
    AFTER,
    BEFORE,
    MOVES,
    WITHOUT_A_KEY,
    deliver_every_type,
)
from tests.integration.type_matrix import TYPES
from tests.lake_rows import (
    IcebergReader,
    expect_same,
    expect_same_in_delta,
    expect_same_in_ducklake,
)
from tests.objects_server import ObjectServer
from tests.pipelines import engine_on
from tests.threads_engine import Threads

KINDS = """
CREATE TABLE kinds (id uuid PRIMARY KEY, a bool, b bytea, c date, d timestamp,
    e timestamptz, f time, g numeric(12,2), h jsonb, i text, j int[], k float8, l oid);
INSERT INTO kinds SELECT gen_random_uuid(), n % 2 = 0, sha256(n::text::bytea),
    date '0044-03-15' + n * 997, timestamp '1969-12-31 23:59:59.999999' + n * interval '1.5 days',
    now() + n * interval '1 us', time '23:59:59.999999', n * 1.25, '{"a": 1}',
    repeat('é', n), ARRAY[n], n / 3.0, n FROM generate_series(1, 49) n;
INSERT INTO kinds
    SELECT gen_random_uuid(), NULL, '', NULL, NULL, NULL, '24:00', 0, 'null', '';
CREATE TABLE loose (a text);
INSERT INTO loose VALUES ('x'), ('x'), (NULL)
"""
# What only a DuckLake holds.
ENDLESS = (
    "INSERT INTO kinds SELECT gen_random_uuid(), NULL, '', 'infinity', '-infinity', 'infinity',"
    " '00:00', NULL, 'null', ''"
)


class LakePipeline(CopiedTables):
    """A pipeline into a lake. Its maintenance is done after every commit."""

    name: str
    _reader: Lake | None = None
    _iceberg: IcebergReader | None = None

    def configure(
        self,
        *,
        unfit: str = "refuse",
        mode: str = "merge",
        into: Mapping[str, Any] | None = None,
        **copy: Any,
    ) -> None:
        options = {"unfit": unfit, "mode": mode, "maintenance": {"every": "1ms"}}
        self.root = self.pipeline.folder / "data"
        if self.name == "ducklake":
            options |= {"catalog": self.target_url, "data_path": str(self.root)}
            self._reader = Lake(DucklakeOptions.model_validate(options))
        elif self.name == "iceberg":
            options |= {"catalog": self.target_url, "warehouse": str(self.root)}
            self._iceberg = IcebergReader(IcebergOptions.model_validate(options))
        else:
            options |= into or {"path": str(self.root)}
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
                expect_same_in_delta(self.pipeline.url, self.root, table, unfit=unfit)

    def expect_left(self, *tables: str) -> None:
        """The views over change tables show the source's rows."""
        assert self._reader is not None
        with self._reader.session() as session:
            for table in tables:
                expect_same(self.pipeline.url, session, f"public_latest.{table}", table)

    def damage(self) -> None:
        """Remove a row of ``loose``; in a DuckLake, change one of ``kinds``, too."""
        if self._reader is not None:
            with self._reader.session() as session:
                session.execute("UPDATE public.kinds SET h = '{}' WHERE l = 3")
                session.execute("DELETE FROM public.loose WHERE a IS NULL")
        elif self._iceberg is not None:
            with self._iceberg.table("public", "loose") as table:
                table.delete("a is null")
        else:
            DeltaTable(str(self.root / "public" / "loose")).delete("a IS NULL")

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


@pytest.mark.parametrize("lake", ["ducklake"], indirect=True)
def test_change_tables_and_views_of_the_rows_that_are_left(lake: LakePipeline) -> None:
    """Copies, keys that change, columns that are not sent, others that come, go and change their
    names, and a table that is copied anew."""
    lake.fill("items")
    lake.pipeline.execute(
        "CREATE TABLE gone (id int, at date, note text, PRIMARY KEY (id, at))",
        "INSERT INTO gone VALUES (1, '2026-01-15', 'x'), (2, '0001-01-01', NULL)",
    )
    lake.configure(mode="append")
    lake.run_until_caught_up()
    lake.expect_left("items", "gone")
    lake.pipeline.execute(
        *MOVES,
        "TRUNCATE gone",
        "INSERT INTO gone VALUES (2, '2026-01-15', 'again')",
        "ALTER TABLE gone RENAME note TO text",
        "ALTER TABLE gone ADD more int",
        "INSERT INTO gone VALUES (3, '2026-01-15', 'new', 7)",
        "UPDATE gone SET at = '2026-01-16', text = 'moved' WHERE id = 2",
        "ALTER TABLE gone DROP text",
        "ALTER TABLE gone ADD text bytea",
        "INSERT INTO gone VALUES (4, '2026-01-15', 8, 'bytes')",
    )
    lake.run_until_caught_up()
    lake.expect_left("items", "gone")
    lake.command("tables", "resync", str(lake.pipeline.file), "gone")
    lake.run_until_caught_up()
    lake.expect_left("items", "gone")


@pytest.mark.parametrize(
    "lake",
    ["ducklake", "delta", pytest.param("iceberg", marks=pytest.mark.release)],
    indirect=True,
)
def test_verify(lake: LakePipeline, threads: Threads) -> None:
    """Values of many types; then a row that somebody removed in the lake."""
    lake.pipeline.execute(*KINDS.split(";"))
    ends = lake.name == "ducklake"
    if ends:
        lake.pipeline.execute(ENDLESS)
    lake.configure()
    lake.run_until_caught_up()
    lake.pipeline.execute(
        "UPDATE kinds SET i = 'later' WHERE l = 7", "DELETE FROM kinds WHERE l = 8"
    )

    def verified() -> VerifyReport:
        config, file = lake.pipeline.config, lake.pipeline.file
        return verify(config, file, make_engine=engine_on(threads))

    report = verified()
    assert report.equal, report.tables
    assert report.drove
    assert [table.source_rows for table in report.tables] == [50 if ends else 49, 3]
    lake.damage()
    kinds, loose = verified().tables
    assert kinds.equal != ends
    assert kinds.source_rows == kinds.target_rows
    assert (loose.source_rows, loose.target_rows, loose.differing) == (3, 2, 1)


@pytest.mark.release
@pytest.mark.parametrize("lake", ["delta"], indirect=True)
def test_delta_tables_in_an_object_store(
    lake: LakePipeline, threads: Threads, object_server: ObjectServer
) -> None:
    """A copy, changes, schema changes with a table that is renamed, and maintenance."""
    lake.fill("items")
    lake.pipeline.execute(*BEFORE)
    path = object_server.place()
    place = {"path": path, "path_options": object_server.direct_options}
    lake.configure(chunk_bytes="4MiB", into=place)
    lake.run_until_caught_up()
    lake.pipeline.execute(*AFTER)
    lake.run_until_caught_up()
    report = verify(lake.pipeline.config, lake.pipeline.file, make_engine=engine_on(threads))
    assert report.equal, report.tables
    assert {"public.items", "public.kept"} <= {table.source for table in report.tables}
    folder = path.rpartition("/")[2]
    found = [name for name in object_server.everything() if name.startswith(f"{folder}/public/")]
    assert found
    assert not [name for name in found if "/public/gone/" in name]


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
def test_every_type(lake: LakePipeline) -> None:
    deliver_every_type(lake, lake.pipeline.url, TYPES, keyless=lake.name != "delta")
