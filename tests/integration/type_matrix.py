"""Every built-in type with its odd values, plain and inside of arrays, domains and composites.

Of xml there are none: the servers of these tests were built without libxml and make no such value.
"""
# ruff: noqa: S608 - the statements are made of what stands in this file.

from __future__ import annotations

from dataclasses import dataclass

BIG = 50 * 2**20
"""The size of the largest value: 50 MB."""


@dataclass(frozen=True)
class MatrixType:
    """A type, and SQL for values of it."""

    name: str
    values: tuple[str, ...]

    @property
    def table(self) -> str:
        plain = "".join(char if char.isalnum() else "_" for char in self.name)
        return f"m_{plain}"


_DATES = ("'2026-01-15'", "'4713-01-01 BC'", "'infinity'", "'-infinity'")
_STAMPS = (
    *("'2026-01-15 12:34:56.789012'", "'294276-12-31 23:59:59.999999'", "'4713-01-01 00:00:00 BC'"),
    *("'infinity'", "'-infinity'", "'2000-01-01'"),
)
_TEXTS = (
    *("''", "' '", "'plain'", r"E'tab\t newline\n return\r backslash\\ bell\x07 quote\''"),
    *("'\"quoted\", {braces} (parens), NULL'", "'NULL'", r"'\N'", "'😀 ﷽ é'", "repeat('x', 9000)"),
)

