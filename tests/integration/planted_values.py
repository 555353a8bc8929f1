"""Values that rules cover, planted in every way that a source can show one, and a search for them.

Texts carry a mark, which is looked for as it is, in hexadecimal and in base64; numbers, uuids and
times are looked for one by one.
"""
# ruff: noqa: S608 (statements of a test)

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

MARK = "pl4ntedvalue"
_FIRST_ID = 7131713171310000
_DAY = "1971-02-03 04:05"
_KEY = "a key of the tests, of which nobody makes use"

TRANSFORM: dict[str, Any] = {
    "key": _KEY,
    "rules": [
        {
            "table": "people",
            "columns": {
                "id": "integer_key",
                "email": "email",
                "name": "person_name",
                "note": "redact",
                "big": {"use": "hash", "length": 32},
                "tags": {"use": "array", "each": {"use": "mask", "kind": "password"}},
                "doc": {
                    "use": "json",
                    "transform": {"mail": {"use": "email"}},
                    "delete": ["phone"],
                },
                "ext": "uuid",
                "seen": {"use": "truncate_time", "to": "year"},
                "photo": "hash",
                "iban": {"use": "mask", "keep_first": 1},
                "later*": "hash",
            },
        },
        {"table": "refusing", "columns": {"id": "integer_key", "email": "email"}, "keep": ["n"]},
        {"table": "loose", "columns": {"a": "hash"}, "keep": ["b", "k*"]},
        {"table": "aside", "columns": {"id": "integer_key", "code": "token"}},
    ],
}
COLUMNS_PLANTED = 11
"""Of each row of people."""

TABLES = (
    f"""CREATE TABLE people (
        id bigint PRIMARY KEY, email text DEFAULT '{MARK} default', name text, note text, big text,
        tags text[], doc jsonb, ext uuid, seen timestamp, photo bytea,
        iban varchar(40) CHECK (iban <> '{MARK} check'),
        is_boss boolean GENERATED ALWAYS AS (email = '{MARK} generated') STORED)""",
    f"CREATE INDEX ON people (email) WHERE name <> '{MARK} index'",
    f"CREATE INDEX ON people (email) WHERE id = {_FIRST_ID + 1}",
    "CREATE TABLE refusing (id bigint PRIMARY KEY, n int, email text)",
    "CREATE TABLE loose (a text, b int)",
    "ALTER TABLE loose REPLICA IDENTITY FULL",
    "CREATE TABLE aside (id bigint PRIMARY KEY, code text)",
)
KEYED = "ALTER TABLE loose ADD COLUMN key bigserial PRIMARY KEY"
"""For destinations that take no table without one."""
AT_TARGET = "CREATE TABLE refusing (id bigint PRIMARY KEY, n int CHECK (n >= 0), email text)"
"""A table whose target refuses what is below zero, and says so with the row."""


def _people(first: int, count: int) -> str:
    return (
        "INSERT INTO people (id, email, name, note, big, tags, doc, ext, seen, photo, iban)"
        f" SELECT {_FIRST_ID} + n, '{MARK}' || n || '@shop.de', '{MARK} ' || n,"
        f" 'write to {MARK}' || n || '@x.de, or call +49 30 ' || {_FIRST_ID} + n,"
        f" repeat('{MARK}' || md5(n::text), CASE WHEN n % 7 = 0 THEN 100 ELSE 1 END),"
        f" ARRAY['{MARK} a' || n, NULL],"
        f" jsonb_build_object('mail', '{MARK}j' || n || '@x.de', 'phone', '{MARK}p' || n, 'k', 1),"
        " ('7e577e57-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid,"
        f" timestamp '{_DAY}' + n * interval '1.000001 second',"
        f" convert_to('{MARK}b' || n, 'UTF8'), '{MARK}i' || n"
        f" FROM generate_series({first}, {first + count - 1}) n"
    )


def rows(count: int) -> Iterator[str]:
    """What is there before the pipeline starts."""
    yield _people(0, count)
    yield (
        f"INSERT INTO refusing SELECT {_FIRST_ID} + n, n - 5, '{MARK}r' || n || '@shop.de'"
        " FROM generate_series(1, 20) n"
    )
    yield f"INSERT INTO aside VALUES ({_FIRST_ID}, '12345678')"


def changes(count: int) -> Iterator[str]:
    """Old images and new ones, other keys, refused rows, defaults of later columns, messages."""
    yield _people(count, count // 4)
    yield f"UPDATE people SET email = '{MARK}u' || id || '@shop.de' WHERE id % 3 = 0"
    yield "UPDATE people SET id = id + 1000000 WHERE id % 5 = 0"
    yield "DELETE FROM people WHERE id % 11 = 0"
    yield f"INSERT INTO loose SELECT '{MARK}l' || n, n FROM generate_series(1, {count // 4}) n"
    yield "UPDATE loose SET b = b + 1"
    yield "DELETE FROM loose WHERE b % 2 = 0"
    yield f"ALTER TABLE people ALTER email SET DEFAULT '{MARK} later'"
    yield f"UPDATE refusing SET n = -1, email = '{MARK}s' || id WHERE n > 10"
    yield (
        f"INSERT INTO refusing SELECT {_FIRST_ID} + n, -n, '{MARK}t' || n"
        " FROM generate_series(30, 40) n"
    )
    yield f"ALTER TABLE people ADD COLUMN later1 text DEFAULT '{MARK} later column'"
    yield "UPDATE people SET name = name || '!' WHERE id % 13 = 0"
    yield f"SELECT pg_logical_emit_message(true, 'app', '{MARK} message')"


REFUSED_BY_A_RULE = f"INSERT INTO aside VALUES ({_FIRST_ID + 1}, '{MARK} 12')"
"""A token has more digits than that: the rule fails, on an executor."""


def planted(count: int) -> int:
    """How many values the statements have planted at least."""
    return (count + count // 4) * COLUMNS_PLANTED + count // 3 + count // 4


_MARKS = tuple(
    {
        MARK.encode(),
        MARK.upper().encode(),
        MARK.encode().hex().encode(),
        MARK.encode("utf-16-le"),
        # The same bytes look different at each of three places; their ends hang on what is beside.
        *(base64.b64encode(b" " * at + MARK.encode() + b" ")[at + 1 : -5] for at in range(3)),
        b"7e577e57-0000-4000-8000-",
        _DAY[:10].encode(),
    }
)
_SECOND = int(datetime.fromisoformat(_DAY).replace(tzinfo=UTC).timestamp())
# Within longer numbers, such as a position, these few digits may come by chance.
_NUMBERS = re.compile(rb"71317\d{11}|(?<!\d)%d\d{6}" % (_SECOND // 10000))


def with_planted(places: Mapping[str, bytes]) -> dict[str, bytes]:
    """The places that show a planted value, each with what is around the first."""
    found = {}
    for place, content in places.items():
        at = [where for mark in _MARKS if (where := content.find(mark)) >= 0]
        at += [match.start() for match in _NUMBERS.finditer(content) if _is_planted(match[0])]
        if at:
            found[place] = content[max(min(at) - 60, 0) : min(at) + 60]
    return found


def _is_planted(digits: bytes) -> bool:
    number = int(digits)
    return _FIRST_ID <= number < _FIRST_ID + 2_000_000 or len(digits) < 16
