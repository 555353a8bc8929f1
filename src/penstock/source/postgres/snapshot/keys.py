"""Rows by their keys, for changes that did not say all of a row."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from psycopg import sql

from penstock.config.connection_url import ConnectionUrl
from penstock.model.lsn import Frontier
from penstock.model.table_definition import TableDefinition
from penstock.model.table_rows import TableRows
from penstock.source.postgres.snapshot.arrow_columns import as_text
from penstock.source.postgres.snapshot.reading import reading, written
from penstock.source.postgres.snapshot.relations import CopyRelations
from penstock.source.postgres.snapshot.source_session import ArrowSession


def read_keys(
    url: ConnectionUrl,
    source: CopyRelations,
    definition: TableDefinition,
    keys: Sequence[tuple[str, ...]],
    snapshot_name: str,
    snapshot: Frontier,
) -> TableRows:
    """The rows that have these keys under an exported snapshot, in no order. Keys are texts in the
    order of the table's merge key; some thousand at a time are few.

    The stream's row filter counts, the copy's ``where`` does not: these are rows of the stream.
    """
    table = source.table
    names = definition.merge_key
    types = dict(zip(source.columns, source.column_types, strict=True))
    casts = sql.SQL(", ").join(
        sql.SQL("{}::{}").format(sql.Identifier(f"k{place}"), written(types[name]))
        for place, name in enumerate(names)
    )
    values = sql.SQL(", ").join(
        sql.SQL("{}::pg_catalog.text[]").format(sql.Literal(list(texts)))
        for texts in zip(*keys, strict=True)
    )
    query = sql.SQL(
        "SELECT {} FROM {} {} WHERE ({}) IN (SELECT {} FROM unnest({}) AS k ({}))"
    ).format(
        sql.SQL(", ").join(as_text(column) for column in table.columns),
        sql.SQL("" if source.is_partitioned else "ONLY"),
        sql.Identifier(table.schema, table.name),
        sql.SQL(", ").join(map(sql.Identifier, names)),
        casts,
        values,
        sql.SQL(", ").join(sql.Identifier(f"k{place}") for place in range(len(names))),
    )
    if source.row_filter is not None:
        query += sql.SQL(" AND ({})").format(written(source.row_filter))
    relation = sql.Identifier(table.schema, table.name)
    text_columns = pa.schema([(str(place), pa.string()) for place in range(len(table.columns))])
    with reading(ArrowSession, url, table, relation, snapshot_name, lambda _: None) as session:
        batches = [
            pa.RecordBatch.from_arrays(batch.columns, schema=text_columns)
            for batch in session.batches(query.as_string(None))
        ]
    rows = pa.Table.from_batches(batches, text_columns).combine_chunks()
    columns = tuple(
        column.chunk(0) if column.num_chunks else pa.array([], pa.string())
        for column in rows.columns
    )
    return TableRows(table, columns, rows.num_rows, snapshot)
