"""Pipelines into `redshift`, `bigquery` and `snowflake`, with stand-ins: every row is compared. The
pipeline file is what the page of the destination shows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from penstock.destination.bigquery import session as bigquery_session
from penstock.destination.families.warehouse.destination import WarehouseDestination
from penstock.destination.registry import make_destination
from penstock.destination.snowflake import session
from penstock.verify.report import VerifyReport
from penstock.verify.verification import verify
from tests.bigquery_stand_in import BigQueryStandIn
from tests.documented import destination_example
from tests.fix_pipeline import PipelineUnderTest
from tests.integration.copied_tables import CopiedTables, Writers
from tests.integration.lake_changes import (
    AFTER,
    BEFORE,
    FOLLOWED,
    MOVES,
    WITHOUT_A_KEY,
    deliver_every_type,
)
from tests.integration.type_matrix import TYPES
from tests.objects_server import ObjectServer
from tests.pipelines import engine_on
from tests.redshift_stand_in import ROLE, RedshiftStandIn
from tests.snowflake_stand_in import STAGE, SnowflakeStandIn, stand_in_module
from tests.threads_engine import Threads
from tests.warehouse_rows import (
    expect_same_in_bigquery,
    expect_same_in_snowflake,
    expect_same_in_stand_in,
)


class WarehousePipeline(CopiedTables, ABC):
    """``objects`` has the stage."""

    name: str
    objects: ObjectServer
    patch: pytest.MonkeyPatch

    mode = "merge"

    def configure(self, *, unfit: str = "refuse", **copy: Any) -> None:
        options = {
            **destination_example(self.name),
            "stage_options": self.objects.direct_options,
            "unfit": unfit,
            "mode": self.mode,
            **self.place(),
        }
        # It waits longer by itself.
        self.pipeline.configure(copy=copy or True, destination=options, batch={"max_age": "1s"})

    @abstractmethod
    def place(self) -> dict[str, Any]:
        """The options that lead to the stand-in."""

    @property
    def schema(self) -> str:
        """Where the rows of the source's schema public are read from: tables, or views."""
        return "public" if self.mode == "merge" else "public_latest"

    @abstractmethod
    def expect_equal(self, *tables: str, unfit: bool = False) -> None:
        """Fail unless these tables hold the rows of the source."""

    @abstractmethod
    def damage(self, statement: str) -> None:
        """Execute something behind the pipeline's back."""

    @abstractmethod
    def close(self) -> None:
        """Fail if a statement was sent that should not have been."""


class RedshiftPipeline(WarehousePipeline):
    name = "redshift"

    def place(self) -> dict[str, Any]:
        self._stand_in = RedshiftStandIn(self.target_url, self.objects.direct_options)
        return {"url": self._stand_in.url, "stage": self.objects.place(), "iam_role": ROLE}

    def expect_equal(self, *tables: str, unfit: bool = False) -> None:
        for table in tables:
            expect_same_in_stand_in(
                self.pipeline.url, self.target_url, table, unfit=unfit, schema=self.schema
            )

    def damage(self, statement: str) -> None:
        with psycopg.connect(self.target_url) as conn:
            conn.execute(statement.encode())

    def close(self) -> None:
        self._stand_in.close()
        assert not self._stand_in.denied


class SnowflakePipeline(WarehousePipeline):
    name = "snowflake"

    def place(self) -> dict[str, Any]:
        stage = self.objects.place()
        self._stand_in = SnowflakeStandIn(stage, self.objects.direct_options)
        module = stand_in_module(self._stand_in)
        self.patch.setattr(session, "connector", lambda: module)
        return {"stage": stage, "external_stage": STAGE}

    def expect_equal(self, *tables: str, unfit: bool = False) -> None:
        for table in tables:
            expect_same_in_snowflake(
                self.pipeline.url, self._stand_in, table, unfit=unfit, schema=self.schema
            )

    def damage(self, statement: str) -> None:
        self._stand_in.read(statement)

    def close(self) -> None:
        self._stand_in.close()
        assert not self._stand_in.committed_by


class BigQueryPipeline(WarehousePipeline):
    """It has a bucket of its own."""

    name = "bigquery"

    def place(self) -> dict[str, Any]:
        self._stand_in = BigQueryStandIn()
        self.patch.setenv("AWS_ENDPOINT_URL", "http://")  # lets obstore speak plain HTTP
        self.patch.setattr(bigquery_session, "made_client", self._stand_in.client)
        return {"stage_options": self._stand_in.stage_options}

    def expect_equal(self, *tables: str, unfit: bool = False) -> None:
        for table in tables:
            expect_same_in_bigquery(
                self.pipeline.url, self._stand_in, table, unfit=unfit, schema=self.schema
            )

    def damage(self, statement: str) -> None:
        self._stand_in.read(statement)

    def close(self) -> None:
        self._stand_in.close()
        assert not self._stand_in.refused