TYPES = (
    MatrixType("smallint", ("0", "-32768", "32767")),
    MatrixType("integer", ("0", "-2147483648", "2147483647")),
    MatrixType("bigint", ("0", "-9223372036854775808", "9223372036854775807")),
    MatrixType(
        "numeric",
        (
            *("0", "-0.0", "1e-1000", "'NaN'", "('1' || repeat('0', 999))::numeric"),
            *("0.10", "123456789012345678901234567890.123456789"),
        ),
    ),
    MatrixType("numeric(12,2)", ("0", "9999999999.99", "-0.01", "'NaN'")),
    MatrixType(
        "real", ("0", "'-0'", "'NaN'", "'Infinity'", "'-Infinity'", "1.17549435e-38", "0.1")
    ),
    MatrixType(
        "double precision",
        ("0", "'-0'", "'NaN'", "'Infinity'", "'-Infinity'", "4.9406564584124654e-324", "0.1"),
    ),
    MatrixType("money", ("'0'", "'-92233720368547758.08'", "'92233720368547758.07'")),
    MatrixType("boolean", ("true", "false")),
    MatrixType("text", _TEXTS),
    MatrixType("varchar(40)", _TEXTS[:-1]),
    MatrixType("char(8)", ("''", "'ab'", "'  ab'", "'é'")),
    MatrixType('"char"', ("'a'", "''", r"'\377'::\"char\"".replace('\\"', '"'))),
    MatrixType("name", ("''", "'a name'", "repeat('n', 63)")),
    MatrixType("bytea", ("''", r"'\x00ff5c27'", r"decode(repeat('00ff', 5000), 'hex')")),
    MatrixType("date", (*_DATES, "'5874897-12-31'", "'0001-12-31 BC'")),
    MatrixType("time", ("'00:00'", "'24:00'", "'23:59:59.999999'")),
    MatrixType("timetz", ("'00:00+15:59'", "'24:00-15:59'", "'12:00:00.000001+00'")),
    MatrixType("timestamp", _STAMPS),
    MatrixType("timestamptz", _STAMPS),
    MatrixType("timestamptz(3)", ("'2026-01-15 12:34:56.7895+02'", "'infinity'")),
    MatrixType(
        "interval",
        ("'0'", "'178000000 years'", "'-1 month 1 day -00:00:00.000001'", "'1 year -1 day'"),
    ),
    MatrixType("uuid", ("'00000000-0000-0000-0000-000000000000'", "gen_random_uuid()")),
    MatrixType(
        "json", ("'null'", """'{"b":1,  "a": [1, {}], "b":2}'""", "'\"\\u0000\"'", "'1e400'")
    ),
    MatrixType("jsonb", ("'null'", """'{"b":1, "a": [1, {}]}'""", "'\"😀\"'", "'1e100'")),
    MatrixType("jsonpath", ("'$.a[*] ? (@ > 1)'",)),
    MatrixType("inet", ("'0.0.0.0/0'", "'10.1.2.3/24'", "'::1'", "'2001:db8::/32'")),
    MatrixType("cidr", ("'0.0.0.0/0'", "'10.1.2.0/24'", "'2001:db8::/32'")),
    MatrixType("macaddr", ("'00:00:00:00:00:00'", "'ff:ff:ff:ff:ff:ff'")),
    MatrixType("macaddr8", ("'00:00:00:00:00:00:00:00'", "'08:00:2b:01:02:03:04:05'")),
    MatrixType("bit(4)", ("'0000'", "'1010'")),
    MatrixType("varbit", ("''", "'1'", "repeat('10', 500)::varbit")),
    MatrixType("point", ("'(0,0)'", "'(-0,1e300)'", "'(NaN,Infinity)'")),
    MatrixType("line", ("'{1,-1,0}'",)),
    MatrixType("lseg", ("'[(0,0),(1,1)]'",)),
    MatrixType("box", ("'(1,1),(0,0)'",)),
    MatrixType("path", ("'[(0,0),(1,1)]'", "'((0,0),(1,1),(2,0))'")),
    MatrixType("polygon", ("'((0,0),(1,1),(2,0))'",)),
    MatrixType("circle", ("'<(0,0),0>'", "'<(1.5,-2),3>'")),
    MatrixType("tsvector", ("''", "'a:1A ''it''''s'':2B,3'")),
    MatrixType("tsquery", ("''", "'a & !b | ''c d'':*A'")),
    MatrixType("pg_lsn", ("'0/0'", "'FFFFFFFF/FFFFFFFF'")),
    MatrixType("oid", ("0", "4294967295")),
    MatrixType("xid", ("'0'", "'4294967295'")),
    MatrixType("cid", ("'0'", "'4294967295'")),
    MatrixType("tid", ("'(0,0)'", "'(4294967295,65535)'")),
    MatrixType("oidvector", ("''", "'1 2 4294967295'")),
    MatrixType("int2vector", ("''", "'1 -2 32767'")),
    MatrixType("regtype", ("'integer'", "'text[]'")),
    MatrixType("regclass", ("'pg_class'", "'pg_type'")),
    MatrixType("regproc", ("'now'", "'version'")),
    MatrixType("refcursor", ("''", "'a \"cursor\"'")),
    MatrixType("pg_snapshot", ("'10:20:10,14,15'",)),
    MatrixType("txid_snapshot", ("'10:20:10,14,15'",)),
    MatrixType("xid8", ("'0'", "'18446744073709551615'")),
    MatrixType("int4range", ("'empty'", "'(,)'", "'[1,5)'", "'[,3]'")),
    MatrixType("int8range", ("'empty'", "'(,)'", "'[-9223372036854775808,5)'")),
    MatrixType("tsrange", ("'empty'", "'[4713-01-01 BC,2026-01-15)'", "'(,infinity]'")),
    MatrixType("numrange", ("'empty'", "'[1.10,2.2]'", "'(,0)'")),
    MatrixType("tstzrange", ("'empty'", "'[2026-01-15 12:00+02,infinity)'", "'(,)'")),
    MatrixType("daterange", ("'empty'", "'[2026-01-15,2026-01-16]'", "'(-infinity,infinity)'")),
    MatrixType("int8multirange", ("'{}'", "'{[1,3),[5,)}'")),
    MatrixType("int4multirange", ("'{}'", "'{(,0),[5,9)}'")),
    MatrixType("datemultirange", ("'{}'", "'{[2026-01-15,2026-01-16),[2026-02-01,)}'")),
    MatrixType("tsmultirange", ("'{}'", "'{(,4713-01-01 BC),[2026-01-15,infinity)}'")),
    MatrixType("tstzmultirange", ("'{}'", "'{[2026-01-15 12:00+02,)}'")),
    MatrixType("nummultirange", ("'{}'", "'{[1.5,2],(3,4.0]}'")),
    MatrixType("m_mood", ("'calm'", "'it''s \"odd\", isn''t it'", "''")),
    MatrixType("m_range", ("'empty'", "'[a,b)'", '\'["a b","c\\"d"]\'')),
    MatrixType("m_inner", ("ROW(1, 'calm')", "ROW(NULL, NULL)", "ROW(-1, '')")),
    MatrixType("m_outer", ("ROW(ROW(1, 'calm'), ARRAY[ROW(2, '')::m_inner, NULL], '{a}')",)),
    MatrixType("m_spans", ("'{}'", "'{[a,b),[c,d)}'")),
    MatrixType("interval second(2)", ("'1.005'", "'-59.99'")),
)

