"""The tables in schema ``penstock`` that hold subscriptions, positions and the outbox's index."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
from psycopg import sql

from penstock.answer_limit import answered_within
from penstock.config.connection_url import ConnectionUrl
from penstock.model.errors import DestinationError, DestinationUnavailable, PenstockError
from penstock.source.postgres.connect import Party, connect, without_secrets
from penstock.source.postgres.made_once import make_once
from penstock.source.postgres.search_path import without_path
from penstock.source.postgres.silence import silence_limit

Connection = psycopg.Connection[tuple[Any, ...]]

DATABASE = Party("destination.url", DestinationError, DestinationUnavailable)

TABLES = (
    """
CREATE TABLE IF NOT EXISTS penstock.webhook_pipeline (
    pipeline text PRIMARY KEY,
    driver bigint NOT NULL DEFAULT 0,
    deliverer bigint NOT NULL DEFAULT 0,
    segments bigint NOT NULL DEFAULT 0,
    subscriptions bigint NOT NULL DEFAULT 0,
    watermarks jsonb,
    tables jsonb NOT NULL DEFAULT '{}',
    outbox text NOT NULL DEFAULT ''
)""",
    """
CREATE TABLE IF NOT EXISTS penstock.webhook_subscription (
    pipeline text NOT NULL,
    id text NOT NULL,
    wanted jsonb NOT NULL,
    view text NOT NULL,
    secrets jsonb NOT NULL,
    state text NOT NULL DEFAULT 'active',
    reason text NOT NULL DEFAULT '',
    generation bigint NOT NULL DEFAULT 0,
    segment bigint NOT NULL,
    row bigint NOT NULL DEFAULT 0,
    ends bigint,
    ends_why text NOT NULL DEFAULT '',
    delivered bigint NOT NULL DEFAULT 0,
    failing_since timestamptz,
    last_error text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, id)
)""",
    """
CREATE TABLE IF NOT EXISTS penstock.webhook_segment (
    pipeline text NOT NULL,
    number bigint NOT NULL,
    view text NOT NULL,
    file text NOT NULL,
    rows bigint NOT NULL,
    bytes bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, number)
)""",
    """
CREATE TABLE IF NOT EXISTS penstock.webhook_chunk (
    pipeline text NOT NULL,
    source_table text NOT NULL,
    chunk text NOT NULL,
    PRIMARY KEY (pipeline, source_table, chunk)
)""",
    """
CREATE TABLE IF NOT EXISTS penstock.webhook_dead_letter (
    pipeline text NOT NULL,
    subscription text NOT NULL,
    message_id text NOT NULL,
    source_table text NOT NULL,
    why text NOT NULL,
    body text NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, subscription, message_id)
)""",
)
_NAMES = (
    "webhook_dead_letter",
    "webhook_chunk",
    "webhook_segment",
    "webhook_subscription",
    "webhook_pipeline",
)


def _make_tables(conn: Connection) -> None:
    there = conn.execute("SELECT to_regnamespace('penstock') IS NOT NULL").fetchone()
    if there == (False,):
        conn.execute("CREATE SCHEMA penstock")
    for statement in TABLES:
        conn.execute(statement.encode())
    # An earlier Penstock may have made the tables.
    if not _has_column(conn, "webhook_subscription", "ends"):
        conn.execute(
            "ALTER TABLE penstock.webhook_subscription ADD COLUMN ends bigint,"
            " ADD COLUMN ends_why text NOT NULL DEFAULT ''"
        )
    if not _has_column(conn, "webhook_pipeline", "outbox"):
        conn.execute(
            "ALTER TABLE penstock.webhook_pipeline ADD COLUMN outbox text NOT NULL DEFAULT ''"
        )


def _has_column(conn: Connection, table: str, column: str) -> bool:
    found = conn.execute(
        "SELECT FROM pg_attribute WHERE attname = %s AND attrelid = %s::regclass",
        [column, f"penstock.{table}"],
    )
    return found.fetchone() is not None


class Database:
    """One connection, made when it is first used, and again when it was lost. For any thread.

    Raises DestinationUnavailable where another try may succeed, DestinationError for all else.
    """

    def __init__(self, url: ConnectionUrl, pipeline: str, purpose: str) -> None:
        self._url = url
        self.pipeline = pipeline
        self._purpose = purpose
        self._lock = threading.RLock()
        self._conn: Connection | None = None

    @contextmanager
    def transaction(self, doing: str) -> Iterator[Connection]:
        """Committed at the end of the block; none of it where the block raises."""
        with self._lock:
            conn = self._connection()
            try:
                with answered_within(conn, silence_limit(self._url)), conn.transaction():
                    without_path(conn)
                    yield conn
            except PenstockError:
                raise
            except psycopg.Error as error:
                lost = conn.closed or isinstance(error, psycopg.OperationalError)
                if lost:
                    self.close()
                kind = DestinationUnavailable if lost else DestinationError
                said = without_secrets(str(error), self._url)
                raise kind(
                    f"destination webhooks: {doing} in database {self._url.database!r} at "
                    f"{self._url.host} failed: {said}",
                    remedy="see to the database that destination.url names; nothing was lost",
                ) from None

    def set_up(self) -> None:
        """Create what is missing."""
        with self.transaction("creating Penstock's own tables") as conn:
            make_once(conn, partial(_make_tables, conn))
            conn.execute(
                "INSERT INTO penstock.webhook_pipeline (pipeline) VALUES (%s)"
                " ON CONFLICT DO NOTHING",
                [self.pipeline],
            )

    def has_tables(self) -> bool:
        with self.transaction("looking for subscriptions") as conn:
            row = conn.execute("SELECT to_regclass('penstock.webhook_pipeline') IS NOT NULL")
            return row.fetchone() == (True,)

    def check(self) -> None:
        """Raises DestinationError where the role could not keep tables there."""
        with self.transaction("checking rights") as conn:
            row = conn.execute(
                "SELECT current_user::text, current_database()::text,"
                " current_setting('transaction_read_only')::bool,"
                " CASE WHEN to_regnamespace('penstock') IS NULL"
                " THEN has_database_privilege(current_database(), 'CREATE')"
                " ELSE has_schema_privilege('penstock', 'CREATE, USAGE') END"
            ).fetchone()
        role, database, read_only, may = row or ("", "", False, False)
        if read_only:
            raise DestinationError(
                f"destination webhooks: database {database} is read-only",
                remedy="point destination.url at a primary server that can be written to",
            )
        if not may:
            raise DestinationError(
                f"destination webhooks: role {role} may not keep Penstock's own tables in database "
                f"{database}",
                remedy=f"run as the database's owner: GRANT CREATE ON DATABASE {database} TO "
                f"{role}; or create the schema for it: CREATE SCHEMA penstock AUTHORIZATION {role}",
            )

    def forget(self) -> None:
        """Remove all that is kept of the pipeline in its tables, which are there."""
        with self.transaction("forgetting the pipeline") as conn:
            for name in _NAMES:
                conn.execute(
                    sql.SQL("DELETE FROM {} WHERE pipeline = %s").format(
                        sql.Identifier("penstock", name)
                    ),
                    [self.pipeline],
                )

    def close(self) -> None:
        with self._lock:
            if self._conn is not None:
                self._conn.close()
                self._conn = None

    def _connection(self) -> Connection:
        if self._conn is None or self._conn.closed:
            name = f"penstock {self.pipeline} {self._purpose}"
            self._conn = connect(self._url, application_name=name, party=DATABASE)
        return self._conn
