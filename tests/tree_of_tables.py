"""Ten tables that refer to each other, rules that change all of their keys, and random changes."""
# ruff: noqa: S608 (statements of a test)

from __future__ import annotations

import random
from collections.abc import Iterator

KEY = "a key of the tests, of which nobody makes use"
PLANTED = "pl4nted"
TREE = range(10)
"""Ten tables, each with rows of the one before as parents."""


def schema() -> Iterator[str]:
    for number in TREE:
        parent = f"REFERENCES t{number - 1} (id) ON UPDATE CASCADE" if number else ""
        yield (
            f"CREATE TABLE t{number} (id int PRIMARY KEY, parent int {parent}, "
            "code uuid UNIQUE DEFAULT gen_random_uuid(), email varchar(80) UNIQUE, "
            "born date, big text, tags text[], doc jsonb, plain text)"
        )
        # Apart from its row, as it is: an update that does not change it does not send it.
        yield f"ALTER TABLE t{number} ALTER big SET STORAGE EXTERNAL"
    yield "ALTER TABLE t3 REPLICA IDENTITY FULL"
    yield "CREATE TABLE loose (a text, b text)"
    yield "ALTER TABLE loose REPLICA IDENTITY FULL"


RULES = [
    {
        "table": "t?",
        "columns": {
            "id": "integer_key",
            "parent": "integer_key",
            "code": "uuid",
            "email": "email",
            "born": {"use": "shift", "by": "id"},
            "big": "hash",
            "tags": {"use": "array", "each": {"use": "mask", "kind": "name"}},
            "doc": {"use": "json", "transform": {"mail": {"use": "email"}}, "delete": ["phone"]},
        },
        "keep": ["plain"],
    },
    # Of a table with whole old rows: a large value, and a condition that updates change.
    {"table": "t3", "columns": {"big": {"use": "hash", "when": "plain <> 'open'"}}},
    {"table": "loose", "columns": {"a": "first_name"}, "keep": ["b"]},
]


class Changes:
    """Random changes, all of which the constraints of the source allow."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._next = 0

    def statements(self, count: int) -> Iterator[str]:
        for _ in range(count):
            yield getattr(self, self._random.choice(("add", "add", "edit", "move", "drop")))()

    def add(self) -> str:
        self._next += 1
        number, key = self._random.choice(TREE), self._next
        parent = f"(SELECT id FROM t{number - 1} ORDER BY random() LIMIT 1)" if number else "NULL"
        big = (
            f"(SELECT string_agg(md5('{PLANTED}{key}.' || n), '') "
            f"FROM generate_series(1, {self._random.choice((1, 100))}) n)"
        )
        return (
            f"INSERT INTO t{number} (id, parent, email, born, big, tags, doc, plain) VALUES ("
            f"{key}, {parent}, '{PLANTED}{key}@shop.de', '1980-01-01'::date + {key}, {big}, "
            f"ARRAY['{PLANTED}{key}', NULL], "
            f'\'{{"mail": "{PLANTED}{key}", "phone": "{PLANTED}", "n": 1.50}}\', '
            f"'{self._random.choice(('open', 'closed'))}')"
        )

    def edit(self) -> str:
        number = self._random.choice(TREE)
        column = self._random.choice(
            ("plain = plain || '.'", "born = born + 1", f"email = '{PLANTED}' || id || 'b@x.de'")
        )
        return f"UPDATE t{number} SET {column} WHERE id % 3 = {self._random.randrange(3)}"

    def move(self) -> str:
        number = self._random.choice(TREE)
        self._next += 1
        return (
            f"UPDATE t{number} SET id = {self._next} WHERE id = "
            f"(SELECT id FROM t{number} ORDER BY random() LIMIT 1)"
        )

    def drop(self) -> str:
        number = self._random.choice(TREE)
        children = f"SELECT parent FROM t{number + 1}" if number + 1 in TREE else "SELECT NULL::int"
        return (
            f"DELETE FROM t{number} t WHERE id % 5 = {self._random.randrange(5)} AND NOT EXISTS "
            f"(SELECT FROM ({children}) AS c (parent) WHERE c.parent = t.id)"
        )
