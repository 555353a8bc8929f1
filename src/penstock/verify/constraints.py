"""Constraints of the target tables that nobody enforces while changes are applied.

Under session_replication_role = replica the server runs no trigger of its own, so it checks neither
foreign keys nor deferrable unique constraints. What was declared NOT VALID was never checked for
all rows. Everything else (unique indexes, CHECK, NOT NULL) the server enforces at every write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from penstock.model.table_name import TableName
from penstock.verify.checksums import texts
from penstock.verify.report import ConstraintResult
from penstock.verify.snapshot import ComparedSnapshot, SnapshotSessions
from penstock.verify.table_pair import TablePair

_SHOWN = 5


@dataclass(frozen=True)
class _Check:
    """A constraint, and the query that gives the values that violate it, a text array a row.

    Without a query, ``result`` says why it is not looked at.
    """

    result: ConstraintResult
    query: sql.Composed | None


def check_constraints(
    snapshot: ComparedSnapshot, pairs: Sequence[TablePair], *, parallel: int = 1
) -> list[ConstraintResult]:
    """Every such constraint, with what violates it, as of the target's ``snapshot``."""
    with snapshot.guard("looking for constraints"), snapshot.asked() as conn:
        checks = _find_checks(conn, pairs)
    with SnapshotSessions(snapshot, parallel) as sessions:
        futures = [sessions.submit(partial(_run, check)) for check in checks]
        results = []
        for check, future in zip(checks, futures, strict=True):
            with snapshot.guard(f"checking {check.result.name} of {check.result.table}"):
                results.append(future.result())
        return results


def _find_checks(conn: psycopg.Connection[Any], pairs: Sequence[TablePair]) -> list[_Check]:
    """Everything to be checked at the target tables, and at tables that refer to them."""
    schemas = [pair.target.schema for pair in pairs]
    names = [pair.target.name for pair in pairs]
    targets = [oid for (oid,) in conn.execute(_TARGETS, [schemas, names])]
    checks = [_unique(*row) for row in conn.execute(_UNIQUE, [targets])]
    found = conn.execute(_FOREIGN_KEYS, {"targets": targets})
    checks += [_foreign_key(_ForeignKey(*row)) for row in found]
    rows = {pair.target: texts(pair.key or pair.columns) for pair in pairs}
    for schema, table, *rest in conn.execute(_PER_ROW, [targets]):
        name = TableName(schema, table)
        checks.append(_per_row(name, rows[name], *rest))
    return checks


def _run(check: _Check, conn: psycopg.Connection[Any]) -> ConstraintResult:
    """The check's result in this session's snapshot."""
    if check.query is None:
        return check.result
    limited = check.query + sql.SQL(" LIMIT {}").format(sql.Literal(_SHOWN + 1))
    found = [_row_text(values) for (values,) in conn.execute(limited)]
    result = check.result
    return ConstraintResult(
        result.table, result.name, result.kind, tuple(found[:_SHOWN]), len(found) > _SHOWN
    )


def _row_text(values: Sequence[str | None]) -> str:
    return "(" + ", ".join("null" if value is None else value for value in values) + ")"


_TARGETS = """
SELECT c.oid::bigint
  FROM unnest(%s::text[], %s::text[]) AS w (schema, name)
  JOIN pg_namespace n ON n.nspname = w.schema
  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
"""

# to_jsonb in these: columns that not every version has.
# A unique index that is not valid (a CREATE INDEX CONCURRENTLY that failed) missed older rows.
_UNIQUE = """
SELECT n.nspname::text, c.relname::text, c.relkind::text, x.relname::text, i.indisexclusion,
       ARRAY(SELECT pg_get_indexdef(i.indexrelid, place, false)
               FROM generate_series(1, i.indnkeyatts) AS place),
       pg_get_expr(i.indpred, i.indrelid),
       coalesce((to_jsonb(i) ->> 'indnullsnotdistinct')::bool, false)
  FROM pg_index i
  JOIN pg_class c ON c.oid = i.indrelid
  JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_class x ON x.oid = i.indexrelid
 WHERE i.indrelid = ANY(%s::oid[])
   AND (i.indisunique OR i.indisexclusion) AND NOT (i.indimmediate AND i.indisvalid)
 ORDER BY 1, 2, 4
"""

_FOREIGN_KEYS = """
SELECT cn.nspname::text, c.relname::text, c.relkind::text, pn.nspname::text, p.relname::text,
       p.relkind::text, k.conname::text, k.confmatchtype = 'f',
       coalesce((to_jsonb(k) ->> 'conperiod')::bool, false),
       ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY AS u (attnum, place)
               JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.attnum
              ORDER BY u.place),
       ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY AS u (attnum, place)
               JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.attnum
              ORDER BY u.place),
       ARRAY(SELECT format('OPERATOR(%%I.%%s)', n.nspname, o.oprname)
               FROM unnest(k.conpfeqop) WITH ORDINALITY AS u (oid, place)
               JOIN pg_operator o ON o.oid = u.oid
               JOIN pg_namespace n ON n.oid = o.oprnamespace
              ORDER BY u.place)
  FROM pg_constraint k
  JOIN pg_class c ON c.oid = k.conrelid
  JOIN pg_namespace cn ON cn.oid = c.relnamespace
  JOIN pg_class p ON p.oid = k.confrelid
  JOIN pg_namespace pn ON pn.oid = p.relnamespace
 WHERE k.contype = 'f' AND k.conparentid = 0
   AND coalesce((to_jsonb(k) ->> 'conenforced')::bool, true)
   AND (k.conrelid = ANY(%(targets)s::oid[]) OR k.confrelid = ANY(%(targets)s::oid[]))
 ORDER BY 1, 2, 7
"""

