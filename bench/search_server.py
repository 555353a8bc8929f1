"""An OpenSearch server to deliver to, whether everything arrived, and what its own client does."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from opensearchpy import OpenSearch
from opensearchpy.helpers import bulk

from bench.encoders import captured_changes
from bench.process_usage import usage
from bench.readers import measure_capture
from bench.results import Measurement
from bench.server import BenchDatabase, BenchError, BenchPipeline
from bench.target import Contents
from bench.workloads import Load
from penstock.destination.families.target import Target
from penstock.destination.families.versioned.task_writer import VersionedWriter, read_part
from penstock.destination.search.destination import SearchDestination
from penstock.destination.search.document_lines import documents_of, row_versions
from penstock.destination.search.options import SearchOptions
from penstock.source.postgres.catalogue.definitions import read_definitions
from tests.opensearch_server import OpenSearchServer

HELPER = "search_bulk_helper"
INTO_SEARCH = ("search", HELPER)
_MEMORY = "1g"


class SearchIndexes(OpenSearchServer):
    """Inside ``with`` the server runs."""

    def __init__(self) -> None:
        super().__init__(memory=_MEMORY, on_disk=True)

    @property
    def destination(self) -> dict[str, Any]:
        """The pipeline file's part: other settings by default."""
        return {"type": "search", "url": self.url, "replicas": 0}

    def require_all(self, system: str, pipeline: str, expected: Contents) -> None:
        """A rate counts only if there is a document for each row that is left."""
        client = OpenSearch(self.url)
        for table, (rows, _) in expected.items():
            index = f"{pipeline}.public.{table}.g*"
            client.indices.refresh(index=index)
            found = client.count(index=index)["count"]
            if found != rows:
                raise BenchError(
                    f"{system} did not deliver what the source holds: {found:,} documents of "
                    f"{rows:,} rows of {table}.",
                    remedy="It is a bug of the system or of the benchmark: the figures mean "
                    "nothing.",
                )


def measure_bulk_helper(
    server: SearchIndexes, database: BenchDatabase, name: str, pipeline: BenchPipeline, load: Load
) -> Measurement:
    """The documents that `search` sends for the same changes, from memory, by the bulk helper of
    OpenSearch's own client, with its defaults.
    """
    measure_capture(database, name, pipeline, load)
    actions = _actions(server, database, pipeline)
    client = OpenSearch(server.url, timeout=120)
    before, began = usage(os.getpid()).cpu_seconds, time.monotonic()
    # A row that came and went between two looks is a delete of nothing: no reason to stop.
    bulk(client, actions, raise_on_error=False)
    seconds = time.monotonic() - began
    spent = usage(os.getpid())
    return Measurement(
        name, HELPER, load.changes, seconds, spent.cpu_seconds - before, None, spent.peak_rss_mb
    )


def _actions(
    server: SearchIndexes, database: BenchDatabase, pipeline: BenchPipeline
) -> list[dict[str, Any]]:
    options = SearchOptions(url=server.url, replicas=0)
    destination = SearchDestination(options, pipeline.config.name)
    destination.open()
    subscription = pipeline.subscription
    tables = read_definitions(database.conn, subscription.tables, subscription.publications)
    destination.prepare(tables)
    targets = {table.oid: Target.of(table) for table in tables}
    found: list[dict[str, Any]] = []
    writer = destination.writer()
    assert isinstance(writer, VersionedWriter)  # noqa: S101 (search only merges)
    for part in writer.encode(captured_changes(pipeline)):
        about, steps = read_part(part)
        target = targets[about["table"]]
        index = f"{pipeline.config.name}.public.{target.name}.g1.write"
        for _, rows in steps:
            found += _of_rows(target, index, rows)
    destination.close()
    return found


def _of_rows(target: Target, index: str, rows: pa.Table) -> Iterator[dict[str, Any]]:
    texts = documents_of(target.columns, rows).to_pylist()
    heads = zip(rows["id"].to_pylist(), row_versions(rows).tolist(), strict=True)
    gone = rows["deleted"].to_pylist()
    for (key, version), text, is_gone in zip(heads, texts, gone, strict=True):
        head = {"_index": index, "_id": key, "version": version, "version_type": "external"}
        if is_gone:
            yield {"_op_type": "delete", **head}
        else:
            yield {**head, "_source": json.loads(text)}
