"""What Redshift refuses or takes for something else, as far as it is documented: a deny-list.

Postgres, which stands in for Redshift in tests, takes most of it. So every statement is looked
through before.
"""

from __future__ import annotations

import re

_STRING = re.compile(r"'(?:[^']|'')*'")
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_MOST_BYTES = 16 * 2**20
_LONGEST_NAME = 127

_DENIED = {
    r"\bTRUNCATE\b": "TRUNCATE commits the transaction that it stands in",
    r"\bMERGE\b": "MERGE has one branch of each kind, and no conditions",
    r"\bON CONFLICT\b": "there is no ON CONFLICT",
    r"\bRETURNING\b": "there is no RETURNING",
    r"\bCREATE (UNIQUE )?INDEX\b": "there are no indexes",
    r"\bIS (NOT )?DISTINCT FROM\b": "there is no IS DISTINCT FROM",
    r"\bDISTINCT ON\b": "there is no DISTINCT ON",
    r"\bFILTER\s*\(": "aggregates take no FILTER",
    r"\bLATERAL\b": "there is no LATERAL",
    r"\b(GENERATE_SERIES|UNNEST|STRING_AGG|ARRAY_AGG|TO_JSON|JSONB?_\w+_AGG)\b": "no such function",
    r"\b(JSONB?|BYTEA|UUID|INET|HSTORE|SERIAL|BIGSERIAL|MONEY|XML)\b": "there is no such type",
    r"\bTEXT\b": "TEXT is VARCHAR(256)",
    r"\bVARCHAR\b(?!\()(?! \|\||\) \|\|)": "VARCHAR without a length is VARCHAR(256)",
    r"\[\]|\bARRAY\[": "there are no arrays",
    r"\bADD COLUMN IF\b|\bDROP COLUMN IF\b": "columns know no IF EXISTS",
    r"\bUNLOGGED\b|\bTABLESPACE\b|\bINHERITS\b": "there is no such kind of table",
    r"\bFROM STDIN\b|\bFROM PROGRAM\b": "COPY reads from S3",
    r"\bDELETE FROM \S+ (?!USING|WHERE)\w": "DELETE gives its table no other name",
    r"\bDELETE FROM .* USING \S+ (?!WHERE)\w": "USING names tables, without other names",
    r"\bWITH\b.*\b(DELETE|UPDATE|INSERT)\b": "WITH stands before SELECT alone",
    r"\bE(?=')": "strings with escapes are another dialect's",
    r"::\s*(JSON|TEXT|BYTEA)": "there is no such type",
}


def complaints(statement: str, *, in_transaction: bool) -> list[str]:
    """What Redshift would not do, or do otherwise, in this statement."""
    found = []
    if any("\\" in literal for literal in _STRING.findall(statement)):
        found.append("a backslash in a literal means something else")
    names = _QUOTED.findall(_STRING.sub("''", statement))
    if any(char.isascii() and char.isupper() for name in names for char in name):
        found.append("names have no case")
    if any(len(name.encode()) - 2 > _LONGEST_NAME for name in names):
        found.append(f"names have {_LONGEST_NAME} bytes at most")
    if len(statement.encode()) > _MOST_BYTES:
        found.append("statements have 16 MB at most")
    bare = _QUOTED.sub("name", _STRING.sub("''", statement)).upper()
    bare = bare.replace("NAME", "name")
    for pattern, why in _DENIED.items():
        if re.search(pattern, bare):
            found.append(why)
    if bare.startswith("ALTER TABLE"):
        if len(re.findall(r"\b(ADD|DROP|RENAME) COLUMN\b", bare)) > 1:
            found.append("ALTER TABLE does one thing at a time")
        if in_transaction and re.search(r"\bALTER COLUMN\b", bare):
            found.append("ALTER COLUMN … TYPE cannot run inside of a transaction")
    if bare.count(";") > bare.rstrip().endswith(";"):
        found.append("one statement at a time")
    return found
