"""A table that is emptied under a snapshot is told from one whose rows differ."""

from __future__ import annotations

from contextlib import nullcontext

import psycopg
import pytest

from penstock.model.table_name import TableName
from penstock.verify.rewritten import rewritten_since
from penstock.verify.snapshot import Snapshot

PLAIN = TableName("public", "plain")
ROOT = TableName("public", "parts")
QUIET = TableName("public", "quiet")


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("TRUNCATE plain", {PLAIN}),
        ("VACUUM FULL plain", {PLAIN}),
        ("TRUNCATE parts_1", {ROOT}),
        ("TRUNCATE parts", {ROOT}),
        ("DELETE FROM plain", set()),
        ("CREATE INDEX ON plain (id)", set()),
    ],
)
def test_tables_that_a_snapshot_no_longer_shows(
    database: str, statement: str, expected: set[TableName]
) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        for setup in (
            "CREATE TABLE plain AS SELECT 1 AS id",
            "CREATE TABLE quiet AS SELECT 1 AS id",
            "CREATE TABLE parts (id int) PARTITION BY LIST (id)",
            "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1)",
            "INSERT INTO parts VALUES (1)",
        ):
            conn.execute(setup.encode())
        with Snapshot(lambda: psycopg.connect(database), lambda _action: nullcontext()) as snapshot:
            # Asking before would lock the partitions, and the statement would wait for ever.
            conn.execute(statement.encode())
            assert rewritten_since(snapshot, [PLAIN, ROOT, QUIET]) == expected