CREATE_TYPES = (
    "CREATE TYPE m_mood AS ENUM ('calm', 'it''s \"odd\", isn''t it', '')",
    "CREATE TYPE m_range AS RANGE (subtype = text, multirange_type_name = m_spans)",
    "CREATE DOMAIN m_words AS text[]",
    "CREATE TYPE m_inner AS (n int, feels m_mood)",
    "CREATE TYPE m_outer AS (one m_inner, many m_inner[], words m_words)",
)


def create(kind: MatrixType) -> list[str]:
    """A table with a key, and one without, whose rows are told apart by all their values."""
    table, name = kind.table, kind.name
    forms = f"v {name}, a {name}[], d {table}_d, c {table}_c, cs {table}_c[]"
    return [
        f"CREATE DOMAIN {table}_d AS {name}",
        f"CREATE TYPE {table}_c AS (v {name}, t text, a {name}[])",
        f"CREATE TABLE {table} (id int PRIMARY KEY, {forms})",
        f"CREATE TABLE {table}_full (v {name}, a {name}[])",
        f"ALTER TABLE {table}_full REPLICA IDENTITY FULL",
    ]


def rows(kind: MatrixType, first: int) -> list[str]:
    """Statements that write every value in every form, with ids from ``first`` on."""
    nothing = f"INSERT INTO {kind.table} (id) VALUES ({first})"
    statements = [nothing]
    for number, value in enumerate(kind.values, start=first + 1):
        typed = f"({value})::{kind.name}"
        composite = f"ROW({typed}, E'a \"b\" \\\\ (c), d', ARRAY[{typed}, NULL])::{kind.table}_c"
        forms = f"{typed}, ARRAY[{typed}, NULL, {typed}], {typed}, {composite}"
        statements += [
            f"INSERT INTO {kind.table} VALUES ({number}, {forms}, ARRAY[{composite}, NULL])",
            f"INSERT INTO {kind.table}_full VALUES ({typed}, ARRAY[{typed}])",
        ]
    typed = f"({kind.values[-1]})::{kind.name}"
    last = first + len(kind.values) + 1
    shapes = (
        f"'{{}}'::{kind.name}[]",
        f"ARRAY[ARRAY[{typed}, NULL], ARRAY[NULL, {typed}]]",
        f"array_fill({typed}, ARRAY[2, 1], ARRAY[-3, 7])",
    )
    statements += [
        f"INSERT INTO {kind.table} (id, a) VALUES ({number}, {shape})"
        for number, shape in enumerate(shapes, start=last)
    ]
    return statements


def moves(kind: MatrixType, step: int) -> list[str]:
    """Statements that update every form from nothing and to nothing, and delete rows that are told
    by all their values.
    """
    table, twins = (
        kind.table,
        f"SELECT min(ctid::text)::tid FROM {kind.table}_full GROUP BY v::text",
    )
    forms = "v = s.v, a = s.a, d = s.d, c = s.c, cs = s.cs"
    return [
        f"INSERT INTO {table} (id) SELECT id + {step * 2} FROM {table} WHERE id < {step}",
        f"UPDATE {table} t SET {forms} FROM {table} s WHERE t.id = s.id + {step * 2}",
        f"UPDATE {table} SET v = NULL, d = NULL WHERE id BETWEEN 2 AND 3",
        f"DELETE FROM {table}_full WHERE ctid IN ({twins})",
    ]
