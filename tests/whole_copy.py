"""A whole database copied by the destination's own steps, in this process and without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from penstock.config.connection_url import ConnectionUrl
from penstock.destination.postgres.destination import PostgresDestination
from penstock.destination.postgres.options import PostgresOptions
from penstock.destination.protocols import Unrestored
from penstock.model.errors import TableRefused, refused_alone
from penstock.model.lsn import Frontier
from penstock.model.table_definition import TableDefinition
from penstock.source.postgres.catalogue.definitions import read_definitions_by_oid
from penstock.source.postgres.catalogue.trust import Trust
from penstock.source.postgres.snapshot.chunk_reader import SourceChunkReader
from penstock.source.postgres.snapshot.plan import plan_copy
from penstock.source.postgres.snapshot.reading import ExportedSnapshot
from penstock.source.postgres.snapshot.relations import read_relations
from penstock.source.postgres.snapshot.snapshot_record import HeldSnapshot
from penstock.source.postgres.snapshot.source_session import close_idle_sessions
from penstock.source.postgres.whole_schema.dump import dump_schema, read_sequences
from tests.application_session import connect
from tests.fix_target import PIPELINE, end_task_sessions

_FOLLOWED = """
SELECT c.oid::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
   AND n.nspname !~ '^(pg_|information_schema$|penstock)'
 ORDER BY 1
"""
_CHUNK_BYTES = 1 << 40


def copy_whole(source: str, target: str, **full: object) -> list[Unrestored]:
    """Copy a database as `penstock snapshot` does; what could not be made. After an error it may
    be called again, as after a crash.
    """
    options = {"url": target, "schema": "full", "full_schema": full}
    destination = PostgresDestination(PostgresOptions.model_validate(options), PIPELINE)
    try:
        destination.open()
        with snapshot_of(source) as held:
            tables = _followed(source)
            wishes = destination.schema_options
            assert wishes is not None
            url = ConnectionUrl(source)
            dump = dump_schema(url, held, wishes, lambda: None, application="test")
            if destination.has_schema():
                destination.follow_schema(dump)
            else:
                destination.restore_before(dump, tables)
            for table in tables:
                try:
                    with refused_alone(table.oid):
                        _copy(destination, url, held, table)
                except TableRefused:
                    continue  # it is listed
        if not destination.is_whole():
            destination.restore_after(followed=False)
        destination.set_sequences(read_sequences(url, application="test"))
        return list(destination.unrestored())
    finally:
        destination.close()
        end_task_sessions()
        close_idle_sessions()


@contextmanager
def snapshot_of(source: str) -> Iterator[HeldSnapshot]:
    with psycopg.connect(source) as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        row = conn.execute(
            "SELECT pg_export_snapshot(), pid, extract(epoch FROM backend_start)::text"
            " FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        ).fetchone()
        assert row is not None
        name, pid, start = row
        yield HeldSnapshot(name, 0x50, pid, start, "", 0)


def _followed(source: str) -> list[TableDefinition]:
    with connect(source) as conn:
        oids = [oid for (oid,) in conn.execute(_FOLLOWED)]
        found = read_definitions_by_oid(conn, oids, ())
        judged = Trust.read(conn, "built_in").all_judged(found)
        return [judged[oid] for oid in oids]


def _copy(
    destination: PostgresDestination,
    url: ConnectionUrl,
    held: HeldSnapshot,
    table: TableDefinition,
) -> None:
    destination.fit_table(table, ())
    destination.prepare([table])
    destination.truncate_table(table)
    with connect(url) as conn:
        relations = read_relations(conn, [table], (), {}).found[table.oid]
    plan = plan_copy(relations, _CHUNK_BYTES)
    writer = destination.chunk_writer(table)
    for chunk in plan.chunks:
        snapshot = ExportedSnapshot(held.name, Frontier.before(held.lsn))
        writer.write(SourceChunkReader(url, relations.table, chunk, plan.where, snapshot))
    destination.finish_copy(table)
    destination.complete_table(table)
