"""A table that is emptied under a snapshot is told from one whose rows differ."""

from __future__ import annotations

from contextlib import nullcontext

import psycopg
import pytest

from penstock.model.table_name import TableName
from penstock.verify.checksums import find_relations
from penstock.verify.rewritten import rewritten_since
from penstock.verify.snapshot import ComparedSnapshot, SnapshotSessions

PLAIN = TableName("public", "plain")
ROOT = TableName("public", "parts")
QUIET = TableName("public", "quiet")

_READ = b"SELECT FROM public.plain, public.parts"


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("TRUNCATE plain", {PLAIN}),
        ("VACUUM FULL plain", {PLAIN}),
        ("TRUNCATE parts_1", {ROOT}),
        ("TRUNCATE parts", {ROOT}),
        ("DROP TABLE parts_1", {ROOT}),
        ("ALTER TABLE parts DETACH PARTITION parts_1", {ROOT}),
        ("CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2)", {ROOT}),
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
        with ComparedSnapshot(
            lambda: psycopg.connect(database), lambda _action: nullcontext()
        ) as snapshot:
            # Who looked at tables and read them is in nobody's way.
            with snapshot.asked() as leader:
                find_relations(leader, [PLAIN, ROOT, QUIET])
            with SnapshotSessions(snapshot, 1) as sessions:
                sessions.submit(lambda reader: reader.execute(_READ).fetchall()).result()
                conn.execute("SET lock_timeout TO '5s'")
                conn.execute(statement.encode())
            assert rewritten_since(snapshot, [PLAIN, ROOT, QUIET]) == expected
