"""Reading one chunk of a table from the source, under the snapshot of its copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

import pyarrow as pa
from psycopg import sql

from penstock.config.connection_url import ConnectionUrl
from penstock.model.table_rows import ChunkReader, TableRows
from penstock.model.table_schema import TableSchema
from penstock.source.copy_plan import Chunk
from penstock.source.postgres.snapshot.arrow_columns import (
    as_text,
    typed_batch,
    typed_columns,
    typed_schema,
)
from penstock.source.postgres.snapshot.reading import (
    ExportedSnapshot,
    is_held,
    reading,
    rewritten,
    snapshot_gone,
    written,
)
from penstock.source.postgres.snapshot.source_session import (
    ArrowSession,
    CopySession,
    ReadSession,
)

S = TypeVar("S", bound=ReadSession)


class SourceChunkReader(ChunkReader):
    """Connects when it is read; the session is kept for the next chunk that this process reads.

    ``where`` is the plan's. ``rows`` counts what was read, once all was. One that is left before
    its end closes its session.
    """

    def __init__(
        self,
        url: ConnectionUrl,
        table: TableSchema,
        chunk: Chunk,
        where: str | None,
        snapshot: ExportedSnapshot,
    ) -> None:
        self.table = table
        self.chunk = chunk.key
        self.snapshot = snapshot.at
        self.rows = 0
        self._url = url
        self._range = chunk
        self._where = where
        self._exported = snapshot
        self._relation = sql.Identifier(chunk.schema, chunk.name)

    def raw(self, *, binary: bool) -> Iterator[bytes]:
        names = [sql.Identifier(column.name) for column in self.table.columns]
        statement = sql.SQL("COPY ({}) TO STDOUT (FORMAT {})").format(
            self._select(names), sql.SQL("binary" if binary else "text")
        )
        with self._session(CopySession) as session:
            yield from session.copy(statement.as_string(None))
            self.rows = session.copied

    def texts(self) -> Iterator[TableRows]:
        columns = [as_text(column) for column in self.table.columns]
        for arrays, count in self._arrays(columns):
            yield TableRows(self.table, tuple(arrays), count, self.snapshot)

    def typed(self) -> Iterator[pa.RecordBatch]:
        """The columns of ``flat_table``, then ``_raw``: texts of values that they cannot hold."""
        schema, columns = typed_schema(self.table), typed_columns(self.table)
        expressions = [expression for column in columns for expression in column.expressions]
        for arrays, count in self._arrays(expressions):
            yield typed_batch(schema, columns, arrays, count)

    def _arrays(
        self, expressions: Sequence[sql.Composable]
    ) -> Iterator[tuple[Sequence[pa.Array], int]]:
        with self._session(ArrowSession) as session:
            if not expressions:
                # Arrow does not say how many rows a batch without columns has.
                query = sql.SQL("SELECT count(*) FROM ({}) AS rows").format(self._select([]))
                (self.rows,) = session.row(query.as_string(None))
                if self.rows:
                    yield [], self.rows
                return
            count = 0
            query = self._select(expressions)
            for batch in session.batches(query.as_string(None)):
                count += batch.num_rows
                yield batch.columns, batch.num_rows
            self.rows = count

    def _select(self, expressions: Sequence[sql.Composable]) -> sql.Composed:
        chunk = self._range
        # A range scan, and no condition that the server could not use for it.
        conditions = [sql.SQL("ctid >= '({},0)'::pg_catalog.tid").format(chunk.first_block)]
        if chunk.end_block is not None:
            conditions.append(sql.SQL("ctid < '({},0)'::pg_catalog.tid").format(chunk.end_block))
        if self._where is not None:
            conditions.append(sql.SQL("({}\n)").format(written(self._where)))
        return sql.SQL("SELECT {} FROM ONLY {} WHERE {}").format(
            sql.SQL(", ").join(expressions), self._relation, sql.SQL(" AND ").join(conditions)
        )

    def _session(self, kind: type[S]) -> AbstractContextManager[S]:
        return reading(
            kind, self._url, self.table, self._relation, self._exported.name, self._check_relation
        )

    def _check_relation(self, session: ReadSession) -> None:
        """By means that see the catalogue as it is, not as the snapshot has it."""
        columns = self.table.columns
        # An unknown column is an error; one that took another's name may be of another type.
        types = sql.SQL(", ").join(
            sql.SQL("pg_catalog.pg_typeof((NULL::{}).{})::pg_catalog.oid").format(
                self._relation, sql.Identifier(column.name)
            )
            for column in columns
        )
        query = sql.SQL(
            "SELECT pg_catalog.to_regclass({})::pg_catalog.oid::bigint,"
            " pg_catalog.pg_relation_filenode({oid}::pg_catalog.oid)::bigint,"
            " pg_catalog.array_to_string(ARRAY[{}]::pg_catalog.oid[], ','), {held}"
        ).format(
            sql.Literal(self._relation.as_string(None)),
            types,
            oid=sql.Literal(self._range.relation),
            held=is_held(self._exported.holder),
        )
        oid, file, found, held = session.row(query.as_string(None))
        if not held:
            raise snapshot_gone(self._exported.name, "whoever holds one of that name is another")
        where = f"{self._range.schema}.{self._range.name}"
        if (oid, file) != (self._range.relation, self._range.file):
            raise rewritten(self.table, f"the file of {where} is another one")
        if found != ",".join(str(column.type.oid) for column in columns):
            raise rewritten(self.table, f"columns of {where} are of other types")
