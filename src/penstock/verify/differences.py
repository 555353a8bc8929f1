"""Which rows of chunks with different checksums differ, and in what."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from penstock.verify.checksums import ComparedRelation, chunk_of, digest, text_of, texts
from penstock.verify.report import RowDifference
from penstock.verify.table_pair import TablePair

_SHOWN_TEXT = 200

Key = tuple[str, ...]
Row = tuple[Key, str]
"""A row's key and its md5."""
Values = tuple[str | None, ...]


@dataclass(frozen=True)
class Unmatched:
    """Rows of one side without an equal one on the other, with how many of each there are."""

    source: Counter[Row]
    target: Counter[Row]

    @classmethod
    def between(cls, source: Counter[Row], target: Counter[Row]) -> Unmatched:
        return cls(source - target, target - source)

    @property
    def keys(self) -> list[Key]:
        return sorted({key for key, _ in self.source} | {key for key, _ in self.target})

    def count(self, pair: TablePair) -> int:
        """How many rows differ: by their key, or one by one where there is none."""
        return len(self.keys) if pair.key else self.source.total() + self.target.total()


def read_rows(
    conn: psycopg.Connection[Any],
    relation: ComparedRelation,
    pair: TablePair,
    digits: int,
    chunks: Sequence[str],
) -> Counter[Row]:
    """Key and md5 of every row of some chunks."""
    query = sql.SQL(
        "SELECT k, h FROM (SELECT {} AS k, {} AS h FROM {} OFFSET 0) AS hashed WHERE {} = ANY({})"
    ).format(
        texts(pair.key),
        digest(pair.columns),
        relation.from_clause,
        chunk_of(digits),
        sql.Literal(list(chunks)),
    )
    return Counter((tuple(key), md5) for key, md5 in conn.execute(query))


def read_values(
    conn: psycopg.Connection[Any], relation: ComparedRelation, pair: TablePair, keys: Iterable[Key]
) -> dict[Key, list[Values]]:
    """All values of the rows with these keys. More than one row a key is possible, though wrong."""
    # By text, under a collation that tells all texts apart: so they were read.
    wanted = sql.SQL(" OR ").join(
        sql.SQL("({})").format(
            sql.SQL(" AND ").join(
                sql.SQL('({}) COLLATE "C" = {}').format(text_of(column), sql.Literal(value))
                for column, value in zip(pair.key, key, strict=True)
            )
        )
        for key in keys
    )
    query = sql.SQL("SELECT {}, {} FROM {} WHERE {}").format(
        texts(pair.key), texts(pair.columns), relation.from_clause, wanted
    )
    found: dict[Key, list[Values]] = defaultdict(list)
    for key, values in conn.execute(query):
        found[tuple(key)].append(tuple(values))
    return found


def keyed_difference(
    pair: TablePair, key: Key, source: Sequence[Values], target: Sequence[Values]
) -> RowDifference:
    """What is wrong with one key, from all rows that the sides have under it."""
    row = ", ".join(
        f"{column}={_short(value)}" for column, value in zip(pair.key, key, strict=True)
    )
    if len(source) > len(target):
        return RowDifference("missing", row, count=len(source) - len(target))
    if len(target) > len(source):
        return RowDifference("extra", row, count=len(target) - len(source))
    columns = [
        column
        for number, column in enumerate(pair.columns)
        if Counter(values[number] for values in source)
        != Counter(values[number] for values in target)
    ]
    return RowDifference("different", row, tuple(columns))


def keyless_differences(unmatched: Unmatched, shown: int) -> list[tuple[RowDifference, str]]:
    """Some of the rows that differ, each with the md5 by which its values are found."""
    found = [
        *((RowDifference("missing", "", count=n), md5) for (_, md5), n in unmatched.source.items()),
        *((RowDifference("extra", "", count=n), md5) for (_, md5), n in unmatched.target.items()),
    ]
    return sorted(found, key=lambda item: (item[0].kind, item[1]))[:shown]


def read_texts(
    conn: psycopg.Connection[Any], relation: ComparedRelation, pair: TablePair, md5s: Sequence[str]
) -> dict[str, str]:
    """The values of the rows with these md5s, as one text each."""
    query = sql.SQL(
        "SELECT DISTINCT h, left(t, {}) FROM (SELECT {} AS h, {}::text AS t FROM {} OFFSET 0)"
        " AS hashed WHERE h = ANY({})"
    ).format(
        sql.Literal(_SHOWN_TEXT + 1),
        digest(pair.columns),
        texts(pair.columns),
        relation.from_clause,
        sql.Literal(list(md5s)),
    )
    return {md5: _short(text) for md5, text in conn.execute(query)}


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_TEXT else f"{text[:_SHOWN_TEXT]}…"
