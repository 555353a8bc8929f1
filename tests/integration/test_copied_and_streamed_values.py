"""Every transformer gives a value the same output, whether its row is copied or streamed."""
# ruff: noqa: S608 (statements of a test)

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import psycopg
import pytest
from hypothesis import Phase, given, settings
from hypothesis.strategies import SearchStrategy

from penstock.transform.transformers.registry import shipped_names
from tests.fix_pipeline import PipelineUnderTest
from tests.pipelines import pipeline_on
from tests.threads_engine import Threads
from tests.transformer_cases import ASKING, CASES, Case
from tests.tree_of_tables import KEY

ROWS = 30
LATER = 1000
"""What is added to the key of a row that is written again, with all else as it is."""
KNOWN = [case for case in CASES if not case.made().is_random]


@cache
def values_of(values: SearchStrategy[str]) -> list[str | None]:
    """Some that suit a column, all different as far as there are so many, and a null."""
    found: dict[str, None] = {}

    @settings(max_examples=2 * ROWS, database=None, phases=[Phase.generate], deadline=None)
    @given(values)
    def take(value: str) -> None:
        found[value] = None

    take()
    some = list(found)
    return [some[number % len(some)] for number in range(ROWS - 1)] + [None]


def wide_table() -> Iterator[tuple[str, Case]]:
    for number, case in enumerate(KNOWN):
        yield f"c{number}", case


@pytest.mark.every_postgres
def test_a_copied_row_is_a_streamed_row(
    pipeline: PipelineUnderTest, target_url: str, threads: Threads
) -> None:
    """One table with a column for each: rows are copied, inserted again and updated."""
    assert {case.use for case in KNOWN} == set(shipped_names()) - ASKING
    columns = dict(wide_table())
    spelled = ", ".join(f"{name} {case.column_type}" for name, case in columns.items())
    values = {name: values_of(case.values) for name, case in columns.items()}
    with psycopg.connect(pipeline.url, autocommit=True) as conn:
        conn.execute("CREATE EXTENSION hstore")
        conn.execute(
            "CREATE TABLE wide (id int PRIMARY KEY, family text, other text,"
            f" plain int, {spelled})".encode()
        )
        holes = ", ".join(f"%s::{case.column_type}" for case in columns.values())
        for number in range(ROWS):
            conn.execute(
                f"INSERT INTO wide VALUES (%s, %s, %s, 0, {holes})".encode(),
                [
                    number,
                    f"family {number % 5}",
                    f"other {number}",
                    *(some[number] for some in values.values()),
                ],
            )
    with psycopg.connect(target_url, autocommit=True) as conn:
        conn.execute("CREATE EXTENSION hstore")
    pipeline.configure(destination={"type": "postgres", "url": target_url}, copy=True)
    rules = {name: {"use": case.use, **case.options} for name, case in columns.items()}
    plain = ["id", "family", "other", "plain"]
    table = {"table": "wide", "columns": rules, "keep": plain}
    pipeline.also(transform={"key": KEY, "rules": [table]})

    def catch_up() -> None:
        run = pipeline_on(threads, pipeline.config, pipeline.file)
        run.run(lambda: False, until_caught_up=True)

    catch_up()
    copied = rows_by_key(target_url)
    assert len(copied) == ROWS
    names = ", ".join(columns)
    pipeline.execute(
        f"INSERT INTO wide SELECT id + {LATER}, family, other, 0, {names} FROM wide",
        f"UPDATE wide SET plain = 1, id = id + {2 * LATER} WHERE id < {ROWS // 2}",
        f"UPDATE wide SET plain = 1 WHERE id < {ROWS}",
    )
    catch_up()
    streamed = rows_by_key(target_url)
    assert len(streamed) == 2 * ROWS
    for key, row in streamed.items():
        before = copied[key % LATER]
        differing = [
            f"{case.name}: {before[name]!r} copied, {row[name]!r} streamed"
            for name, case in columns.items()
            if before[name] != row[name]
        ]
        assert not differing, "\n".join(differing)
    source = rows_by_key(pipeline.url)
    for name, case in columns.items():
        changed = [row[name] for key, row in source.items() if row[name] != streamed[key][name]]
        # Of two values each may have drawn itself.
        assert changed or case.use == "boolean", f"{case.name} has changed nothing"


def rows_by_key(url: str) -> dict[int, dict[str, str | None]]:
    """Each row's columns as texts."""
    with psycopg.connect(url) as conn:
        cursor = conn.execute("SELECT * FROM wide LIMIT 0")
        assert cursor.description is not None
        names = [column.name for column in cursor.description]
        texts = ", ".join(f"{name}::text" for name in names)
        found = conn.execute(f"SELECT id, {texts} FROM wide".encode()).fetchall()
    return {key: dict(zip(names, row, strict=True)) for key, *row in found}
