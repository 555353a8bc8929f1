"""The store in a Postgres database: schema ``penstock``, by default in the source database."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import psycopg
from psycopg import errors, sql
from psycopg.types.json import Json, Jsonb

from penstock.answer_limit import answered_within
from penstock.config.connection_url import ConnectionUrl
from penstock.model.errors import StoreError, StoreUnavailable
from penstock.model.lsn import format_lsn, parse_lsn
from penstock.model.publication_state import PublicationState
from penstock.model.table_definition import TableDefinition
from penstock.model.table_name import TableName
from penstock.model.table_state import (
    Errored,
    TableState,
    state_from_json,
    state_to_json,
)
from penstock.source.postgres.connect import Party, connect, without_secrets
from penstock.source.postgres.search_path import without_path
from penstock.source.postgres.silence import silence_limit
from penstock.store.contract import SchemaVersion, StateRecord, Store
from penstock.store.migrations import (
    TABLES,
    TABLES_BY_OID,
    drop_store,
    has_store,
    lock_store,
    migrate,
)
from penstock.store.postgres_copies import Connection, PostgresCopies
from penstock.store.postgres_jobs import PostgresJobs

_LOCK_PIPELINE = """
INSERT INTO penstock.pipeline (pipeline) VALUES (%s)
ON CONFLICT (pipeline) DO UPDATE SET pipeline = excluded.pipeline RETURNING now()
"""
_CURRENT_STATES = """
SELECT DISTINCT ON (table_oid) table_oid, state::text, since
  FROM penstock.table_state WHERE pipeline = %s ORDER BY table_oid, step DESC
"""
_CHAINS = """
SELECT table_oid, step, state::text, since
  FROM penstock.table_state WHERE pipeline = %s AND table_oid = ANY (%s::oid[]) ORDER BY step
"""
_APPEND_STATE = """
INSERT INTO penstock.table_state (pipeline, table_oid, step, state) VALUES (%s, %s::oid, %s, %s)
"""
_DELETE_STEP = """
DELETE FROM penstock.table_state WHERE pipeline = %s AND table_oid = %s::oid AND step = %s
"""
_SINCE_NOW = """
UPDATE penstock.table_state SET since = now()
 WHERE pipeline = %s AND table_oid = %s::oid AND step = %s
"""
_DELETE_VERSION = """
DELETE FROM penstock.table_schema
 WHERE pipeline = %(pipeline)s AND table_oid = %(table)s::oid AND lsn = %(lsn)s::pg_lsn
"""
_APPEND_VERSION = """
INSERT INTO penstock.table_schema (pipeline, table_oid, lsn, definition)
SELECT %(pipeline)s, %(table)s::oid, %(lsn)s::pg_lsn, %(definition)s
 WHERE %(definition)s IS DISTINCT FROM (
       SELECT definition FROM penstock.table_schema
        WHERE pipeline = %(pipeline)s AND table_oid = %(table)s::oid AND lsn < %(lsn)s::pg_lsn
        ORDER BY lsn DESC LIMIT 1)
"""
_SCHEMAS = """
SELECT table_oid, lsn::text, definition::text
  FROM penstock.table_schema WHERE pipeline = %s ORDER BY table_oid, lsn
"""
_VERSIONS = """
SELECT lsn::text, definition::text
  FROM penstock.table_schema WHERE pipeline = %s AND table_oid = %s::oid ORDER BY lsn
"""
_NAMES = """
SELECT DISTINCT ON (table_oid) table_oid, definition->>'schema', definition->>'name'
  FROM penstock.table_schema WHERE pipeline = %s ORDER BY table_oid, lsn DESC
"""
# Sums do not depend on the order of rows, so nothing has to be sorted.
_STAMP_PART = """
SELECT concat_ws(' ', count(*), sum(hashtextextended(concat_ws(' ', table_oid, {columns}), 0)))
  FROM penstock.{table} WHERE pipeline = %(pipeline)s
