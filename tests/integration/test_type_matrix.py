"""What Postgres shows in the destination equals the source to the last character: every type, odd
values, in every form, copied, inserted, updated and as old rows.
"""

# ruff: noqa: S608 - the statements are made of what stands in these files.

from __future__ import annotations

import psycopg
import pytest

from tests.crash.row_texts import row_texts
from tests.fix_pipeline import PipelineUnderTest
from tests.integration.copied_tables import CopiedTables
from tests.integration.type_matrix import BIG, CREATE_TYPES, TYPES, create, moves, rows
from tests.threads_engine import Threads

_STEP = 1000


@pytest.fixture
def copied(pipeline: PipelineUnderTest, target_url: str, threads: Threads) -> CopiedTables:
    copied = CopiedTables(pipeline, target_url, threads)
    copied.configure()
    return copied


def _execute(url: str, statements: list[str]) -> None:
    with psycopg.connect(url) as conn:
        for statement in statements:
            conn.execute(statement.encode())


def test_every_type_in_every_form(copied: CopiedTables) -> None:
    url = copied.pipeline.url
    _execute(url, [*CREATE_TYPES, *(each for kind in TYPES for each in create(kind))])
    _execute(url, [each for kind in TYPES for each in rows(kind, 1)])
    copied.run_until_caught_up()
    changes = [each for kind in TYPES for each in rows(kind, _STEP)]
    for kind in TYPES:
        changes += moves(kind, _STEP)
    _execute(url, changes)
    copied.run_until_caught_up()
    different = []
    for table in (name for kind in TYPES for name in (kind.table, f"{kind.table}_full")):
        here, there = row_texts(url, table), row_texts(copied.target_url, table)
        if here != there:
            different.append((table, here - there, there - here))
    assert different == []


@pytest.mark.release
def test_a_value_of_50_megabytes(copied: CopiedTables) -> None:
    url = copied.pipeline.url
    _execute(
        url,
        [
            "CREATE TABLE big (id int PRIMARY KEY, t text, b bytea)",
            "ALTER TABLE big ALTER t SET STORAGE EXTERNAL, ALTER b SET STORAGE EXTERNAL",
            f"INSERT INTO big VALUES (1, repeat('é', {BIG // 2}), NULL)",
        ],
    )
    copied.run_until_caught_up()
    _execute(
        url,
        [
            f"INSERT INTO big VALUES (2, NULL, decode(repeat('00ff', {BIG // 2}), 'hex'))",
            "UPDATE big SET id = 3 WHERE id = 1",
        ],
    )
    copied.run_until_caught_up()
    query = "(SELECT id, md5(t), length(t), md5(b), length(b) FROM big)"
    assert copied.rows(url, query) == copied.rows(copied.target_url, query)
