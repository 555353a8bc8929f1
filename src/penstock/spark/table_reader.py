"""The ``penstock`` source with ``url`` or ``pipeline``: a table as it stands, read in parallel.

All partitions see the same snapshot of the database. Spark plans a source once for each load(), so
that all actions on a DataFrame share its partitions: with several of them, a process beside the
driver holds their snapshot until all were read (snapshot/shared_read.py says how it learns of
that), and later actions fail. One that is alone is read under a snapshot of its task's own.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.config import ConnectionUrl
from penstock.model.errors import (
    ConfigError,
    PenstockError,
    SnapshotGone,
    SourceError,
    SourceUnavailable,
    TableRewritten,
)
from penstock.model.lsn import NOTHING
from penstock.model.table_definition import TableDefinition
from penstock.model.table_name import TableName
from penstock.model.table_schema import TableSchema
from penstock.source.copy_plan import Chunk
from penstock.source.postgres.catalogue.definitions import qualified_names, read_definitions
from penstock.source.postgres.connect import connect
from penstock.source.postgres.snapshot.arrow_columns import typed_schema
from penstock.source.postgres.snapshot.chunk_reader import SourceChunkReader
from penstock.source.postgres.snapshot.held_snapshot import ProcessSnapshotKeeper
from penstock.source.postgres.snapshot.plan import plan_copy
from penstock.source.postgres.snapshot.reading import ExportedSnapshot, written
from penstock.source.postgres.snapshot.relations import CopyRelations, read_relations
from penstock.source.postgres.snapshot.shared_read import exported_snapshot, tell_read
from penstock.source.postgres.snapshot.source_session import close_idle_sessions
from penstock.source.postgres.source_errors import source_errors
from penstock.spark.table_read_settings import TableReadSettings
from penstock.spark.typed_rows import as_spark_schema

_APPLICATION = "penstock table read"
_OTHER_KINDS = {"v": "a view", "m": "a materialised view", "f": "a foreign table"}


def read_schema(options: dict[str, str]) -> StructType:
    """The table's columns in Spark's types, then ``_raw``."""
    with _told_to_people():
        return _spark_schema(_read_source(TableReadSettings.of(options)).table)


def _spark_schema(table: TableSchema) -> StructType:
    return as_spark_schema(typed_schema(table))


@dataclass
class _Part(InputPartition):
    """One chunk of ``parts``. Without ``snapshot`` it is the only one."""

    table: TableSchema
    chunk: Chunk
    where: str | None
    parts: int
    snapshot: ExportedSnapshot | None


class PenstockTableReader(DataSourceReader):
    """Plans on the driver what executors read."""

    def __init__(self, settings: TableReadSettings, schema: StructType) -> None:
        self._settings = settings
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        with _told_to_people():
            source = self._source()
            parts = self._parts(source, None)
            if len(parts) == 0 or (len(parts) == 1 and not source.is_partitioned):
                return parts
            held = ProcessSnapshotKeeper(
                self._settings.url,
                Path(tempfile.mkdtemp(prefix="penstock-read-")),
                owner=_spark_process(),
                max_age=self._settings.snapshot_age,
                idle_seconds=self._settings.snapshot_idle,
                grace_seconds=self._settings.snapshot_grace,
            ).take()
            # Once more: a partition that came before the snapshot belongs to it.
            snapshot = ExportedSnapshot(held.name, NOTHING, held.holder)
            return self._parts(self._source(), snapshot)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Where there is no partition at all, Spark gives None.
        if not isinstance(partition, _Part):
            return
        url, chunk = self._settings.url, partition.chunk
        schema = to_arrow_schema(self._schema)
        try:
            with (
                _told_to_people(),
                _errors_of_a_read(),
                _snapshot(url, partition.snapshot) as snapshot,
            ):
                reader = SourceChunkReader(url, partition.table, chunk, partition.where, snapshot)
                for batch in reader.typed():
                    yield batch.cast(schema)
                if partition.snapshot is not None:
                    tell_read(url, snapshot.name, chunk.number, partition.parts)
        finally:
            # What runs in this process next may have nothing to do with this database.
            close_idle_sessions()

    def _source(self) -> CopyRelations:
        source = _read_source(self._settings)
        if _spark_schema(source.table) != self._schema:
            raise TableRewritten(
                f"Table {self._settings.table} has other columns than when the DataFrame was made.",
                remedy="Call load() again, without a schema of your own.",
                table=source.table.oid,
            )
        return source

    def _parts(self, source: CopyRelations, snapshot: ExportedSnapshot | None) -> list[_Part]:
        plan = plan_copy(source, self._settings.chunk_bytes)
        return [
            _Part(source.table, chunk, plan.where, len(plan.chunks), snapshot)
            for chunk in plan.chunks
        ]


@contextmanager
def _own_snapshot(url: ConnectionUrl) -> Iterator[ExportedSnapshot]:
    with exported_snapshot(url, _APPLICATION) as (_, name):
        yield ExportedSnapshot(name, NOTHING)


def _snapshot(
    url: ConnectionUrl, held: ExportedSnapshot | None
) -> AbstractContextManager[ExportedSnapshot]:
    return _own_snapshot(url) if held is None else nullcontext(held)


def _read_source(settings: TableReadSettings) -> CopyRelations:
    name = settings.table
    with closing(connect(settings.url, application_name=_APPLICATION)) as conn:
        definitions = read_definitions(conn, [name], ())
        if not definitions:
            raise _missing(conn, name)
        (definition,) = definitions
        definition = _chosen(definition, settings.columns)
        conditions = {} if settings.where is None else {definition.qualified_name: settings.where}
        sources = read_relations(conn, [definition], (), conditions)
        if definition.oid in sources.refused:
            raise sources.refused[definition.oid]
        if definition.oid not in sources.found:
            raise _missing(conn, name)
        source = sources.found[definition.oid]
        if settings.where is not None:
            _check_where(conn, source, settings.where)
        return source


def _chosen(definition: TableDefinition, columns: tuple[str, ...] | None) -> TableDefinition:
    """With the columns marked that are to be read; generated ones have values like any other."""
    known = [column.name for column in definition.columns]
    unknown = [name for name in columns or () if name not in known]
    if unknown:
        raise ConfigError(
            f"option columns of the penstock source: table {definition.qualified_name} has no "
            f"column {unknown[0]!r}; it has {', '.join(known)}"
        )
    wanted = known if columns is None else columns
    return replace(
        definition,
        columns=tuple(replace(c, published=c.name in wanted) for c in definition.columns),
    )


def _check_where(conn: psycopg.Connection[Any], source: CopyRelations, where: str) -> None:
    """Before any task runs. Plans it only."""
    query = sql.SQL("EXPLAIN SELECT FROM {} WHERE ({}\n)").format(
        sql.Identifier(source.table.schema, source.table.name), written(where)
    )
    try:
        # As the tasks will have it.
        with qualified_names(conn):
            conn.execute(query)
    except psycopg.Error as error:
        said = error.diag.message_primary or str(error)
        raise ConfigError(
            f"option where of the penstock source: {source.table.qualified_name} does not take "
            f"{where!r}: {said}",
            remedy="Write a condition as it would stand behind WHERE in Postgres, with the schema "
            "of every name that is not built in.",
        ) from None


def _missing(conn: psycopg.Connection[Any], name: TableName) -> SourceError:
    with source_errors("looking for a table"):
        row = conn.execute(
            "SELECT c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = %s AND c.relname = %s",
            list(name),
        ).fetchone()
    if row is not None and row[0] in _OTHER_KINDS:
        return SourceError(
            f"{name} is {_OTHER_KINDS[row[0]]}, and the penstock source reads tables.",
            remedy="Read the tables behind it; spark.read.jdbc reads it through one connection.",
        )
    return SourceError(
        f"Database {conn.info.dbname!r} has no table {name}.",
        remedy="Check schema and name, with upper and lower case as in the database; a name without"
        " a schema is one of public.",
    )


def _spark_process() -> int:
    """The JVM that plans this read. We are its child, or the child of its Python daemon."""
    pid = os.getppid()
    while pid > 1:
        if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
            return pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return os.getppid()


@contextmanager
def _told_to_people() -> Iterator[None]:
    """Show what to do beside the error: Spark gives its text alone."""
    try:
        yield
    except PenstockError as error:
        if error.remedy:
            error.add_note(error.remedy.replace("source.url", "the option url"))
        raise


@contextmanager
def _errors_of_a_read() -> Iterator[None]:
    """Chunks are read for copies, too, and errors of those say what happens with a copy next."""
    try:
        yield
    except SnapshotGone as error:
        raise SnapshotGone(
            f"The snapshot of this read has ended, and another one would show other rows. "
            f"{error.message}",
            remedy="Call load() again: a DataFrame shows one moment, which is kept for "
            "snapshotGrace after all was read, for snapshotIdle while nobody reads, and for "
            "snapshotAge at most. Raise the option that was too short.",
        ) from None
    except TableRewritten as error:
        raise TableRewritten(
            error.message, remedy="Call load() again, and run it again.", table=error.table
        ) from None
    except SourceUnavailable:
        raise
    except SourceError as error:
        raise SourceError(
            error.message,
            remedy="The message says what was refused: a right that the role lacks, or a value "
            "that the option where does not fit.",
        ) from None
