"""Whole pipelines with a filter: what arrives, copied and streamed."""

from __future__ import annotations

import json
from typing import Any

from penstock.destination.files.committed_files import list_files
from tests.fix_pipeline import PipelineUnderTest
from tests.pipelines import pipeline_on
from tests.threads_engine import Threads

FILTER = {
    "tables": {"exclude": ["secrets"]},
    "operations": {"exclude": ["delete"]},
    "columns": {"items": {"exclude": ["password"]}},
    "rows": {"items": "price > 10"},
}


def catch_up(pipeline: PipelineUnderTest, threads: Threads) -> None:
    run = pipeline_on(threads, pipeline.config, pipeline.file)
    run.run(lambda: False, until_caught_up=True)


def lines(pipeline: PipelineUnderTest) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for file in list_files(pipeline.folder / "out", pipeline.name)
        for line in file.read_text().splitlines()
    ]


def test_what_is_left_out_never_arrives(pipeline: PipelineUnderTest, threads: Threads) -> None:
    pipeline.execute(
        "CREATE TABLE items (id int PRIMARY KEY, price numeric(8,2), password text)",
        "CREATE TABLE secrets (id int PRIMARY KEY)",
        "INSERT INTO items VALUES (1, 5, 'hush'), (2, 20, 'hush')",
        "INSERT INTO secrets VALUES (1)",
    )
    pipeline.configure(
        destination={"type": "files", "path": str(pipeline.folder / "out"), "format": "ndjson"},
        copy=True,
    )
    pipeline.also(filter=FILTER)
    catch_up(pipeline, threads)
    pipeline.execute(
        "INSERT INTO items VALUES (3, 7, 'hush'), (4, 11, 'hush')",
        "UPDATE items SET price = 12 WHERE id = 1",
        "DELETE FROM items WHERE id = 2",
        "INSERT INTO secrets VALUES (2)",
        "ALTER TABLE items ADD COLUMN note text",
        "UPDATE items SET note = 'n' WHERE id = 4",
        "ALTER TABLE secrets ADD COLUMN note text",
    )
    catch_up(pipeline, threads)
    found = [(line["op"], line["table"], line["new"]) for line in lines(pipeline)]
    assert sorted(found, key=str) == sorted(
        [
            ("read", "items", {"id": 2, "price": "20.00"}),
            ("insert", "items", {"id": 4, "price": "11.00"}),
            ("update", "items", {"id": 1, "price": "12.00"}),
            ("update", "items", {"id": 4, "price": "11.00", "note": "n"}),
        ],
        key=str,
    )
    stored = [json.loads(file.read_text()) for file in pipeline.folder.glob("out/**/*.json")]
    assert [event["table"] for event in stored if event.get("op") == "schema"] == ["items"]