_PER_ROW = """
SELECT n.nspname::text, c.relname::text, c.relkind::text, k.conname::text,
       pg_get_expr(k.conbin, k.conrelid),
       (SELECT a.attname::text FROM pg_attribute a
         WHERE k.contype = 'n' AND a.attrelid = k.conrelid AND a.attnum = k.conkey[1])
  FROM pg_constraint k
  JOIN pg_class c ON c.oid = k.conrelid
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE k.conrelid = ANY(%s::oid[]) AND k.contype IN ('c', 'n') AND NOT k.convalidated
   AND coalesce((to_jsonb(k) ->> 'conenforced')::bool, true)
 ORDER BY 1, 2, 4
"""


def _table(schema: str, name: str, kind: str) -> sql.Composed:
    only = sql.SQL("" if kind == "p" else "ONLY ")
    return sql.Composed([only, sql.Identifier(schema, name)])


def _unique(
    schema: str,
    table: str,
    kind: str,
    index: str,
    is_exclusion: bool,
    columns: list[str],
    predicate: str | None,
    nulls_are_equal: bool,
) -> _Check:
    name = f"{schema}.{table}"
    if is_exclusion:
        why = "deferrable constraints over ranges are not checked"
        return _Check(ConstraintResult(name, index, "exclusion", unchecked=why), None)
    # Columns and predicate as the server itself writes them.
    keys = [sql.SQL("({})").format(sql.SQL(column)) for column in columns]
    conditions = [] if predicate is None else [sql.SQL("({})").format(sql.SQL(predicate))]
    if not nulls_are_equal:
        conditions += [sql.SQL("{} IS NOT NULL").format(key) for key in keys]
    query = sql.SQL("SELECT ARRAY[{}] FROM {} WHERE {} GROUP BY {} HAVING count(*) > 1").format(
        sql.SQL(", ").join(sql.SQL("{}::text").format(key) for key in keys),
        _table(schema, table, kind),
        sql.SQL(" AND ").join(conditions) if conditions else sql.SQL("true"),
        sql.SQL(", ").join(keys),
    )
    return _Check(ConstraintResult(name, index, "unique"), query)


class _ForeignKey(NamedTuple):
    """A row of ``_FOREIGN_KEYS``."""

    schema: str
    table: str
    kind: str
    parent_schema: str
    parent: str
    parent_kind: str
    constraint: str
    match_full: bool
    with_period: bool
    columns: list[str]
    parent_columns: list[str]
    operators: list[str]


def _foreign_key(key: _ForeignKey) -> _Check:
    name = f"{key.schema}.{key.table}"
    if key.with_period:
        why = "foreign keys with PERIOD are not checked"
        return _Check(ConstraintResult(name, key.constraint, "foreign key", unchecked=why), None)
    own = [sql.Identifier("child", column) for column in key.columns]
    refers = sql.SQL(" AND ").join(
        sql.SQL("{} {} {}").format(sql.Identifier("parent", other), sql.SQL(operator), column)
        for column, other, operator in zip(own, key.parent_columns, key.operators, strict=True)
    )
    nulls = sql.SQL(", ").join(own)
    # A row comparison with null: all of them, or none of them. Partly null is fine by MATCH SIMPLE.
    checked = (
        sql.SQL("NOT (ROW({}) IS NULL)") if key.match_full else sql.SQL("ROW({}) IS NOT NULL")
    ).format(nulls)
    query = sql.SQL(
        "SELECT DISTINCT ARRAY[{}] FROM {} AS child WHERE {}"
        " AND NOT EXISTS (SELECT FROM {} AS parent WHERE {})"
    ).format(
        sql.SQL(", ").join(sql.SQL("{}::text").format(column) for column in own),
        _table(key.schema, key.table, key.kind),
        checked,
        _table(key.parent_schema, key.parent, key.parent_kind),
        refers,
    )
    return _Check(ConstraintResult(name, key.constraint, "foreign key"), query)


def _per_row(
    table: TableName,
    row: sql.Composed,
    kind: str,
    constraint: str,
    expression: str | None,
    not_null_column: str | None,
) -> _Check:
    if not_null_column is None:
        result = ConstraintResult(str(table), constraint, "check")
        violated = sql.SQL("({}) IS FALSE").format(sql.SQL(expression or "true"))
    else:
        result = ConstraintResult(str(table), constraint, "not null")
        violated = sql.SQL("{} IS NULL").format(sql.Identifier(not_null_column))
    query = sql.SQL("SELECT {} FROM {} WHERE {}").format(row, _table(*table, kind), violated)
    return _Check(result, query)
