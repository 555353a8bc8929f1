"""What rules make of the rows that a source holds: what a destination is to hold."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import psycopg
from psycopg import sql

from penstock.model.value_settings import VALUE_SETTINGS
from penstock.pipeline.run.filtering import pipeline_transform
from penstock.source.postgres.preflight.rule_checks import followed_tables
from penstock.source.postgres.rule_samples import sampled_rows
from tests.fix_pipeline import PipelineUnderTest

Rows = Counter[tuple[str | None, ...]]


def expected_rows(pipeline: PipelineUnderTest) -> dict[str, Rows]:
    """By table, the rules applied to what the source holds."""
    config = pipeline.config
    transform = pipeline_transform(config)
    assert transform is not None
    return {
        rows.table.name: Counter(zip(*map(_texts, transform.apply_rows(rows).columns), strict=True))
        for rows in sampled_rows(config, followed_tables(config), 10**6)
    }


def _texts(column: Any) -> list[str | None]:
    return [_normal(text) for text in column.to_pylist()]


def _normal(text: str | None) -> str | None:
    """JSON without the blanks of whoever wrote it."""
    if text is None or not text.startswith('{"'):
        return text
    return json.dumps(json.loads(text, parse_float=str), sort_keys=True)


def rows_at(url: str, tables: dict[str, Rows]) -> dict[str, Rows]:
    """By table, what a database holds."""
    found: dict[str, Rows] = {}
    with psycopg.connect(url, autocommit=True) as conn:
        for setting in VALUE_SETTINGS:
            conn.execute(setting.encode())
        for name in tables:
            names = conn.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
                " AND NOT attisdropped ORDER BY attnum",
                [f"public.{name}"],
            ).fetchall()
            columns = sql.SQL(", ").join(
                sql.SQL("{}::text").format(sql.Identifier(column)) for (column,) in names
            )
            query = sql.SQL("SELECT {} FROM {}").format(columns, sql.Identifier("public", name))
            found[name] = Counter(tuple(map(_normal, row)) for row in conn.execute(query))
    return found
