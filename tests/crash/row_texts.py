"""The plainest comparison of two databases there is: all rows as text, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import psycopg
from psycopg import sql

from penstock.model.value_settings import VALUE_SETTINGS

_SHOWN = 5
_LONGEST = 300


def expect_same_rows(
    source_url: str, target_url: str, tables: Sequence[str], *, by_name: bool = False
) -> int:
    """Fail and show rows that differ, unless each table holds the same rows as often on both sides.

    Nothing of Penstock's own comparison is used here. With ``by_name`` the order of columns does
    not matter. Returns how many rows there are.
    """
    count = 0
    problems = []
    for table in tables:
        source = row_texts(source_url, table, by_name=by_name)
        target = row_texts(target_url, table, by_name=by_name)
        count += source.total()
        problems += [
            f"{table}: {times} times in the source only: {text[:_LONGEST]}"
            for text, times in (source - target).most_common(_SHOWN)
        ]
        problems += [
            f"{table}: {times} times in the destination only: {text[:_LONGEST]}"
            for text, times in (target - source).most_common(_SHOWN)
        ]
    assert not problems, "source and destination differ:\n" + "\n".join(problems)
    return count


def row_texts(url: str, table: str, *, by_name: bool = False) -> Counter[str]:
    """Every row of a table of the schema public as Postgres prints a whole row."""
    with psycopg.connect(url) as conn:
        for setting in VALUE_SETTINGS:
            conn.execute(setting)
        columns: sql.Composable = sql.SQL("t.*")
        if by_name:
            names = conn.execute(
                "SELECT attname::text FROM pg_attribute WHERE attrelid = %s::regclass"
                " AND attnum > 0 AND NOT attisdropped ORDER BY 1",
                [f'public."{table}"'],
            )
            columns = sql.SQL(", ").join(sql.Identifier("t", name) for (name,) in names)
        found = conn.execute(
            sql.SQL("SELECT ROW({})::text FROM {} t").format(
                columns, sql.Identifier("public", table)
            )
        )
        return Counter(text for (text,) in found)
