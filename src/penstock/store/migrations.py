"""The tables of the Postgres store, version by version.

A migration that was released is never changed: its checksum stands in every database that it ran
in. What comes later goes into a new one, with the next number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import psycopg
from psycopg import errors, sql

from penstock.model.errors import StoreError
from penstock.source.postgres.made_once import make_once
from penstock.store.ownership import require_own, revoke_writing


@dataclass(frozen=True)
class Migration:
    """One step. ``statements`` are SQL without parameters, run as one."""

    number: int
    name: str
    statements: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.statements.encode()).hexdigest()


# The first one is made by the mechanism itself, which could not remember its steps without it.
_RECORD = """
CREATE TABLE IF NOT EXISTS penstock.store_migrations (
    number int PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""

MIGRATIONS = (
    Migration(
        1,
        "states, schemas and mappings",
        """
-- A table's states in the order of "step"; the last one counts, the others are what it can be
-- rolled back to. json, not jsonb: an error may quote any text, also what jsonb refuses.
CREATE TABLE penstock.table_state (
    pipeline text NOT NULL,
    table_oid oid NOT NULL,
    step int NOT NULL,
    state json NOT NULL,
    since timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, table_oid, step)
);

-- A table's definitions, each from the transaction with commit LSN "lsn" on.
CREATE TABLE penstock.table_schema (
    pipeline text NOT NULL,
    table_oid oid NOT NULL,
    lsn pg_lsn NOT NULL,
    definition jsonb NOT NULL,
    stored_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, table_oid, lsn)
);

-- What a table is called in the destination.
CREATE TABLE penstock.table_mapping (
    pipeline text NOT NULL,
    table_oid oid NOT NULL,
    destination text NOT NULL,
    PRIMARY KEY (pipeline, table_oid)
);
""",
    ),
    Migration(
        2,
        "copies",
        """
-- A table's copy: what it consists of, the points of its first and its newest snapshot. Another
-- copy_id means that the table has started again.
CREATE TABLE penstock.table_copy (
    pipeline text NOT NULL,
    table_oid oid NOT NULL,
    copy_id uuid NOT NULL,
    first_lsn pg_lsn NOT NULL,
    last_lsn pg_lsn NOT NULL,
    snapshots int NOT NULL DEFAULT 1,
    plan json NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, table_oid)
);

-- The chunks of a copy that are done.
CREATE TABLE penstock.copy_chunk (
    pipeline text NOT NULL,
    table_oid oid NOT NULL,
    number int NOT NULL,
    rows bigint NOT NULL,
    bytes bigint NOT NULL,
    done_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, table_oid, number),
    FOREIGN KEY (pipeline, table_oid) REFERENCES penstock.table_copy ON DELETE CASCADE
);

-- The one worker that may take copies, and those it has taken.
CREATE TABLE penstock.copy_worker (
    pipeline text PRIMARY KEY,
    worker text NOT NULL,
    since timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE penstock.copy_claim (
    pipeline text NOT NULL,
    table_oid oid NOT NULL,
    worker text NOT NULL,
    claimed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, table_oid)
);

-- What a person wants of a table: paused, cancelled, resync.
CREATE TABLE penstock.table_wish (
    pipeline text NOT NULL,
    table_oid oid NOT NULL,
    wish text NOT NULL,
    since timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, table_oid)
);

-- Exceptions from the patterns of the pipeline file, by name: add, remove.
CREATE TABLE penstock.table_rule (
    pipeline text NOT NULL,
    schema_name text NOT NULL,
    table_name text NOT NULL,
    rule text NOT NULL,
    since timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, schema_name, table_name)
);
""",
    ),
    Migration(
        3,
        "notes in place of mappings, which nobody ever wrote",
        """
DROP TABLE penstock.table_mapping;

-- What the destination could not make of a table, and why: an index, say.
CREATE TABLE penstock.table_notes (
    pipeline text NOT NULL,
    table_oid oid NOT NULL,
    notes text[] NOT NULL,
    since timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, table_oid)
);
""",
    ),
    Migration(
        4,
        "what the publications were",
        """
-- What a pipeline's publications were when they were last compared: one that differs from this was
-- changed by somebody else, and changes were lost.
CREATE TABLE penstock.publication (
    pipeline text PRIMARY KEY,
    state jsonb NOT NULL,
    since timestamptz NOT NULL DEFAULT now()
);
""",
    ),
    Migration(
        5,
        "workers that copy",
        """
-- Chunks that a driver offers to workers. The last lease counts: who has an earlier attempt has
-- nothing. Jobs that need their driver are given out only while that is heard of.
CREATE TABLE penstock.copy_job (
    pipeline text NOT NULL,
    id uuid NOT NULL,
    place bigint GENERATED ALWAYS AS IDENTITY,
    driver text NOT NULL,
    needs_driver boolean NOT NULL,
    content jsonb NOT NULL,
    attempt int NOT NULL DEFAULT 0,
    worker text,
    leased_until timestamptz,
    result text,
    PRIMARY KEY (pipeline, id)
);

-- The processes that copy, as they say themselves. (A copy_worker is the driver whose jobs count.)
CREATE TABLE penstock.copy_process (
    pipeline text NOT NULL,
    worker text NOT NULL,
    host text NOT NULL,
    pid int NOT NULL,
    doing text NOT NULL,
    chunks bigint NOT NULL,
    rows bigint NOT NULL,
    bytes bigint NOT NULL,
    since timestamptz NOT NULL DEFAULT now(),
    seen_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, worker)
);

ALTER TABLE penstock.copy_worker ADD COLUMN seen_at timestamptz;
""",
    ),
    Migration(
        6,
        "a row to lock for each pipeline",
        """
-- Who changes a pipeline's states locks its row. An advisory lock could be held by anybody.
CREATE TABLE penstock.pipeline (
    pipeline text PRIMARY KEY
);
""",
    ),
)

TABLES_BY_OID = (
    "table_state",
    "table_schema",
    "table_notes",
    "table_wish",
    "copy_claim",
    "copy_chunk",
    "table_copy",
)
"""Those that hold what is kept of single tables; one that refers to another comes before it."""

TABLES = (
    "pipeline",
    *TABLES_BY_OID,
    "copy_job",
    "copy_process",
    "copy_worker",
    "table_rule",
    "publication",
)
"""All that hold something of a pipeline. The one that others lock first is the first."""

_ALL = (*TABLES, "store_migrations")


def has_store(conn: psycopg.Connection[Any]) -> bool:
    """Whether the database holds a store, of any version."""
    row = conn.execute(
        "SELECT EXISTS (SELECT FROM pg_class WHERE relname = 'store_migrations'"
        " AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'penstock'))"
    ).fetchone()
    return bool(row and row[0])


def migrate(
    conn: psycopg.Connection[Any], migrations: Sequence[Migration] = MIGRATIONS
) -> list[int]:
    """Bring the store to the version that ``migrations`` end with; the numbers of those applied.

    All in one transaction. Who comes at the same time waits and then finds nothing to do. A store
    that is up to date is only read, so the right to create tables is needed no longer.

    Raises StoreError where the store was made by another or a newer Penstock, or where a role could
    write it that is neither this one's own nor a superuser: what it says would be theirs.
    """
    try:
        with conn.transaction():
            return _migrate(conn, migrations)
    except errors.UndefinedTable:
        # The last pipeline took the store along in between.
        with conn.transaction():
            return _migrate(conn, migrations)


def _migrate(conn: psycopg.Connection[Any], migrations: Sequence[Migration]) -> list[int]:
    require_own(conn, _ALL)
    pending = _pending(_applied(conn), migrations)
    if pending:
        make_once(conn, partial(_create_record, conn))
        lock_store(conn)
        # What somebody else made meanwhile may be anybody's, with triggers that run as we.
        require_own(conn, _ALL)
        pending = _pending(_applied(conn), migrations)
        for migration in pending:
            conn.execute(migration.statements.encode())
            conn.execute(
                "INSERT INTO penstock.store_migrations (number, name, checksum)"
                " VALUES (%s, %s, %s)",
                [migration.number, migration.name, migration.checksum],
            )
        revoke_writing(conn, _ALL)
    return [migration.number for migration in pending]


def drop_store(conn: psycopg.Connection[Any]) -> None:
    """Remove the store's tables, and the schema where it is empty and could be made again.

    What belongs to another role stays, empty.
    """
    with suppress(errors.InsufficientPrivilege), conn.transaction():
        names = [sql.Identifier("penstock", name) for name in _ALL]
        conn.execute(sql.SQL("DROP TABLE {}").format(sql.SQL(", ").join(names)))
        row = conn.execute("SELECT has_database_privilege(current_database(), 'CREATE')").fetchone()
        if row and row[0]:
            _drop_empty_schema(conn)


def _drop_empty_schema(conn: psycopg.Connection[Any]) -> None:
    # It may be somebody else's, or a destination may keep its progress there.
    with (
        suppress(errors.InsufficientPrivilege, errors.DependentObjectsStillExist),
        conn.transaction(),
    ):
        conn.execute("DROP SCHEMA penstock")


def lock_store(conn: psycopg.Connection[Any]) -> None:
    """Keep others from changing the store's tables until the end of the transaction. There is one.

    A lock that only who may write the store can take: anybody could hold an advisory one.
    """
    conn.execute("LOCK TABLE penstock.store_migrations IN SHARE ROW EXCLUSIVE MODE")


def _applied(conn: psycopg.Connection[Any]) -> dict[int, str]:
    """The checksums of the applied migrations, by number."""
    if not has_store(conn):
        return {}
    rows = conn.execute("SELECT number, checksum FROM penstock.store_migrations").fetchall()
    return dict(rows)


def _pending(applied: Mapping[int, str], migrations: Sequence[Migration]) -> list[Migration]:
    known = {migration.number for migration in migrations}
    newer = sorted(set(applied) - known)
    if newer:
        raise StoreError(
            f"The store was set up by a newer Penstock: it has version {newer[-1]}, and this "
            f"Penstock knows versions up to {max(known)}.",
            remedy="Use the newer Penstock for every pipeline and command on this store.",
        )
    for migration in migrations:
        if applied.get(migration.number, migration.checksum) != migration.checksum:
            raise StoreError(
                f"The store has another version {migration.number} ({migration.name}) than this "
                "Penstock would make: the checksums differ.",
                remedy="Use the Penstock that set it up, or give another database as store.url.",
            )
    return [migration for migration in migrations if migration.number not in applied]


def _create_record(conn: psycopg.Connection[Any]) -> None:
    """Make the table of migrations, and its schema, unless they are there."""
    if has_store(conn):
        return
    # Looked for first: IF NOT EXISTS asks for the right to create it even where it exists.
    if not conn.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'penstock'").fetchone():
        conn.execute("CREATE SCHEMA penstock")
    conn.execute(_RECORD)
    revoke_writing(conn, _ALL)
