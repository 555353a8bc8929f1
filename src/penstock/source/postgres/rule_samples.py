"""Rows and remarks of the source that `penstock transform preview` and `suggest` look at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from penstock.config.models import PipelineConfig
from penstock.model.lsn import NOTHING
from penstock.model.table_definition import TableDefinition
from penstock.model.table_rows import TableRows
from penstock.model.value_settings import VALUE_SETTINGS
from penstock.source.postgres.connect import connect
from penstock.source.postgres.snapshot.relations import read_relations
from penstock.source.postgres.source_errors import source_errors
from penstock.transform.anonymizer_functions import STEADY, UNSTEADY
from penstock.transform.suggestions import ColumnHints

_REMARKS = """
SELECT a.attname,
       coalesce((SELECT l.label FROM pg_seclabel l
                  WHERE l.objoid = a.attrelid AND l.classoid = 'pg_class'::regclass
                    AND l.objsubid = a.attnum ORDER BY l.provider LIMIT 1), ''),
       coalesce(col_description(a.attrelid, a.attnum), '')
  FROM pg_attribute a
 WHERE a.attrelid = %s::oid AND a.attnum > 0 AND NOT a.attisdropped
"""
_FUNCTIONS = """
SELECT p.proname, bool_or(p.provolatile = 'v')
  FROM pg_extension e
  JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
   AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
  JOIN pg_proc p ON p.oid = d.objid
 WHERE e.extname = 'anon' AND p.prokind = 'f' AND NOT p.proretset
 GROUP BY p.proname
"""


def sampled_rows(
    config: PipelineConfig, tables: Sequence[TableDefinition], count: int
) -> Iterator[TableRows]:
    """Some rows of each table, as texts. Raises SourceError."""
    with connect(config.source.url, application_name=f"penstock {config.name} preview") as conn:
        where = config.source.copy_rows.conditions if config.source.copy_rows else {}
        layouts = read_relations(conn, tables, (), where).found
        with source_errors("reading some rows"):
            for setting in VALUE_SETTINGS:
                conn.execute(setting.encode())
            for table in tables:
                if table.oid in layouts:
                    yield _rows(conn, layouts[table.oid].table, count)


def _rows(conn: psycopg.Connection[Any], table: Any, count: int) -> TableRows:
    names = [sql.SQL("{}::text").format(sql.Identifier(column.name)) for column in table.columns]
    query = sql.SQL("SELECT {} FROM {} LIMIT {}").format(
        sql.SQL(", ").join(names), sql.Identifier(table.schema, table.name), sql.Literal(count)
    )
    found = conn.execute(query).fetchall()
    columns = tuple(
        pa.array([row[place] for row in found], pa.string()) for place in range(len(names))
    )
    return TableRows(table, columns, len(found), NOTHING)


def column_hints(
    config: PipelineConfig, tables: Sequence[TableDefinition], count: int
) -> dict[int, dict[str, ColumnHints]]:
    """Samples, security labels and comments, by table and column. Raises SourceError."""
    samples = {rows.table.oid: rows for rows in sampled_rows(config, tables, count)}
    hints: dict[int, dict[str, ColumnHints]] = {}
    with (
        connect(config.source.url, application_name=f"penstock {config.name} suggest") as conn,
        source_errors("reading labels and comments"),
    ):
        functions = {
            name: (is_volatile and name not in STEADY) or name in UNSTEADY
            for name, is_volatile in conn.execute(_FUNCTIONS)
        }
        for table in tables:
            rows = samples.get(table.oid)
            values = (
                {}
                if rows is None
                else {
                    column.name: [v for v in texts.to_pylist() if v]
                    for column, texts in zip(rows.table.columns, rows.columns, strict=True)
                }
            )
            hints[table.oid] = {
                name: ColumnHints(values.get(name, ()), label, comment, functions)
                for name, label, comment in conn.execute(_REMARKS, [table.oid])
            }
    return hints
