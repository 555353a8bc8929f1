"""What pipelines into lakes and warehouses are brought: rows, changes, and tables that change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import psycopg

from tests.integration.type_matrix import CREATE_TYPES, MatrixType, create, moves, rows

BEFORE = (
    "CREATE TABLE loose (a int, b text)",
    "ALTER TABLE loose REPLICA IDENTITY FULL",
    "INSERT INTO loose SELECT n % 7, 'twice' FROM generate_series(1, 50) n",
    "CREATE TABLE gone (id int PRIMARY KEY, note text, at date, price numeric(10,2))",
    "INSERT INTO gone VALUES (1, 'x', '2026-01-15', 1.5)",
    "INSERT INTO gone VALUES (2, E'y\\n\"\\\\N', '0001-01-01', NULL)",
    "CREATE TABLE empty (id uuid PRIMARY KEY, doc jsonb)",
)
"""Tables beside ``items``, with rows."""
MOVES = (
    "UPDATE items SET note = 'the body is not sent' WHERE id < 100",
    "UPDATE items SET id = id + 100000 WHERE id BETWEEN 50 AND 150",
    "UPDATE items SET id = -id WHERE id IN (1, 2)",
    "UPDATE items SET id = 3 - abs(id) WHERE id IN (-1, -2)",
    "DELETE FROM items WHERE id BETWEEN 200 AND 210",
)
"""Rows of ``items`` that change, move, exchange keys and go; the TOASTed column is not sent."""
AFTER = (
    *MOVES,
    "INSERT INTO loose VALUES (1, 'twice'), (1, NULL)",
    "TRUNCATE gone",
    "INSERT INTO gone VALUES (2, 'again', NULL, 3)",
    """INSERT INTO empty SELECT gen_random_uuid(), '{"a": [1, null]}'""",
    "ALTER TABLE gone RENAME note TO text",
    "ALTER TABLE gone ADD more text DEFAULT 'it''s \\', ADD bytes bytea DEFAULT '\\x00ff'",
    "ALTER TABLE gone ADD list int[] DEFAULT '{1,2}', DROP at",
    "ALTER TABLE gone ALTER price TYPE numeric(12,2)",
    "INSERT INTO gone VALUES (3, 'new', 1234567890.12, NULL, NULL, '{3}')",
    "UPDATE gone SET id = 4 WHERE id = 2",
    "ALTER TABLE gone RENAME TO kept",
)
"""Changes of all of them; ``gone`` is called ``kept`` in the end."""
FOLLOWED = (
    "TRUNCATE gone",
    "INSERT INTO gone VALUES (2, 'again', NULL, 3)",
    "ALTER TABLE gone RENAME note TO text",
    "ALTER TABLE gone ADD more text, ADD list int[]",
    "INSERT INTO gone VALUES (3, 'new', '2026-01-15', 1.5, 'm', '{1,NULL}')",
    "ALTER TABLE gone ALTER price TYPE numeric(12,2)",
    "ALTER TABLE gone DROP text",
    "ALTER TABLE gone ADD text bytea",
    "UPDATE gone SET id = 4, text = '\\x00ff' WHERE id = 2",
    "ALTER TABLE gone RENAME TO kept",
    """INSERT INTO empty SELECT gen_random_uuid(), '{"a": [1, null]}'""",
)
"""What becomes of ``gone``, which is called ``kept`` in the end: every column is known."""
WITHOUT_A_KEY = "DELETE FROM loose WHERE ctid IN (SELECT ctid FROM loose WHERE a = 3 LIMIT 2)"
"""Where rows of such tables can go."""

_STEP = 1000


class TypedPipeline(Protocol):
    """A pipeline into something with types of its own."""

    def configure(self, *, unfit: str) -> None: ...

    def run_until_caught_up(self) -> None: ...

    def expect_equal(self, *tables: str, unfit: bool) -> None: ...


def deliver_every_type(
    pipeline: TypedPipeline, url: str, kinds: Sequence[MatrixType], *, keyless: bool = True
) -> None:
    """Rows of all types, copied and changed. Values that do not fit are null, all others equal.
    Tables without a key are set aside where not ``keyless``.
    """
    _execute(url, [*CREATE_TYPES, *(each for kind in kinds for each in create(kind))])
    _execute(url, [each for kind in kinds for each in rows(kind, 1)])
    pipeline.configure(unfit="null")
    pipeline.run_until_caught_up()
    changes = [each for kind in kinds for each in rows(kind, _STEP)]
    for kind in kinds:
        changes += moves(kind, _STEP)
    _execute(url, changes)
    pipeline.run_until_caught_up()
    tables = [kind.table for kind in kinds]
    if keyless:
        tables += [f"{kind.table}_full" for kind in kinds]
    pipeline.expect_equal(*tables, unfit=True)


def _execute(url: str, statements: Sequence[str]) -> None:
    with psycopg.connect(url) as conn:
        for statement in statements:
            conn.execute(statement.encode())
