"""Our messages are pg-bifrost's: the same SQL, compared with what its own code made of it.

Its messages are in tests/golden/bifrost. Every difference has a name in docs/bifrost_format.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock.decode.changes import ChangeSet
from penstock.destination.encode.bifrost.format import BifrostFormat
from penstock.destination.encode.bifrost.options import BifrostOptions
from penstock.destination.encode.sql_names import quoted_name
from penstock.model.table_definition import TableDefinition
from penstock.transform.identity import identity_of
from tests.captured_sql import capture, definitions, statements
from tests.fix_pipeline import PipelineUnderTest

GOLDEN = Path(__file__).parents[1] / "golden" / "bifrost"

OTHER_VALUES = {
    ("row_changes", 9, "name"): ("null-texts", "old", {"q": "true", "t": "text", "v": "null"}),
    ("types", 2, "ak"): ("bits", "new", {"q": "true", "t": "bit", "v": "101"}),
}
"""By file, message and column: the name of the reason, the image and what we have there."""

BY_RUN = ("time", "time_ms", "txn", "lsn")
FULL = ("public.products", "public.whole")
"""Tables whose old rows come whole."""
NULL = ("false", "null")

Pairs = list[tuple[str, Any]]
"""A JSON object whose order counts."""


@pytest.mark.parametrize("name", ["row_changes", "toast", "types", "names", "truncate"])
def test_the_messages_are_bifrosts(pipeline: PipelineUnderTest, name: str) -> None:
    before, streamed = statements(GOLDEN / "sql" / f"{name}.sql")
    changes, found = capture(pipeline, before, streamed, definitions)
    ours = [line for part in changes for line in _lines(_format(found), part)]
    assert [_parsed(line) for line in ours] == [
        _expected(name, number, line) for number, line in enumerate(_golden(name))
    ]


@pytest.mark.parametrize("name", ["row_changes", "toast"])
def test_without_old_values(pipeline: PipelineUnderTest, name: str) -> None:
    before, streamed = statements(GOLDEN / "sql" / f"{name}.sql")
    changes, found = capture(pipeline, before, streamed, definitions)
    encoder = _format(found, old_values=False)
    ours = [line for part in changes for line in _lines(encoder, part)]
    assert [_parsed(line) for line in ours] == [
        _parsed(line) for line in _golden(f"{name}_without_old")
    ]


def test_names_are_quoted_as_postgres_does_it(database: str) -> None:
    odd = ["a", "_", "a1", "1a", "a$", "A", "é", "a b", 'a"b', "", "old-key"]
    with psycopg.connect(database) as conn:
        words = [word for (word,) in conn.execute("SELECT word FROM pg_get_keywords()").fetchall()]
        for name in [*odd, *words]:
            row = conn.execute("SELECT quote_ident(%s)", [name]).fetchone()
            assert row is not None
            assert quoted_name(name) == row[0]


def test_every_difference_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "bifrost_format.md").read_text()
    names = {"old-nulls", "truncate", "run", *(name for name, _, _ in OTHER_VALUES.values())}
    assert names <= set(re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE))


def _format(found: dict[int, TableDefinition], **options: Any) -> BifrostFormat:
    keys = {oid: identity_of(table) for oid, table in found.items()}
    return BifrostFormat(BifrostOptions(**options), found, keys)


def _lines(encoder: BifrostFormat, part: ChangeSet) -> list[str]:
    """All messages in the order of their changes."""
    found: dict[tuple[int, int, int], str] = {}
    for changes in part.tables:
        made = encoder.changes(changes)
        for row, value in zip(made.row.tolist(), made.value.to_pylist(), strict=True):
            found[int(changes.commit_lsn[row]), int(changes.ordinal[row]), 0] = value
    for event in part.truncates:
        at = event.stamp.position
        for number, made in enumerate(encoder.truncate(event)):
            (found[at.commit_lsn, at.ordinal, number],) = made.value.to_pylist()
    return [found[place] for place in sorted(found)]


def _golden(name: str) -> Iterator[str]:
    """TRUNCATE of several tables is one message of ours for each: ``truncate``."""
    for line in (GOLDEN / "messages" / f"{name}.jsonl").read_text().splitlines():
        message = json.loads(line)
        for table in message["table"].split(", "):
            yield line.replace(json.dumps(message["table"]), json.dumps(table))


def _parsed(line: str) -> Pairs:
    """With the order of all keys, without what differs by run."""
    pairs: Pairs = json.loads(line, object_pairs_hook=list)
    return [(key, None if key in BY_RUN else value) for key, value in pairs]


def _expected(name: str, number: int, line: str) -> Pairs:
    """What pg-bifrost wrote, with the named differences."""
    message = json.loads(line)
    is_partial = message["operation"] == "UPDATE" and message["table"] not in FULL
    for column, value in message["columns"].items():
        if is_partial and (value.get("old", {}).get("q"), value.get("old", {}).get("v")) == NULL:
            del value["old"]  # old-nulls
        if (other := OTHER_VALUES.get((name, number, column))) is not None:
            value[other[1]] = other[2]
    return _parsed(json.dumps(message))
