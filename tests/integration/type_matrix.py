"""Every built-in type with its odd values, plain and inside of arrays, domains and composites."""

from __future__ import annotations

from dataclasses import dataclass

BIG = 50 * 2**20
"""The size of the largest value: 50 MB."""


@dataclass(frozen=True)
class MatrixType:
    """A type, and SQL for values of it. ``since`` is the first server version that has it all."""

    name: str
    values: tuple[str, ...]
    since: int = 0

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
    MatrixType("xml", ("'<a b=\"c\">&lt;</a>'", "''", "'text <b/>'")),
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
    MatrixType("xid8", ("'0'", "'18446744073709551615'")),
    MatrixType("int4range", ("'empty'", "'(,)'", "'[1,5)'", "'[,3]'")),
    MatrixType("numrange", ("'empty'", "'[1.10,2.2]'", "'(,0)'")),
    MatrixType("tstzrange", ("'empty'", "'[2026-01-15 12:00+02,infinity)'", "'(,)'")),
    MatrixType("daterange", ("'empty'", "'[2026-01-15,2026-01-16]'", "'(-infinity,infinity)'")),
    MatrixType("int8multirange", ("'{}'", "'{[1,3),[5,)}'")),
    MatrixType("nummultirange", ("'{}'", "'{[1.5,2],(3,4.0]}'")),
    MatrixType("m_mood", ("'calm'", "'it''s \"odd\", isn''t it'", "''")),
    MatrixType("m_range", ("'empty'", "'[a,b)'", '\'["a b","c\\"d"]\'')),
    MatrixType("interval second(2)", ("'1.005'", "'-59.99'")),
)

CREATE_TYPES = (
    "CREATE TYPE m_mood AS ENUM ('calm', 'it''s \"odd\", isn''t it', '')",
    'CREATE TYPE m_range AS RANGE (subtype = text, collation = "C")',
)


def create(kind: MatrixType) -> list[str]:
    """A table with a key, and one without, whose rows are told apart by all their values."""
    table, name = kind.table, kind.name
    return [
        f"CREATE DOMAIN {table}_d AS {name}",
        f"CREATE TYPE {table}_c AS (v {name}, t text, a {name}[])",
        f"CREATE TABLE {table} (id int PRIMARY KEY, v {name}, a {name}[], d {table}_d,"
        f" c {table}_c, cs {table}_c[])",
        f"CREATE TABLE {table}_full (v {name}, a {name}[])",
        f"ALTER TABLE {table}_full REPLICA IDENTITY FULL",
    ]


def rows(kind: MatrixType, first: int) -> list[str]:
    """Statements that write every value in every form, with ids from ``first`` on."""
    statements = [f"INSERT INTO {kind.table} (id) VALUES ({first})"]  # all null
    for number, value in enumerate(kind.values, start=first + 1):
        typed = f"({value})::{kind.name}"
        composite = f"ROW({typed}, E'a \"b\" \\\\ (c), d', ARRAY[{typed}, NULL])::{kind.table}_c"
        statements += [
            f"INSERT INTO {kind.table} VALUES ({number}, {typed}, ARRAY[{typed}, NULL, {typed}],"
            f" {typed}, {composite}, ARRAY[{composite}, NULL])",
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
