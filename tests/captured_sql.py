"""What our own capture sees of a SQL file, for comparisons with golden messages.

A file has two parts: what stands above the line ``-- streamed`` is there before anyone captures,
what stands below it is streamed. A statement ends with a semicolon at the end of a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psycopg

from penstock.changelog import chain
from penstock.changelog.changelog import ChangeLog
from penstock.changelog.segment_run import read_runs
from penstock.decode.changes import ChangeSet, decode_changes
from penstock.model.table_definition import TableDefinition
from penstock.model.table_name import TableName
from penstock.source.postgres.catalogue.definitions import read_definitions
from tests.fix_pipeline import PipelineUnderTest

T = TypeVar("T")

_DIVIDER = "-- streamed\n"


def statements(file: Path) -> tuple[list[str], list[str]]:
    """Those that come before, and those that are streamed."""
    before, streamed = file.read_text().split(_DIVIDER)
    return _split(before), _split(streamed)


def _split(text: str) -> list[str]:
    found = (statement.strip() for statement in (text + "\n").split(";\n"))
    return [statement for statement in found if statement]


def capture(
    pipeline: PipelineUnderTest,
    before: Sequence[str],
    streamed: Sequence[str],
    look: Callable[[psycopg.Connection[Any]], T],
) -> tuple[tuple[ChangeSet, ...], T]:
    """The changes of the streamed statements, and what ``look`` finds behind them."""
    pipeline.execute(*before)
    pipeline.subscribe()
    with psycopg.connect(pipeline.url, autocommit=True) as conn:
        for statement in streamed:
            conn.execute(statement.encode())
        found = look(conn)
    pipeline.capture_all()
    return tuple(_decoded(pipeline.log)), found


def definitions(conn: psycopg.Connection[Any]) -> dict[int, TableDefinition]:
    """All tables of the schema public, by oid."""
    found = conn.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
        " AND relkind = 'r' ORDER BY relname"
    )
    names = [TableName("public", name) for (name,) in found.fetchall()]
    return {table.oid: table for table in read_definitions(conn, names, [])}


def _decoded(log: ChangeLog) -> Iterator[ChangeSet]:
    listing = log.list()
    assert listing.frontier is not None
    first, last = listing.segments[0].after, listing.frontier.commit_lsn
    for run in read_runs(log, chain.between(listing.segments, listing.sizes, first, last)):
        yield decode_changes(run.rows, run.tables, run.origins)
