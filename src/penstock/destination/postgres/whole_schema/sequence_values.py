"""Sequences at the destination that follow those of the source."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from penstock.destination.postgres.sessions.session import Connection
from penstock.source.schema_dump import SequenceValue

_SEQUENCES_A_STATEMENT = 100

_SETTABLE = """
SELECT n.nspname::text, c.relname::text, s.seqincrement > 0
  FROM unnest(%s::text[], %s::text[]) AS wanted (schema, name)
  JOIN pg_namespace n ON n.nspname = wanted.schema
  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name AND c.relkind = 'S'
  JOIN pg_sequence s ON s.seqrelid = c.oid
 WHERE CASE WHEN c.relkind = 'S'
            THEN has_sequence_privilege(c.oid, 'SELECT') AND has_sequence_privilege(c.oid, 'UPDATE')
       END
"""


def set_sequences(conn: Connection, values: Sequence[SequenceValue]) -> None:
    """Move them to where the source's stand. One that stands further on was drawn from here: it
    stays, and so does one that is missing or may not be set.
    """
    wanted = {(value.schema, value.name): value for value in values}
    found = conn.execute(
        _SETTABLE, [[schema for schema, _ in wanted], [name for _, name in wanted]]
    )
    each = [_advance(wanted[schema, name], rises=rises) for schema, name, rises in found]
    for start in range(0, len(each), _SEQUENCES_A_STATEMENT):
        some = each[start : start + _SEQUENCES_A_STATEMENT]
        conn.execute(sql.SQL(" UNION ALL ").join(some), prepare=False)


def _advance(value: SequenceValue, *, rises: bool) -> sql.Composed:
    relation = sql.Identifier(value.schema, value.name)
    return sql.SQL(
        "SELECT setval({name}::regclass, {value}, {called}) FROM {relation} WHERE"
        " last_value {before} {value} OR (last_value = {value} AND {called} AND NOT is_called)"
    ).format(
        name=sql.Literal(relation.as_string(None)),
        value=sql.Literal(value.last_value),
        called=sql.Literal(value.is_called),
        relation=relation,
        before=sql.SQL("<" if rises else ">"),
    )
