"""The tables of the random load: each stands for one way in which rows are told apart."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import psycopg

Connection = psycopg.Connection[Any]

# Values from 2 kB on leave the row, uncompressed: an update of other columns skips them.
SCHEMA: dict[str, tuple[str, ...]] = {
    "accounts": (
        """CREATE TABLE accounts (id bigint PRIMARY KEY, name text NOT NULL, balance numeric,
           tags text[], doc jsonb, seen timestamptz, active boolean, body text)""",
        "ALTER TABLE accounts ALTER body SET STORAGE EXTERNAL",
    ),
    "Key Pairs": (
        """CREATE TABLE "Key Pairs" ("left" int, "ri""ght" text, note text, body text,
           PRIMARY KEY ("left", "ri""ght"))""",
        'ALTER TABLE "Key Pairs" ALTER body SET STORAGE EXTERNAL',
    ),
    # No key at all: rows that are alike count.
    "journal": (
        "CREATE TABLE journal (line text, amount numeric, body text)",
        "ALTER TABLE journal ALTER body SET STORAGE EXTERNAL",
        "ALTER TABLE journal REPLICA IDENTITY FULL",
    ),
    "visits": (
        "CREATE TABLE visits (number bigserial, at timestamptz, path text NOT NULL)",
        "CREATE UNIQUE INDEX visit ON visits (path, number)",
        "ALTER TABLE visits REPLICA IDENTITY USING INDEX visit",
    ),
    # The identity is not the primary key, which is one more unique index to those who merge.
    "parcels": (
        """CREATE TABLE parcels (id bigint PRIMARY KEY, code text NOT NULL, lane int NOT NULL,
           weight int, body text)""",
        "ALTER TABLE parcels ALTER body SET STORAGE EXTERNAL",
        "CREATE UNIQUE INDEX parcel ON parcels (code, lane)",
        "ALTER TABLE parcels REPLICA IDENTITY USING INDEX parcel",
    ),
    "ledger": (
        "CREATE TABLE ledger (id bigint PRIMARY KEY, amount numeric, body text)",
        "ALTER TABLE ledger ALTER body SET STORAGE EXTERNAL",
        "ALTER TABLE ledger REPLICA IDENTITY FULL",
    ),
    "seats": ("CREATE TABLE seats (id int PRIMARY KEY, place int NOT NULL UNIQUE, note text)",),
    "badges": (
        """CREATE TABLE badges (id int PRIMARY KEY, number int NOT NULL
           UNIQUE DEFERRABLE INITIALLY DEFERRED, body text)""",
        "ALTER TABLE badges ALTER body SET STORAGE EXTERNAL",
    ),
    # Nothing but inserts and, now and then, TRUNCATE: more than these could not be followed.
    "audit": (
        "CREATE TABLE audit (line text, at timestamptz)",
        "ALTER TABLE audit REPLICA IDENTITY NOTHING",
    ),
    # What all rows of both hold together is zero after every transaction.
    "left_balance": ("CREATE TABLE left_balance (id int PRIMARY KEY, amount bigint NOT NULL)",),
    "right_balance": ("CREATE TABLE right_balance (id int PRIMARY KEY, amount bigint NOT NULL)",),
}
TABLES = tuple(SCHEMA)
INSERT_ONLY = ("audit",)
"""Tables for `source.tables.insert_only`."""
SECONDARY_UNIQUE = ("seats", "badges")
"""Tables with unique columns beside the key, which Penstock does not make at a destination."""
TEXTS = ("plain", "", "äöü €", "tab\tnew\nline", "back\\slash", "'quoted\"", "\u2028 {,}", "NULL")
BALANCES = """
    SELECT coalesce((SELECT sum(amount) FROM left_balance), 0)::bigint,
           coalesce((SELECT sum(amount) FROM right_balance), 0)::bigint"""
"""One statement, so one snapshot: the two must cancel each other out."""


def create_tables(url: str, tables: Sequence[str] = TABLES) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        for table in tables:
            for statement in SCHEMA[table]:
                conn.execute(statement.encode())


def execute(conn: Connection, statement: str, *values: object) -> int:
    """Run it; how many rows it changed."""
    return conn.execute(statement.encode(), values or None).rowcount


def private_key(conn: Connection) -> int:
    """A key of this session only, so that two swaps by way of a third value do not meet there."""
    return -1 - conn.info.backend_pid


def body(chance: random.Random) -> str | None:
    """Nothing, a short value, or one that is stored out of line."""
    return chance.choice((None, "short", chance.choice("abcäö") * chance.randint(3000, 9000)))
