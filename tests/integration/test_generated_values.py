"""Values that nobody thought of: rows of many types are drawn, copied, streamed, updated and
deleted, and the destination holds the same.
"""

# ruff: noqa: S608 - the statements are made of what stands in this file.

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import time
from itertools import count
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.verify.verification import verify
from tests.crash.row_texts import expect_same_rows
from tests.fix_pipeline import PipelineUnderTest
from tests.integration.copied_tables import CopiedTables
from tests.pipelines import engine_on
from tests.threads_engine import Threads

Values = st.SearchStrategy[Any]
Row = tuple[Any, ...]

LABELS = ("calm", "it's \"odd\", isn't it", "", "NULL", "back\\slash {a,b}")
LONG = 'text COLLATE "C"'
"""Each of these is repeated until it is TOASTed."""
CREATE_TYPES = (
    "CREATE TYPE g_mood AS ENUM ({})".format(
        ", ".join("'{}'".format(label.replace("'", "''")) for label in LABELS)
    ),
    "CREATE TYPE g_pair AS (n int, t text, many text[])",
)

# Postgres has no NUL in texts, and no halves of surrogate pairs.
characters = st.sampled_from("\"'\\{},() \t\n\r\x07\x7féß😀🜁") | st.characters(
    exclude_characters="\0", exclude_categories=["Cs"]
)
texts = st.text(characters, max_size=12)


def _signed(largest: int) -> st.SearchStrategy[int]:
    return st.integers(-largest, largest)


def _numbers(largest: int, scales: Values) -> Values:
    return st.builds("{}e-{}".format, _signed(largest), scales)


def _days(last_year: int) -> Values:
    """Dates of both eras, each with what follows it and its time of day."""
    ad = st.builds("{:04d}-{:02d}-{:02d}".format, st.integers(1, last_year), _MONTHS, _MONTH_DAYS)
    bc = st.builds("{:04d}-{:02d}-{:02d}".format, st.integers(1, 4712), _MONTHS, _MONTH_DAYS)
    return st.tuples(ad, st.just("")) | st.tuples(bc, st.just(" BC"))


_MONTHS, _MONTH_DAYS = st.integers(1, 12), st.integers(1, 28)
_ENDLESS = st.sampled_from(["infinity", "-infinity"])
times = st.times().map(time.isoformat) | st.just("24:00:00")
zones = st.builds(
    "{}{:02d}:{:02d}:{:02d}".format,
    *(st.sampled_from("+-"), st.integers(0, 15), st.integers(0, 59), st.integers(0, 59)),
)


def _stamps(zone: Values) -> Values:
    # A day less at the end: with a zone it may be later in UTC.
    parts = st.tuples(_days(294_275), times, zone)
    return parts.map(lambda drawn: f"{drawn[0][0]} {drawn[1]}{drawn[2]}{drawn[0][1]}") | _ENDLESS


