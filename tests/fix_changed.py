"""A shop whose tables change, and a comparison of both sides."""

from __future__ import annotations

import psycopg
import pytest
import yaml

from penstock.model.table_definition import TableDefinition
from penstock.model.table_name import TableName
from penstock.source.postgres.catalogue.definitions import definitions_of
from tests.fix_pipeline import PipelineUnderTest
from tests.integration.copied_tables import CopiedTables
from tests.threads_engine import Threads

SHOP = (
    "CREATE TYPE mood AS ENUM ('calm', 'wild')",
    "CREATE TABLE items (id int PRIMARY KEY, label text, feels mood, code varchar(10))",
    "INSERT INTO items SELECT n, 'item ' || n, 'calm', 'c' || n FROM generate_series(1, 50) n",
    "CREATE TABLE parts (id int PRIMARY KEY, item int REFERENCES items, note text NOT NULL)",
    "INSERT INTO parts SELECT n, n, 'part' FROM generate_series(1, 20) n",
)


class Changed(CopiedTables):
    """A shop whose tables change."""

    def transaction(self, *statements: str) -> None:
        with psycopg.connect(self.pipeline.url) as conn:
            for statement in statements:
                conn.execute(statement.encode())

    def tables(self, url: str) -> dict[str, TableDefinition]:
        with psycopg.connect(url) as conn:
            names = conn.execute(
                "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'"
            )
            wanted = [TableName("public", name) for (name,) in names.fetchall()]
            return {table.name: table for table in definitions_of(conn, wanted)}

    def rewrite(self, **keys: object) -> None:
        """Other keys of the pipeline file."""
        content = yaml.safe_load(self.pipeline.file.read_text())
        self.pipeline.file.write_text(yaml.safe_dump({**content, **keys}))

    def is_same(self, *only: str) -> bool:
        """Of these tables, or of all."""
        try:
            self.expect_equal(*only)
        except (AssertionError, psycopg.Error):
            return False
        return True

    def expect_equal(self, *only: str) -> None:
        """The same tables, columns, types, keys and rows."""
        here, there = (
            {name: table for name, table in self.tables(url).items() if not only or name in only}
            for url in (self.pipeline.url, self.target_url)
        )
        assert {name: _shape(table) for name, table in there.items()} == {
            name: _shape(table) for name, table in here.items()
        }
        for name in here:
            columns = sorted(column.name for column in here[name].columns)
            query = f"(SELECT {', '.join(columns)} FROM {name})"  # noqa: S608
            assert self.rows(self.pipeline.url, query) == self.rows(self.target_url, query), name


def _shape(table: TableDefinition) -> object:
    return (
        {(c.name, c.type, c.not_null, c.default, c.collation, c.generated) for c in table.columns},
        table.primary_key,
        {kind.name: (kind.labels, kind.attributes) for kind in table.types},
        {(index.name, index.definition) for index in table.indexes},
        {(k.kind, k.definition) for k in table.constraints},
    )


@pytest.fixture
def changed(pipeline: PipelineUnderTest, target_url: str, threads: Threads) -> Changed:
    pipeline.execute(*SHOP)
    changed = Changed(pipeline, target_url, threads)
    changed.configure()
    return changed
