"""A real search server behind a real pipeline: documents equal rows."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.destination.search.client import SearchClient
from penstock.destination.search.names import table_index
from penstock.destination.search.options import SearchOptions
from tests.documented import destination_example
from tests.fix_pipeline import PipelineUnderTest
from tests.integration.copied_tables import CopiedTables, Writers
from tests.search_documents import expect_same_rows
from tests.search_server import SearchServer
from tests.threads_engine import Threads


class IntoIndexes(CopiedTables):
    """A pipeline into a search server."""

    def __init__(self, pipeline: PipelineUnderTest, threads: Threads, server: SearchServer) -> None:
        super().__init__(pipeline, "", threads)
        self.options = SearchOptions(url=server.url, replicas=0)
        self.client = SearchClient(self.options)

    def configure(self, **copy: Any) -> None:
        self.pipeline.configure(
            copy=copy or True,
            # The page's; the server of the tests takes any password.
            destination={
                **destination_example("search"),
                "url": self.options.url,
                "replicas": 0,
            },
        )

    def expect_equal(self, *tables: str) -> None:
        assert expect_same_rows(self.pipeline.url, self.options, self.pipeline.name, tables)

    def search(self, table: str, query: dict[str, Any]) -> list[str]:
        """The ids of documents that readers find."""
        path = f"{self._index(table)}/_search"
        answer = self.client.call("POST", path, {"query": query}, doing="searching")
        return sorted(hit["_id"] for hit in answer.body["hits"]["hits"])

    def generations(self, table: str) -> list[str]:
        path = f"{self._index(table)}.g*"
        return sorted(self.client.call("GET", path, doing="looking").body)

    def _index(self, table: str) -> str:
        return table_index(self.options, self.pipeline.name, "public", table)


@pytest.fixture
def into(
    pipeline: PipelineUnderTest,
    threads: Threads,
    search_server: SearchServer,
    monkeypatch: pytest.MonkeyPatch,
) -> IntoIndexes:
    monkeypatch.setenv("SEARCH_PASSWORD", "none")
    return IntoIndexes(pipeline, threads, search_server)


def test_a_copy_changes_and_other_schemas(into: IntoIndexes) -> None:
    into.fill("items")
    into.pipeline.execute(
        "CREATE TABLE gone (id int PRIMARY KEY, note text)",
        "INSERT INTO gone VALUES (1, 'x'), (2, 'y')",
        """CREATE TABLE kinds (id int PRIMARY KEY, amount numeric, day date, at timestamptz,
           span daterange, place point, tags text[], doc jsonb, address inet, flag boolean)""",
        """INSERT INTO kinds VALUES
           (1, 12345678901234567890.10, '2024-02-29', '2024-02-29 12:00:00.123456+00',
            '[2024-01-01,2024-02-01)', '(10.5,50.25)', '{a,"b c",NULL}',
            '{"deep": {"er": [1.10, "x"]}}', '10.0.0.1', true),
           (2, 'NaN', 'infinity', '-infinity', NULL, NULL, '{}', '[1, 2]', '10.0.0.0/8', NULL)""",
    )
    into.configure(chunk_bytes="512KiB")
    into.run_until_caught_up()
    into.expect_equal("items", "gone")
    assert into.search("kinds", {"range": {"amount": {"gt": 1e19}}}) == ["1"]
    assert into.search("kinds", {"range": {"at": {"gte": "2024-02-29T12:00:00Z"}}}) == ["1"]
    assert into.search("kinds", {"term": {"span": "2024-01-15"}}) == ["1"]
    assert into.search("kinds", {"term": {"tags.keyword": "b c"}}) == ["1"]
    assert into.search("kinds", {"term": {"doc.deep.er": "x"}}) == ["1"]
    assert into.search("kinds", {"term": {"address": "10.0.0.0/24"}}) == ["1"]
    near = {"distance": "1km", "place": {"lon": 10.5, "lat": 50.25}}
    assert into.search("kinds", {"geo_distance": near}) == ["1"]
    into.pipeline.execute(
        "UPDATE items SET note = 'the body is not sent' WHERE id < 100",
        "UPDATE items SET id = id + 100000 WHERE id BETWEEN 50 AND 150",
        "UPDATE items SET id = -id WHERE id IN (1, 2)",
        "UPDATE items SET id = 3 - abs(id) WHERE id IN (-1, -2)",
        "DELETE FROM items WHERE id BETWEEN 200 AND 210",
        "TRUNCATE gone",
        "INSERT INTO gone VALUES (2, 'again')",
        "ALTER TABLE gone RENAME note TO text",
        "ALTER TABLE gone ADD more text DEFAULT 'it''s'",
        "INSERT INTO gone VALUES (3, 'new', NULL)",
        "UPDATE gone SET id = 4 WHERE id = 2",
        "ALTER TABLE gone DROP text",
    )
    into.run_until_caught_up()
    into.expect_equal("items", "gone")
    assert len(into.generations("gone")) == 1


@pytest.mark.release
def test_rows_change_while_they_are_copied(into: IntoIndexes) -> None:
    into.fill("items")
    into.configure(chunk_bytes="256KiB", parallelism=1)
    with Writers(into.pipeline.url) as writers:
        into.run_until_caught_up()
        assert writers.written
    into.run_until_caught_up()
    into.expect_equal("items")


@pytest.mark.release
def test_rows_change_while_they_are_copied_anew(into: IntoIndexes) -> None:
    into.fill("items")
    into.configure(chunk_bytes="256KiB", parallelism=1)
    into.run_until_caught_up()
    before = into.generations("items")
    into.command("tables", "resync", str(into.pipeline.file), "items")
    with Writers(into.pipeline.url):
        into.run_until_caught_up()
    into.run_until_caught_up()
    into.expect_equal("items")
    assert into.generations("items") != before


@pytest.mark.release
def test_a_type_that_needs_another_index(into: IntoIndexes) -> None:
    into.pipeline.execute(
        "CREATE TABLE things (id int PRIMARY KEY, size int)",
        "INSERT INTO things SELECT n, n FROM generate_series(1, 50) n",
    )
    into.configure()
    into.run_until_caught_up()
    into.pipeline.execute(
        "ALTER TABLE things ALTER size TYPE text USING 'size ' || size",
        "INSERT INTO things VALUES (60, 'new')",
    )
    into.run_until_caught_up()
    into.run_until_caught_up()
    into.expect_equal("things")
    assert into.search("things", {"match": {"size": "new"}}) == ["60"]
