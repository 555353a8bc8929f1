"""Sequences at the destination, which replicated values pass without drawing from them."""

from __future__ import annotations

from collections.abc import Iterable

from psycopg import sql

from penstock.config.table_patterns import split_name
from penstock.destination.postgres.sessions.session import Connection, destination_errors
from penstock.destination.postgres.targets.target_table import TargetTable

_SEQUENCES_A_STATEMENT = 50

# Only where the greatest value is the end of an index: anything else would read the whole table.
_ADVANCEABLE = """
SELECT wanted.schema, wanted.name, wanted.column, wanted.sequence, s.seqmax
  FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[])
       AS wanted (schema, name, "column", sequence)
  JOIN pg_namespace n ON n.nspname = wanted.schema
  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = wanted.column
                     AND a.atttypid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype)
  JOIN pg_sequence s ON s.seqrelid = to_regclass(wanted.sequence) AND s.seqincrement > 0
 WHERE has_sequence_privilege(s.seqrelid, 'SELECT') AND has_sequence_privilege(s.seqrelid, 'UPDATE')
   AND EXISTS (SELECT FROM pg_index i
                JOIN pg_class x ON x.oid = i.indexrelid
                JOIN pg_am m ON m.oid = x.relam AND m.amname = 'btree'
               WHERE i.indrelid = c.oid AND i.indkey[0] = a.attnum AND i.indisvalid
                 AND i.indpred IS NULL)
"""


def advance_sequences(conn: Connection, targets: Iterable[TargetTable]) -> None:
    """Move sequences past the values that were replicated, so that local inserts find free ones.

    A column that leads no index is left alone, as is a sequence that the role may not set.
    """
    wanted = [(t.schema, t.name, *pair) for t in targets for pair in t.sequences]
    if not wanted:
        return
    with destination_errors("advancing sequences"):
        found = conn.execute(_ADVANCEABLE, [list(part) for part in zip(*wanted, strict=True)])
        each = [_advance(*row) for row in found]
        for start in range(0, len(each), _SEQUENCES_A_STATEMENT):
            chunk = each[start : start + _SEQUENCES_A_STATEMENT]
            conn.execute(sql.SQL(" UNION ALL ").join(chunk))


def _advance(schema: str, table: str, column: str, sequence: str, limit: int) -> sql.Composed:
    return sql.SQL(
        "SELECT setval({sequence}::regclass, least(top, {limit})) FROM"
        " (SELECT max({column}) AS top FROM {table}) AS used,"
        " (SELECT last_value, is_called FROM {relation}) AS drawn"
        " WHERE top > last_value OR (top = last_value AND NOT is_called)"
    ).format(
        sequence=sql.Literal(sequence),
        relation=sql.Identifier(*split_name(sequence)),
        limit=sql.Literal(limit),
        column=sql.Identifier(column),
        table=sql.Identifier(schema, table),
    )