PARTITIONED = (
    "CREATE TABLE events (id int, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
    "CREATE TABLE events_01 PARTITION OF events FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')",
    "INSERT INTO events SELECT n, '2026-01-01' FROM generate_series(1, 20) n",
)
"""A table whose partitions arrive as one table."""
MOVED_PARTITIONS = (
    "CREATE TABLE events_02 PARTITION OF events FOR VALUES FROM ('2026-02-01') TO ('2026-03-01')",
    "INSERT INTO events VALUES (1, '2026-02-02')",
    "UPDATE events SET day = '2026-02-01' WHERE id < 5 AND day = '2026-01-01'",
    "DELETE FROM events_01 WHERE id = 9",
)
KINDS = (RedshiftPipeline, SnowflakePipeline, BigQueryPipeline)


@pytest.fixture(params=KINDS, ids=[kind.name for kind in KINDS])
def warehouse(
    request: pytest.FixtureRequest,
    pipeline: PipelineUnderTest,
    target_url: str,
    threads: Threads,
    object_server: ObjectServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[WarehousePipeline]:
    found: WarehousePipeline = request.param(pipeline, target_url, threads)
    found.objects, found.patch = object_server, monkeypatch
    yield found
    found.close()


def test_a_copy_changes_and_schema_changes_into_a_stand_in(warehouse: WarehousePipeline) -> None:
    warehouse.fill("items")
    warehouse.pipeline.execute(*BEFORE, *PARTITIONED)
    warehouse.configure(chunk_bytes="4MiB")
    warehouse.run_until_caught_up()
    warehouse.expect_equal("items", "loose", "gone", "empty", "events")
    warehouse.pipeline.execute(*AFTER, WITHOUT_A_KEY, *MOVED_PARTITIONS)
    warehouse.run_until_caught_up()
    warehouse.expect_equal("items", "loose", "kept", "empty", "events")


@pytest.mark.parametrize(
    "warehouse",
    [
        pytest.param(RedshiftPipeline, marks=pytest.mark.release),
        SnowflakePipeline,
        pytest.param(BigQueryPipeline, marks=pytest.mark.release),
    ],
    ids=[kind.name for kind in KINDS],
    indirect=True,
)
def test_views_over_change_tables_show_the_rows_of_the_source(warehouse: WarehousePipeline) -> None:
    """Copies, keys that change, columns that are not sent, others that come, go and change their
    names and types, and a table that is copied anew.
    """
    warehouse.mode = "append"
    warehouse.fill("items")
    warehouse.pipeline.execute(*BEFORE)
    warehouse.configure(chunk_bytes="4MiB")
    warehouse.run_until_caught_up()
    warehouse.expect_equal("items", "gone", "empty")
    warehouse.pipeline.execute(*MOVES, *FOLLOWED, WITHOUT_A_KEY)
    warehouse.run_until_caught_up()
    warehouse.expect_equal("items", "kept", "empty")
    warehouse.command("tables", "resync", str(warehouse.pipeline.file), "kept")
    warehouse.run_until_caught_up()
    warehouse.expect_equal("items", "kept", "empty")


ADDED_UP = r"""
CREATE TYPE pair AS (a int, b text);
CREATE TABLE kinds (id uuid PRIMARY KEY, a bool, b bytea, c date, d timestamp, e timestamptz,
    f time, g numeric(12,2), h jsonb, i text, j int[], k float8, l oid, m varchar(9), n char(5),
    o smallint, p bigint, q numeric, r interval, s timestamptz(3), v xid8, u numeric(30,12),
    w pair, x inet);
INSERT INTO kinds SELECT gen_random_uuid(), n % 2 = 0, sha256(n::text::bytea),
    date '0044-03-15' + n * 997, timestamp '1969-12-31 23:59:59.999999' + n * interval '36 h',
    now() + n * interval '1 us', time '23:59:59.999999' - n * interval '1 us', n * 1.25 - 30.5,
    '{"a": 1}', repeat('é', n), ARRAY[n], n / 3.0, n, 'v ', 'c', -n, n * (10::numeric ^ 17),
    n / 7.0, n * interval '1 hour', now(), n::text::xid8, n * 1e15 / 7
    FROM generate_series(1, 49) n;
INSERT INTO kinds (id, b, g, i, u, w, x) VALUES
    (gen_random_uuid(), '', 0, '', -0.000000000001, ROW(NULL, NULL), '10.1.2.3'),
    (gen_random_uuid(), decode(repeat('00ff', 40000), 'hex'), -0.01, E'a\\b\n"', 0, NULL, NULL);
CREATE TABLE loose (a text);
INSERT INTO loose VALUES ('x'), ('x'), (NULL), ('');
CREATE TABLE more (id int PRIMARY KEY);
INSERT INTO more VALUES (1);
CREATE TABLE odd (id int PRIMARY KEY, n numeric(5,2))
"""
"""Values of many types, and a table with a row that does not fit later."""


@pytest.mark.parametrize(
    "warehouse",
    [
        RedshiftPipeline,
        pytest.param(SnowflakePipeline, marks=pytest.mark.release),
        pytest.param(BigQueryPipeline, marks=pytest.mark.release),
    ],
    ids=[kind.name for kind in KINDS],
    indirect=True,
)
def test_verify(warehouse: WarehousePipeline, threads: Threads) -> None:
    """First all is equal; then somebody changes, removes and adds rows in the warehouse, and a
    table is set aside.
    """
    pipeline = warehouse.pipeline
    pipeline.execute(*ADDED_UP.split(";"))
    warehouse.configure()
    warehouse.run_until_caught_up()
    pipeline.execute("UPDATE kinds SET i = 'later' WHERE l = 7", "DELETE FROM kinds WHERE l = 8")

    def verified() -> VerifyReport:
        return verify(pipeline.config, pipeline.file, make_engine=engine_on(threads))

    report = verified()
    assert report.equal, report.tables
    assert report.drove
    assert [table.source_rows for table in report.tables] == [50, 4, 1, 0]
    warehouse.damage("UPDATE public.kinds SET g = 7.77 WHERE l = 3")
    warehouse.damage("DELETE FROM public.loose WHERE a IS NULL")
    warehouse.damage("INSERT INTO public.more VALUES (2)")
    pipeline.execute("INSERT INTO odd VALUES (1, 'NaN')")
    warehouse.run_until_caught_up()
    report = verified()
    assert not report.equal
    kinds, loose, more, odd = report.tables
    assert (kinds.source_rows, kinds.target_rows, kinds.differing) == (50, 50, 1)
    assert (loose.source_rows, loose.target_rows, loose.differing) == (4, 3, 1)
    assert (more.source_rows, more.target_rows, more.differing) == (1, 2, 1)
    assert odd.not_compared
    assert not odd.equal


@pytest.mark.release
def test_rows_change_while_they_are_copied_into_a_stand_in(warehouse: WarehousePipeline) -> None:
    warehouse.fill("items")
    warehouse.configure(chunk_bytes="1MiB", parallelism=1)
    with Writers(warehouse.pipeline.url) as writers:
        warehouse.run_until_caught_up()
        assert writers.written
    warehouse.run_until_caught_up()
    warehouse.expect_equal("items")


@pytest.mark.release
@pytest.mark.parametrize(
    ("warehouse", "mode"),
    [
        *((kind, "merge") for kind in KINDS),
        # BigQuery's analyser takes minutes for as many views.
        *((kind, "append") for kind in KINDS if kind is not BigQueryPipeline),
    ],
    indirect=["warehouse"],
    ids=lambda value: getattr(value, "name", value),
)
def test_every_type_into_a_stand_in(
    warehouse: WarehousePipeline, mode: str, threads: Threads
) -> None:
    """Of jsonb a table has a document as its key, which is refused, or has no view. The rows of
    tables without a key have none either.
    """
    warehouse.mode = mode
    kinds = [kind for kind in TYPES if kind.name != "jsonb"]
    keyless = mode == "merge"
    deliver_every_type(warehouse, warehouse.pipeline.url, kinds, keyless=keyless)
    if mode == "merge":
        _expect_all_verified(warehouse.pipeline, threads)


def _expect_all_verified(pipeline: PipelineUnderTest, threads: Threads) -> None:
    """Tables are equal to the source, but for those with values that did not fit."""
    config = pipeline.config
    report = verify(config, pipeline.file, make_engine=engine_on(threads))
    assert not [each for each in report.tables if each.not_compared]
    destination = make_destination(
        config.destination_type, config.destination_options, config.delivery
    )
    assert isinstance(destination, WarehouseDestination)
    known = destination._known().values()
    unfit = {each.qualified_name for each in known if destination.unfit_values(each.oid)}
    destination.close()
    assert {each.source for each in report.tables if not each.equal} == unfit
    assert unfit