documents = st.recursive(
    st.none()
    | st.booleans()
    | _signed(10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    # \u0000 is fine in json, not in jsonb.
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


def _json(indents: Values) -> Values:
    return st.builds(
        lambda value, indent, is_ascii: json.dumps(value, indent=indent, ensure_ascii=is_ascii),
        *(documents, indents, st.booleans()),
    )


def _array(elements: Values) -> Values:
    """Up to three dimensions; all lists of one level are equally long."""

    def nested(sizes: list[int]) -> Values:
        if not sizes:
            return elements
        return st.lists(nested(sizes[1:]), min_size=sizes[0], max_size=sizes[0])

    shapes = st.lists(st.integers(1, 2), min_size=1, max_size=3)
    return shapes.flatmap(nested) | st.just([])


def _range(bounds: tuple[int, int, bool, bool, str, str]) -> str:
    one, other, has_lower, has_upper, opening, closing = bounds
    lower, upper = min(one, other), max(one, other)
    return f"{opening}{lower if has_lower else ''},{upper if has_upper else ''}{closing}"


# The largest int has none after it, which an upper bound that is among the values would need.
_bounds = st.tuples(
    *(_signed(2**31 - 2), _signed(2**31 - 2), st.booleans(), st.booleans()),
    *(st.sampled_from("[("), st.sampled_from(")]")),
)
some_texts = texts | st.none()

TYPES: dict[str, Values] = {
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "numeric": _numbers(10**60, st.integers(0, 200))
    | st.sampled_from(["NaN", "Infinity", "-Infinity", "1e300", "0.000"]),
    "numeric(12,2)": _numbers(10**12 - 1, st.just(2)) | st.just("NaN"),
    "real": st.floats(width=32).map(repr),
    "double precision": st.floats().map(repr),
    "text": texts,
    LONG: texts,
    "varchar(7)": st.text(characters, max_size=7),
    "bytea": st.binary(max_size=20).map(lambda data: f"\\x{data.hex()}"),
    "boolean": st.booleans(),
    "date": _days(5_874_897).map("".join) | _ENDLESS,
    "time": times,
    "timetz": st.builds("{}{}".format, times, zones),
    "timestamp": _stamps(st.just("")),
    "timestamptz": _stamps(zones),
    "interval": st.builds(
        "{} months {} days {}{}:{:02d}:{:02d}.{:06d}".format,
        *(_signed(2**31 - 1), _signed(2**31 - 1), st.sampled_from(["", "-"])),
        *(st.integers(0, 10**6), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999_999)),
    ),
    "uuid": st.uuids().map(str),
    "json": _json(st.sampled_from([None, 1])),
    "jsonb": _json(st.none()),
    "inet": st.ip_addresses(v=4).flatmap(lambda ip: st.integers(0, 32).map(f"{ip}/{{}}".format))
    | st.ip_addresses(v=6).flatmap(lambda ip: st.integers(0, 128).map(f"{ip}/{{}}".format)),
    "bit varying": st.text("01", max_size=70),
    "int4range": _bounds.map(_range) | st.just("empty"),
    "text[]": _array(some_texts),
    "g_mood": st.sampled_from(LABELS),
    "g_pair": st.tuples(_signed(9) | st.none(), some_texts, _array(some_texts) | st.none()),
}
COLUMNS = [f"c{number}" for number in range(len(TYPES))]


def _sometimes_null(values: Values) -> Values:
    return st.tuples(st.integers(0, 7), values).map(lambda drawn: drawn[1] if drawn[0] else None)


rows = st.tuples(*map(_sometimes_null, TYPES.values()))


class GeneratedTables(CopiedTables):
    """Each example has two tables of its own: one with a key, and one without."""

    def __init__(self, pipeline: PipelineUnderTest, target_url: str, threads: Threads) -> None:
        super().__init__(pipeline, target_url, threads)
        self.spark = threads
        self._numbers = count(1)

    def create(self) -> tuple[str, str]:
        number = next(self._numbers)
        keyed, full = f"g_{number}", f"g_{number}_full"
        columns = ", ".join(map("{} {}".format, COLUMNS, TYPES))
        text = COLUMNS[list(TYPES).index(LONG)]
        self.pipeline.execute(
            f"CREATE TABLE {keyed} (id int PRIMARY KEY, {columns})",
            f"CREATE TABLE {full} ({columns})",
            f"ALTER TABLE {full} REPLICA IDENTITY FULL",
            # Updates that leave a long text as it is do not send it.
            *(f"ALTER TABLE {name} ALTER {text} SET STORAGE EXTERNAL" for name in (keyed, full)),
        )
        return keyed, full

    def insert(self, tables: tuple[str, str], rows: Sequence[Row], first: int) -> None:
        keyed, full = tables
        values = ", ".join("repeat(%s, 1000)" if t == LONG else f"%s::{t}" for t in TYPES)
        numbered = [(number, *row) for number, row in enumerate(rows, start=first)]
        with psycopg.connect(self.pipeline.url) as conn, conn.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {keyed} VALUES (%s, {values})".encode(), numbered)
            # Twice: what tells two of them apart is nothing at all.
            cursor.executemany(f"INSERT INTO {full} VALUES ({values})".encode(), [*rows, *rows])

    def change(self, tables: tuple[str, str], half: int) -> None:
        """Rows of all kinds are changed: those that were copied, and those that came after."""
        keyed, full = tables
        taken = ", ".join(f"{column} = s.{column}" for column in COLUMNS)
        first = f"ARRAY(SELECT ctid FROM {full} ORDER BY ctid LIMIT 3)"
        last = f"(SELECT * FROM {full} ORDER BY ctid DESC LIMIT 1)"
        self.pipeline.execute(
            f"UPDATE {keyed} t SET {taken} FROM {keyed} s WHERE t.id % 3 = 0 AND s.id = t.id - 1",
            f"UPDATE {keyed} SET {COLUMNS[0]} = 7 WHERE id % 3 = 1",
            f"DELETE FROM {keyed} WHERE id IN (1, {half + 1})",
            f"UPDATE {keyed} SET id = id + 1000 WHERE id % 2 = 0",
            f"UPDATE {full} t SET {taken} FROM {last} s WHERE t.ctid = ANY ({first})",
            f"DELETE FROM {full} WHERE ctid = ANY ({first})",
        )


@pytest.fixture
def generated(pipeline: PipelineUnderTest, target_url: str, threads: Threads) -> GeneratedTables:
    generated = GeneratedTables(pipeline, target_url, threads)
    generated.configure()
    pipeline.execute(*CREATE_TYPES)
    return generated


# Not shrunk: that would take runs of the pipeline for each try.
@settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
# Unique, so that the simplest example of all, the same row again and again, is none.
@given(st.lists(rows, min_size=8, max_size=12, unique_by=lambda row: row[:3]))
def test_generated_values_arrive_as_they_are(generated: GeneratedTables, drawn: list[Row]) -> None:
    half = len(drawn) // 2
    tables = generated.create()
    generated.insert(tables, drawn[:half], first=1)
    generated.run_until_caught_up()
    generated.insert(tables, drawn[half:], first=half + 1)
    generated.change(tables, half)
    pipeline = generated.pipeline
    # It runs the pipeline up to now.
    report = verify(
        pipeline.config, pipeline.file, make_engine=engine_on(generated.spark), wait=120
    )
    expected = {tables[0]: len(drawn) - 2, tables[1]: 2 * len(drawn) - 3}
    assert expect_same_rows(pipeline.url, generated.target_url, tables) == sum(expected.values())
    assert report.equal, report
    compared = {table.name: table.source_rows for table in report.tables}
    assert expected == {name: compared[f"public.{name}"] for name in tables}