"""
_STAMP = sql.SQL("SELECT concat_ws(' ', {})").format(
    sql.SQL(", ").join(
        sql.SQL("({})").format(
            sql.SQL(_STAMP_PART).format(
                table=sql.Identifier(table),
                columns=sql.SQL(", ").join(map(sql.Identifier, columns)),
            )
        )
        for table, columns in {
            "table_state": ("step", "since"),
            "table_schema": ("lsn", "stored_at"),
            "table_wish": ("wish", "since"),
            "table_notes": ("since",),
            "table_copy": ("copy_id",),
        }.items()
    )
)
_SET_NOTES = """
INSERT INTO penstock.table_notes (pipeline, table_oid, notes) VALUES (%s, %s::oid, %s)
ON CONFLICT (pipeline, table_oid) DO UPDATE SET notes = excluded.notes, since = now()
"""
_SET_PUBLICATION = """
INSERT INTO penstock.publication (pipeline, state) VALUES (%s, %s)
ON CONFLICT (pipeline) DO UPDATE SET state = excluded.state, since = now()
"""


class PostgresStore(PostgresCopies, PostgresJobs, Store):
    """Connects when it is first used, and again when the connection is found dead.

    ``url_key`` is where in the pipeline file the URL comes from; errors name it.
    """

    def __init__(
        self,
        url: ConnectionUrl,
        pipeline: str,
        *,
        rules_of: str | None = None,
        url_key: str = "store.url",
    ) -> None:
        super().__init__(pipeline, rules_of)
        self._url = url
        self._url_key = url_key
        self._conn: Connection | None = None

    def exists(self) -> bool:
        """Whether the database holds a store. Unlike ``open``, it creates none."""
        with self._lock, self._transaction("looking for the store") as conn:
            return has_store(conn)

    def close(self) -> None:
        with self._lock:
            if self._conn is not None:
                self._conn.close()
                self._conn = None

    def _set_up(self) -> None:
        with self._transaction("setting up the store") as conn:
            migrate(conn)

    # -- states ----------------------------------------------------------------------------------

    def _read_states(self) -> dict[int, StateRecord]:
        with self._transaction("reading table states") as conn:
            rows = conn.execute(_CURRENT_STATES, [self.pipeline]).fetchall()
        return {table: _state_record(state, since) for table, state, since in rows}

    def _write_states(self, states: Mapping[int, TableState]) -> dict[int, StateRecord]:
        if len(states) == 1:
            (action,) = (f"recording the state of {self._name(table)}" for table in states)
        else:
            action = f"recording the states of {len(states)} tables"
        with self._transaction(action) as conn:
            now, chains = self._locked_chains(conn, states)
            written, replaced, appended = {}, [], []
            for table, state in states.items():
                step, current = chains[table][-1] if table in chains else (0, None)
                self._next_state(table, current.state if current else None, state)
                if current is not None and current.state == state:
                    written[table] = current
                    continue
                if current is not None and isinstance(current.state, Errored):
                    # What follows an error, another one or a new beginning, takes its place.
                    replaced.append((self.pipeline, table, step))
                appended.append((self.pipeline, table, step + 1, Json(state_to_json(state))))
                written[table] = StateRecord(state, now)
            cursor = conn.cursor()
            cursor.executemany(_DELETE_STEP, replaced)
            cursor.executemany(_APPEND_STATE, appended)
            return written

    def _take_back_state(self, table: int, *, only_errored: bool) -> StateRecord:
        with self._transaction(f"taking back the state of {self._name(table)}") as conn:
            now, chains = self._locked_chains(conn, [table])
            chain = chains.get(table, [])
            records = [record for _step, record in chain]
            previous = self._require_previous(table, records, only_errored=only_errored)
            conn.execute(_DELETE_STEP, [self.pipeline, table, chain[-1][0]])
            conn.execute(_SINCE_NOW, [self.pipeline, table, chain[-2][0]])
            return StateRecord(previous.state, now)

    def _locked_chains(
        self, conn: Connection, tables: Iterable[int]
    ) -> tuple[datetime, dict[int, list[tuple[int, StateRecord]]]]:
        """The transaction's time, and the tables' states with their steps, oldest first.

        Nobody else changes states of this pipeline until the transaction ends.
        """
        # A lock on the states would not do: who waits for it does not see the row that came
        # meanwhile. An advisory lock could be held by anybody.
        now = _only(conn.execute(_LOCK_PIPELINE, [self.pipeline]))
        chains: dict[int, list[tuple[int, StateRecord]]] = {}
        rows = conn.execute(_CHAINS, [self.pipeline, list(tables)]).fetchall()
        for table, step, state, since in rows:
            chains.setdefault(table, []).append((step, _state_record(state, since)))
        return now, chains

    # -- schemas ---------------------------------------------------------------------------------

    def _read_schemas(self) -> dict[int, list[SchemaVersion]]:
        with self._transaction("reading table schemas") as conn:
            rows = conn.execute(_SCHEMAS, [self.pipeline]).fetchall()
        found: dict[int, list[SchemaVersion]] = {}
        for table, lsn, text in rows:
            definition = TableDefinition.from_json(json.loads(text))
            found.setdefault(table, []).append(SchemaVersion(parse_lsn(lsn), definition))
        return found

    def load_schema_versions(self, table: int) -> list[SchemaVersion]:
        """All definitions of one table, oldest first. Of many tables much cheaper than
        ``load_table_schemas``; nothing is cached.
        """
        with self._lock, self._transaction("reading the definitions of a table") as conn:
            rows = conn.execute(_VERSIONS, [self.pipeline, table]).fetchall()
        return [
            SchemaVersion(parse_lsn(lsn), TableDefinition.from_json(json.loads(text)))
            for lsn, text in rows
        ]

    def load_table_names(self) -> dict[int, TableName]:
        """What tables are called, by the newest definitions. Of many tables much cheaper than
        ``load_table_schemas``; nothing is cached.
        """
        with self._lock, self._transaction("reading the names of tables") as conn:
            rows = conn.execute(_NAMES, [self.pipeline]).fetchall()
        return {table: TableName(schema, name) for table, schema, name in rows}

    def table_stamp(self) -> str:
        """A text that is another one as soon as states, definitions, wishes or notes of tables are
        others, or a copy is begun or forgotten. Of many tables much cheaper than reading them;
        nothing is cached.
        """
        with self._lock, self._transaction("looking whether tables changed") as conn:
            return str(_only(conn.execute(_STAMP, {"pipeline": self.pipeline})))

    def _write_schemas(self, definitions: Sequence[TableDefinition], lsn: int) -> None:
        values = [
            {
                "pipeline": self.pipeline,
                "table": definition.oid,
                "lsn": format_lsn(lsn),
                "definition": Jsonb(definition.to_json()),
            }
            for definition in definitions
        ]
        with self._transaction(f"recording the schemas of {len(definitions)} tables") as conn:
            cursor = conn.cursor()
            cursor.executemany(_DELETE_VERSION, values)
            cursor.executemany(_APPEND_VERSION, values)

    # -- notes -----------------------------------------------------------------------------------

    def _read_notes(self) -> dict[int, tuple[str, ...]]:
        with self._transaction("reading the notes of tables") as conn:
            rows = conn.execute(
                "SELECT table_oid, notes FROM penstock.table_notes WHERE pipeline = %s",
                [self.pipeline],
            ).fetchall()
        return {table: tuple(notes) for table, notes in rows}

    def _write_notes(self, table: int, notes: Sequence[str]) -> None:
        with self._transaction("recording the notes of a table") as conn:
            conn.execute(_SET_NOTES, [self.pipeline, table, list(notes)])

    # -- the publications ------------------------------------------------------------------------

    def _read_publication(self) -> PublicationState | None:
        with self._transaction("reading what the publications were") as conn:
            row = conn.execute(
                "SELECT state FROM penstock.publication WHERE pipeline = %s", [self.pipeline]
            ).fetchone()
        return None if row is None else PublicationState.from_json(row[0])

    def _write_publication(self, state: PublicationState) -> None:
        with self._transaction("recording what the publications are") as conn:
            conn.execute(_SET_PUBLICATION, [self.pipeline, Jsonb(state.to_json())])

    # -- whole tables, and the pipeline as a whole ------------------------------------------------

    def _remove_tables(self, tables: Collection[int]) -> None:
        with self._transaction(f"removing what is kept of {len(tables)} tables") as conn:
            for name in TABLES_BY_OID:
                table = sql.Identifier("penstock", name)
                delete = sql.SQL(
                    "DELETE FROM {} WHERE pipeline = %s AND table_oid = ANY (%s::oid[])"
                )
                conn.execute(delete.format(table), [self.pipeline, list(tables)])

    def _remove_pipeline(self, *, with_rules: bool) -> bool:
        """Rows of this pipeline; with those of the last one the store itself."""
        with self._transaction(f"removing the state of pipeline {self.pipeline}") as conn:
            if not has_store(conn):
                return False
            lock_store(conn)
            migrate(conn)  # refuses a store of a newer Penstock, which may keep more than we know
            removed, others = 0, False
            for name in TABLES:
                table = sql.Identifier("penstock", name)
                # Nobody comes in between before it is clear whether anybody is left.
                conn.execute(sql.SQL("LOCK TABLE {} IN EXCLUSIVE MODE").format(table))
                delete = sql.SQL("DELETE FROM {} WHERE pipeline = %s").format(table)
                if with_rules or name != "table_rule":
                    removed += conn.execute(delete, [self.pipeline]).rowcount
                exists = sql.SQL("SELECT EXISTS (SELECT FROM {})").format(table)
                others = others or _only(conn.execute(exists))
            if not others:
                drop_store(conn)
            return removed > 0

    # -- the connection --------------------------------------------------------------------------

    @contextmanager
    def _transaction(self, action: str) -> Iterator[Connection]:
        """A connection inside a transaction. ``action`` completes "While …" in errors."""
        try:
            conn = self._live_connection()
            with conn.transaction():
                without_path(conn)
                yield conn
        except psycopg.Error as error:
            raise self._refusal(action, error) from error

    def _live_connection(self) -> Connection:
        # States change rarely, so the connection is mostly idle, and whoever ends idle connections
        # must not cost us a try: one more round trip tells.
        if self._conn is not None:
            try:
                with answered_within(self._conn, silence_limit(self._url)):
                    self._conn.execute("SELECT 1")
            except psycopg.Error:
                self.close()
        if self._conn is None:
            self._conn = connect(
                self._url,
                application_name=f"penstock {self.pipeline} store",
                party=Party(self._url_key, StoreError, StoreUnavailable),
            )
            # After a wait for a lock the next statement must see what the holder did.
            self._conn.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            # The store may stand behind a pooler, which does not know prepared statements.
            self._conn.prepare_threshold = None
        return self._conn

    def _refusal(self, action: str, error: psycopg.Error) -> StoreError:
        said = without_secrets(str(error), self._url)
        where = f"the store at {self._url}"
        if isinstance(error, errors.LockNotAvailable):
            return StoreUnavailable(
                f"While {action}, {where} waited in vain for another session, which makes the "
                f"schema penstock or holds it locked: {said}.",
                remedy="Find it (SELECT pid, usename, state FROM pg_stat_activity WHERE backend_xid"
                " IS NOT NULL), and end it where it is not yours: pg_terminate_backend(pid).",
            )
        if isinstance(error, psycopg.OperationalError):
            # Lost, shutting down, out of connections, locked or interrupted: all of it passes.
            self.close()
            return StoreUnavailable(
                f"While {action}, {where} did not answer: {said}.",
                remedy=f"Check that the server behind {self._url_key} is up.",
            )
        if isinstance(error, errors.ReadOnlySqlTransaction):
            # A standby that is promoted soon, or that has taken the primary's address too early.
            self.close()
            return StoreUnavailable(
                f"While {action}, {where} refused: {said}.",
                remedy=f"A standby takes no writes: give a primary server as {self._url_key}.",
            )
        if isinstance(error, errors.InsufficientPrivilege):
            database, user = self._url.database, self._url.user or "<role>"
            remedy = (
                f"The role needs CREATE on the database, or a schema of its own there. Run as a "
                f'superuser: GRANT CREATE ON DATABASE "{database}" TO "{user}"; or CREATE SCHEMA '
                f'penstock AUTHORIZATION "{user}". Where another role made the store, membership '
                "in that role."
            )
        elif isinstance(error, errors.UndefinedTable):
            remedy = (
                "Its tables have been removed meanwhile. Start `penstock run` again; it makes "
                "them anew, and every table begins at init."
            )
        else:
            remedy = f"Check that the schema penstock behind {self._url_key} is Penstock's alone."
        return StoreError(f"While {action}, {where} refused: {said}.", remedy=remedy)


def _state_record(text: str, since: Any) -> StateRecord:
    return StateRecord(state_from_json(json.loads(text)), since)


def _only(cursor: psycopg.Cursor[tuple[Any, ...]]) -> Any:
    row = cursor.fetchone()
    assert row is not None  # noqa: S101 (each of our statements that is asked returns one row)
    return row[0]
