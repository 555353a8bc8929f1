"""Pipelines into `redshift` and `snowflake`, with stand-ins for both: every row is compared. The
pipeline file is what the page of the destination shows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from penstock.destination.snowflake import session
from tests.documented import destination_example
from tests.fix_pipeline import PipelineUnderTest
from tests.integration.copied_tables import CopiedTables, Writers
from tests.integration.type_matrix import CREATE_TYPES, TYPES, create, moves, rows
from tests.objects_server import ObjectServer
from tests.redshift_stand_in import ROLE, RedshiftStandIn
from tests.snowflake_stand_in import STAGE, SnowflakeStandIn, stand_in_module
from tests.threads_engine import Threads
from tests.warehouse_rows import expect_same_in_snowflake, expect_same_in_stand_in


class WarehousePipeline(CopiedTables, ABC):
    """``objects`` has the stage."""

    name: str
    objects: ObjectServer

    def configure(self, *, unfit: str = "refuse", **copy: Any) -> None:
        options = {
            **destination_example(self.name),
            "stage_options": self.objects.direct_options,
            "unfit": unfit,
            **self.place(),
        }
        # It waits longer by itself.
        self.pipeline.configure(copy=copy or True, destination=options, batch={"max_age": "1s"})

    @abstractmethod
    def place(self) -> dict[str, Any]:
        """The options that lead to the stand-in."""

    @abstractmethod
    def expect_equal(self, *tables: str, unfit: bool = False) -> None:
        """Fail unless these tables hold the rows of the source."""

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
            expect_same_in_stand_in(self.pipeline.url, self.target_url, table, unfit=unfit)

    def close(self) -> None:
        self._stand_in.close()
        assert not self._stand_in.denied


class SnowflakePipeline(WarehousePipeline):
    name = "snowflake"
    patch: pytest.MonkeyPatch

    def place(self) -> dict[str, Any]:
        stage = self.objects.place()
        self._stand_in = SnowflakeStandIn(stage, self.objects.direct_options)
        module = stand_in_module(self._stand_in)
        self.patch.setattr(session, "connector", lambda: module)
        return {"stage": stage, "external_stage": STAGE}

    def expect_equal(self, *tables: str, unfit: bool = False) -> None:
        for table in tables:
            expect_same_in_snowflake(self.pipeline.url, self._stand_in, table, unfit=unfit)

    def close(self) -> None:
        self._stand_in.close()
        assert not self._stand_in.committed_by


@pytest.fixture(params=["redshift", "snowflake"])
def warehouse(
    request: pytest.FixtureRequest,
    pipeline: PipelineUnderTest,
    target_url: str,
    threads: Threads,
    object_server: ObjectServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[WarehousePipeline]:
    kind = RedshiftPipeline if request.param == "redshift" else SnowflakePipeline
    found = kind(pipeline, target_url, threads)
    found.objects = object_server
    if isinstance(found, SnowflakePipeline):
        found.patch = monkeypatch
    yield found
    found.close()


def test_a_copy_changes_and_schema_changes_into_a_stand_in(warehouse: WarehousePipeline) -> None:
    warehouse.fill("items")
    warehouse.pipeline.execute(
        "CREATE TABLE loose (a int, b text)",
        "ALTER TABLE loose REPLICA IDENTITY FULL",
        "INSERT INTO loose SELECT n % 7, 'twice' FROM generate_series(1, 50) n",
        "CREATE TABLE gone (id int PRIMARY KEY, note text, at date, price numeric(10,2))",
        "INSERT INTO gone VALUES (1, 'x', '2026-01-15', 1.5)",
        "INSERT INTO gone VALUES (2, E'y\\n\"\\\\N', '0001-01-01', NULL)",
        "CREATE TABLE empty (id uuid PRIMARY KEY, doc jsonb)",
    )
    warehouse.configure(chunk_bytes="4MiB")
    warehouse.run_until_caught_up()
    warehouse.expect_equal("items", "loose", "gone", "empty")
    warehouse.pipeline.execute(
        "UPDATE items SET note = 'the body is not sent' WHERE id < 100",
        "UPDATE items SET id = id + 100000 WHERE id BETWEEN 50 AND 150",
        "UPDATE items SET id = -id WHERE id IN (1, 2)",
        "UPDATE items SET id = 3 - abs(id) WHERE id IN (-1, -2)",
        "DELETE FROM items WHERE id BETWEEN 200 AND 210",
        "INSERT INTO loose VALUES (1, 'twice'), (1, NULL)",
        "DELETE FROM loose WHERE ctid IN (SELECT ctid FROM loose WHERE a = 3 LIMIT 2)",
        "TRUNCATE gone",
        "INSERT INTO gone VALUES (2, 'again', NULL, 3)",
        """INSERT INTO empty SELECT gen_random_uuid(), '{"a": [1, null]}'""",
        "ALTER TABLE gone RENAME note TO text",
        "ALTER TABLE gone ADD more text DEFAULT 'it''s \\', ADD bytes bytea DEFAULT '\\x00ff'",
        "ALTER TABLE gone ADD list int[] DEFAULT '{1,2}', DROP at",
        "ALTER TABLE gone ALTER price TYPE numeric(12,2)",
        "INSERT INTO gone VALUES (3, 'new', 1234567890.12, NULL, NULL, '{3}')",
        "UPDATE gone SET id = 4 WHERE id = 2",
        "ALTER TABLE gone RENAME TO kept",
    )
    warehouse.run_until_caught_up()
    warehouse.expect_equal("items", "loose", "kept", "empty")


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
def test_every_type_into_a_stand_in(warehouse: WarehousePipeline) -> None:
    """Values that do not fit are null, and all others equal."""
    step = 1000
    url = warehouse.pipeline.url
    # A document as a key is refused; the floats of Postgres and its own text are the same here.
    kinds = [kind for kind in TYPES if kind.name not in ("jsonb",)]
    _execute(url, [*CREATE_TYPES, *(each for kind in kinds for each in create(kind))])
    _execute(url, [each for kind in kinds for each in rows(kind, 1)])
    warehouse.configure(unfit="null")
    warehouse.run_until_caught_up()
    changes = [each for kind in kinds for each in rows(kind, step)]
    for kind in kinds:
        changes += moves(kind, step)
    _execute(url, changes)
    warehouse.run_until_caught_up()
    tables = [name for kind in kinds for name in (kind.table, f"{kind.table}_full")]
    warehouse.expect_equal(*tables, unfit=True)


def _execute(url: str, statements: list[str]) -> None:
    with psycopg.connect(url) as conn:
        for statement in statements:
            conn.execute(statement.encode())
