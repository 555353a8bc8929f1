"""What is remembered of a whole schema: the archive that it was made from, and how far it is."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from penstock.destination.postgres.sessions.session import Connection
from penstock.destination.protocols import Unrestored
from penstock.source.schema_dump import DumpFacts, SchemaDump

TABLE = """CREATE TABLE IF NOT EXISTS penstock.full_schema (
    pipeline text PRIMARY KEY,
    lsn bigint NOT NULL,
    archive bytea NOT NULL,
    facts jsonb NOT NULL,
    phase text NOT NULL,
    always_identity jsonb NOT NULL DEFAULT '[]',
    unrestored jsonb NOT NULL DEFAULT '[]'
)"""
NAME = "full_schema"

Phase = Literal["before", "after", "whole"]


@dataclass(frozen=True)
class IdentityColumn:
    """An identity column that is ALWAYS at the source; here it takes the source's values."""

    schema: str
    table: str
    column: str


@dataclass(frozen=True)
class SchemaRecord:
    """``phase`` is how far it is: what comes ``before`` the rows is made, what comes ``after``
    them, too, and ``whole`` once materialized views are filled.
    """

    dump: SchemaDump
    phase: Phase
    always: tuple[IdentityColumn, ...]


def is_recorded(conn: Connection) -> bool:
    """Whether the table is there: an earlier version had none."""
    row = conn.execute("SELECT to_regclass('penstock.full_schema') IS NOT NULL").fetchone()
    return bool(row and row[0])


def read_record(conn: Connection, pipeline: str) -> SchemaRecord | None:
    row = conn.execute(
        "SELECT lsn, archive, facts, phase, always_identity FROM penstock.full_schema"
        " WHERE pipeline = %s",
        [pipeline],
    ).fetchone()
    if row is None:
        return None
    lsn, archive, facts, phase, always = row
    dump = SchemaDump(bytes(archive), lsn, DumpFacts.from_json(facts))
    return SchemaRecord(dump, phase, tuple(IdentityColumn(**each) for each in always))


def add_record(
    conn: Connection,
    pipeline: str,
    dump: SchemaDump,
    always: Sequence[IdentityColumn],
    refused: Sequence[Unrestored],
) -> None:
    conn.execute(
        "INSERT INTO penstock.full_schema (pipeline, lsn, archive, facts, phase,"
        " always_identity, unrestored)"
        " VALUES (%s, %s, %s, %s::jsonb, 'before', %s::jsonb, %s::jsonb)",
        [
            pipeline,
            dump.lsn,
            dump.archive,
            dump.facts.to_json(),
            json.dumps([asdict(each) for each in always]),
            _as_json(refused),
        ],
    )


def add_unrestored(conn: Connection, pipeline: str, refused: Sequence[Unrestored]) -> None:
    """Those that are listed already are not listed twice."""
    if not refused:
        return
    before = read_unrestored(conn, pipeline)
    conn.execute(
        "UPDATE penstock.full_schema SET unrestored = %s::jsonb WHERE pipeline = %s",
        [_as_json([*before, *(each for each in refused if each not in before)]), pipeline],
    )


def replace_dump(
    conn: Connection,
    pipeline: str,
    dump: SchemaDump,
    refused: Sequence[Unrestored],
    made: Collection[str],
) -> None:
    """From now on the schema is compared with this one. What was ``made``, by its title, is not
    missing any more.
    """
    told = {*made, *(each.title for each in refused)}
    kept = [each for each in read_unrestored(conn, pipeline) if each.title not in told]
    conn.execute(
        "UPDATE penstock.full_schema SET lsn = %s, archive = %s, facts = %s::jsonb,"
        " unrestored = %s::jsonb WHERE pipeline = %s",
        [
            dump.lsn,
            dump.archive,
            dump.facts.to_json(),
            _as_json([*kept, *refused]),
            pipeline,
        ],
    )


def set_phase(conn: Connection, pipeline: str, phase: Phase) -> None:
    conn.execute(
        "UPDATE penstock.full_schema SET phase = %s WHERE pipeline = %s", [phase, pipeline]
    )


def read_unrestored(conn: Connection, pipeline: str) -> list[Unrestored]:
    row = conn.execute(
        "SELECT unrestored FROM penstock.full_schema WHERE pipeline = %s", [pipeline]
    ).fetchone()
    return [] if row is None else [Unrestored(**each) for each in row[0]]


def _as_json(refused: Sequence[Unrestored]) -> str:
    # jsonb has no NUL, and neither has any text of Postgres.
    return json.dumps([asdict(each) for each in refused])
