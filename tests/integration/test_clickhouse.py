"""Pipelines into `clickhouse`: the real engine (chdb) and the real client, with our own HTTP façade
between them. Every row that readers see is compared.
"""

from __future__ import annotations

import itertools
from typing import Any

import psycopg
import pytest

from penstock.destination.clickhouse.destination import ClickHouseDestination
from penstock.destination.clickhouse.names import literal
from penstock.destination.clickhouse.options import ClickHouseOptions
from penstock.verify.report import VerifyReport
from penstock.verify.verification import verify
from tests.clickhouse_rows import column_types, expect_same_rows
from tests.clickhouse_server import ClickHouseServer
from tests.documented import destination_example
from tests.fix_pipeline import PipelineUnderTest
from tests.integration.copied_tables import CopiedTables, Writers
from tests.integration.lake_changes import BEFORE, FOLLOWED, MOVES, WITHOUT_A_KEY
from tests.integration.type_matrix import CREATE_TYPES, TYPES, create, moves, rows
from tests.pipelines import engine_on
from tests.threads_engine import Threads

_numbers = itertools.count(1)


class ClickHousePipeline(CopiedTables):
    """A pipeline into databases of its own."""

    def __init__(
        self, pipeline: PipelineUnderTest, threads: Threads, server: ClickHouseServer
    ) -> None:
        super().__init__(pipeline, "", threads)
        number = next(_numbers)
        self.database = f"public_p{number}"
        self.given: dict[str, Any] = {
            **destination_example("clickhouse"),
            "url": server.url,
            "database": f"{{schema}}_p{number}",
            "ledger_database": f"penstock_p{number}",
        }
        del self.given["password"]  # no engine asks for it

    def configure(self, *, unfit: str = "refuse", mode: str = "merge", **copy: Any) -> None:
        self.given |= {"unfit": unfit, "mode": mode}
        self.pipeline.configure(copy=copy or True, destination=self.given)

    @property
    def destination(self) -> ClickHouseDestination:
        given = {name: value for name, value in self.given.items() if name != "type"}
        options = ClickHouseOptions.model_validate(given)
        return ClickHouseDestination(options, self.pipeline.name)

    def expect_equal(self, *tables: str, unfit: bool = False) -> None:
        expect_same_rows(self.pipeline.url, self.destination, tables, unfit=unfit)

    def tables(self) -> list[str]:
        """The tables behind the views."""
        sql = (
            "SELECT name FROM system.tables WHERE engine = 'ReplacingMergeTree' "  # noqa: S608
            f"AND database = {literal(self.database)} ORDER BY name"
        )
        found: list[str] = self.destination._client.read(sql, doing="reading")[0].to_pylist()
        return found


@pytest.fixture
def into(
    pipeline: PipelineUnderTest, threads: Threads, clickhouse_server: ClickHouseServer
) -> ClickHousePipeline:
    return ClickHousePipeline(pipeline, threads, clickhouse_server)


@pytest.mark.release
def test_verify(into: ClickHousePipeline, threads: Threads) -> None:
    """Values of many types; then a value that somebody changed."""
    into.pipeline.execute(
        "CREATE TABLE kinds (id uuid PRIMARY KEY, a bool, b bytea, c date, d timestamp,"
        " e timestamptz, f time, g numeric(12,2), h jsonb, i text, j int[], k float8, l oid)",
        "INSERT INTO kinds SELECT gen_random_uuid(), n % 2 = 0, sha256(n::text::bytea),"
        " date '1944-03-15' + n * 97, timestamp '1969-12-31 23:59:59.999999' + n * interval"
        " '1.5 days', now() + n * interval '1 us', time '23:59:59.99', n * 1.25, '{\"a\": 1}',"
        " repeat('é', n), ARRAY[n], n / 3.0, n FROM generate_series(1, 50) n",
        "INSERT INTO kinds SELECT gen_random_uuid(), NULL, '', NULL, NULL, NULL, '24:00', 0,"
        " 'null', ''",
    )
    into.configure()
    into.run_until_caught_up()
    into.pipeline.execute(
        "UPDATE kinds SET i = 'later' WHERE l = 7", "DELETE FROM kinds WHERE l = 8"
    )

    def verified() -> VerifyReport:
        config, file = into.pipeline.config, into.pipeline.file
        return verify(config, file, make_engine=engine_on(threads))

    report = verified()
    assert report.equal, report.tables
    assert [table.source_rows for table in report.tables] == [50]
    (table,) = into.tables()
    sql = f"ALTER TABLE `{into.database}`.`{table}` UPDATE h = '{{}}' WHERE l = 3"
    into.destination._client.run(sql, doing="changing a row")
    (kinds,) = verified().tables
    assert not kinds.equal
    assert kinds.source_rows == kinds.target_rows == 50


def test_a_copy_changes_and_schema_changes(into: ClickHousePipeline) -> None:
    into.fill("items")
    into.pipeline.execute(
        "CREATE TABLE gone (id int PRIMARY KEY, note text, at date, price numeric(10,2))",
        "INSERT INTO gone VALUES (1, 'x', '2026-01-15', 1.5), (2, 'y', '1900-01-01', NULL)",
        "CREATE TABLE empty (id uuid PRIMARY KEY, doc jsonb, tags text[])",
    )
    into.configure(chunk_bytes="4MiB")
    into.run_until_caught_up()
    into.expect_equal("items", "gone", "empty")
    into.pipeline.execute(
        "UPDATE items SET note = 'the body is not sent' WHERE id < 100",
        "UPDATE items SET id = id + 100000 WHERE id BETWEEN 50 AND 150",
        "UPDATE items SET id = -id WHERE id IN (1, 2)",
        "UPDATE items SET id = 3 - abs(id) WHERE id IN (-1, -2)",
        "DELETE FROM items WHERE id BETWEEN 200 AND 210",
        "TRUNCATE gone",
        "INSERT INTO gone VALUES (2, 'again', NULL, 3)",
        """INSERT INTO empty SELECT gen_random_uuid(), '{"a": [1, null]}', '{a,NULL,"b c"}'""",
        "ALTER TABLE gone RENAME note TO text",
        "ALTER TABLE gone ADD more text DEFAULT 'it''s', ADD bytes bytea DEFAULT '\\x00ff'",
        "ALTER TABLE gone ADD list int[] DEFAULT '{1,2}', DROP at",
        "ALTER TABLE gone ALTER price TYPE numeric(12,2)",
        "INSERT INTO gone VALUES (3, 'new', 1234567890.12, NULL, NULL, '{3}')",
        "UPDATE gone SET id = 4 WHERE id = 2",
        "ALTER TABLE gone RENAME id TO number",
        "ALTER TABLE gone ALTER price TYPE numeric",
        "UPDATE gone SET text = 'last' WHERE number = 4",
        "ALTER TABLE gone RENAME TO kept",
    )
    into.run_until_caught_up()
    into.run_until_caught_up()
    into.expect_equal("items", "kept", "empty")
    kinds = column_types(into.destination._client, into.database, "kept")
    assert kinds["number"] == "Int32"
    assert kinds["price"] == "Nullable(String)"
    assert len(into.tables()) == 3, "what is not used any more is gone"


@pytest.mark.release
@pytest.mark.release  # the contract's tests have a shorter one
def test_views_over_change_tables_show_the_rows_of_the_source(into: ClickHousePipeline) -> None:
    """As for warehouses. The type of a column that becomes another is carried over."""
    into.fill("items")
    into.pipeline.execute(*BEFORE)
    into.pipeline.execute("UPDATE gone SET at = '1900-01-01' WHERE id = 2")
    into.configure(mode="append", chunk_bytes="4MiB")
    into.run_until_caught_up()
    into.expect_equal("items", "gone", "empty")
    into.pipeline.execute(*MOVES, *FOLLOWED, WITHOUT_A_KEY)
    into.run_until_caught_up()
    into.expect_equal("items", "kept", "empty")
    into.command("tables", "resync", str(into.pipeline.file), "kept")
    into.run_until_caught_up()
    into.expect_equal("items", "kept", "empty")


def test_a_table_without_a_key_takes_new_rows_and_refuses_others(into: ClickHousePipeline) -> None:
    into.pipeline.execute(
        "CREATE TABLE loose (a int, b text)",
        "ALTER TABLE loose REPLICA IDENTITY FULL",
        "INSERT INTO loose SELECT n % 7, 'twice' FROM generate_series(1, 50) n",
    )
    into.configure()
    into.run_until_caught_up()
    into.pipeline.execute("INSERT INTO loose VALUES (1, 'twice'), (1, NULL)")
    into.run_until_caught_up()
    into.expect_equal("loose")
    into.pipeline.execute("DELETE FROM loose WHERE a = 3")
    into.run_until_caught_up()
    assert any("public.loose has no key" in text for text in into.said)


@pytest.mark.release
def test_a_value_that_does_not_fit_sets_its_table_aside(into: ClickHousePipeline) -> None:
    into.pipeline.execute(
        "CREATE TABLE odd (id int PRIMARY KEY, n numeric(5,2))",
        "CREATE TABLE even (id int PRIMARY KEY)",
    )
    into.configure()
    into.run_until_caught_up()
    into.pipeline.execute(
        "INSERT INTO odd VALUES (1, 1.25), (2, 'NaN')", "INSERT INTO even VALUES (1)"
    )
    into.run_until_caught_up()
    into.expect_equal("even")
    (refused, *_) = [text for text in into.said if "does not fit" in text]
    assert "public.odd: 'NaN' in column n does not fit decimal128(5, 2)" in refused
    assert "the row with id = 2, changed at" in refused
    into.pipeline.execute("UPDATE odd SET n = 2 WHERE id = 2")
    into.command("tables", "resync", str(into.pipeline.file), "odd")
    into.run_until_caught_up()
    into.expect_equal("odd", "even")


@pytest.mark.release
@pytest.mark.parametrize("anew", [False, True], ids=["at first", "anew"])
def test_rows_change_while_they_are_copied(into: ClickHousePipeline, *, anew: bool) -> None:
    into.fill("items")
    into.configure(chunk_bytes="1MiB", parallelism=1)
    if anew:
        into.run_until_caught_up()
        into.command("tables", "resync", str(into.pipeline.file), "items")
    with Writers(into.pipeline.url) as writers:
        into.run_until_caught_up()
        assert writers.written
    into.run_until_caught_up()
    into.expect_equal("items")
    assert len(into.tables()) == 1


@pytest.mark.release
@pytest.mark.parametrize("mode", ["merge", "append"])
def test_every_type(into: ClickHousePipeline, mode: str) -> None:
    """Values that do not fit are null, and all others equal."""
    step = 1000
    url = into.pipeline.url
    _execute(url, [*CREATE_TYPES, *(each for kind in TYPES for each in create(kind))])
    _execute(url, [each for kind in TYPES for each in rows(kind, 1)])
    into.configure(unfit="null", mode=mode)
    into.run_until_caught_up()
    changes = [each for kind in TYPES for each in rows(kind, step)]
    for kind in TYPES:
        changes += moves(kind, step)
    _execute(url, changes)
    into.run_until_caught_up()
    into.expect_equal(*(kind.table for kind in TYPES), unfit=True)


def _execute(url: str, statements: list[str]) -> None:
    with psycopg.connect(url) as conn:
        for statement in statements:
            conn.execute(statement.encode())
