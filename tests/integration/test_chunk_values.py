"""Chunks have the values that the stream has, of every type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from psycopg import sql
from psycopg.pq import ExecStatus

from penstock.config.connection_url import ConnectionUrl
from penstock.decode.flat_columns import flat_table
from penstock.decode.flat_rows import decode_columns
from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.errors import (
    SourceError,
)
from penstock.model.value_settings import VALUE_SETTINGS
from penstock.source.postgres.snapshot.source_session import close_idle_sessions
from tests.application_session import connect
from tests.fix_postgres import drop_database

if TYPE_CHECKING:
    from tests.fix_copy import Connection, Copies, Copy

pytest_plugins = ["tests.fix_copy"]


@pytest.fixture
def conn(database: str) -> Iterator[Connection]:
    with connect(database) as connection:
        yield connection


def text_columns(conn: Connection, query: str) -> list[pa.Array]:
    """What the output functions of the types write under capture's settings, as pgoutput does."""
    for setting in (*VALUE_SETTINGS, "SET search_path TO public"):
        conn.execute(setting.encode())
    result = conn.pgconn.exec_(query.encode())
    assert result.status == ExecStatus.TUPLES_OK, result.error_message
    columns = []
    for column in range(result.nfields):
        values = [result.get_value(row, column) for row in range(result.ntuples)]
        columns.append(pa.array([None if v is None else v.decode() for v in values], pa.string()))
    return columns


VALUES: dict[str, Sequence[str]] = {
    "bool": ["t", "f"],
    "smallint": ["-32768", "32767"],
    "int": ["-2147483648", "0"],
    "bigint": ["-9223372036854775808", "9223372036854775807"],
    "oid": ["4294967295"],
    "xid8": ["18446744073709551615"],
    "real": ["NaN", "Infinity", "-Infinity", "-0", "1e-45", "0.1"],
    "double precision": ["NaN", "Infinity", "-Infinity", "-0", "5e-324", "0.1"],
    "numeric": ["NaN", "0.00", "-1e300", "123456789012345678901234567890.5"],
    "numeric(12,2)": ["NaN", "-9999999999.99", "0", "0.05", "1"],
    "numeric(60,3)": ["999999999999999999999999999999999999999999999999999999999.999"],
    "text": ["", "a\tb\\c\n\r", "ein Flüßchen 🦀", "NULL", "\\N"],
    "varchar(9)": ["", "x "],
    "char(5)": ["", "ab "],
    '"char"': ["", "x"],
    "name": ["n"],
    "bytea": ["", "\\x00ff", "\\xdeadbeef"],
    "date": [
        "infinity", "-infinity", "4714-11-24 BC", "0001-12-31 BC", "1970-01-01", "5874897-12-31",
    ],
    "time": ["24:00:00", "00:00:00.000001"],
    "timetz": ["01:02:03.4+05:30"],
    "timestamp": [
        "infinity", "-infinity", "4714-11-24 00:00:00 BC", "0044-03-15 12:00:00 BC",
        "1969-12-31 23:59:59.999999", "12024-01-01", "294247-01-10 04:00:54.775807",
        "294247-01-10 04:00:54.775808", "294247-12-31 00:00:00.5", "294276-12-31 23:59:59.999999",
    ],
    "timestamptz": [
        "infinity", "-infinity", "4714-11-24 00:00:00+00 BC", "2024-06-01 12:00:00.1+02",
        "294247-01-10 04:00:54.775808+00", "294276-02-29 01:00:00+00",
    ],
    "timestamptz(0)": ["2024-06-01 12:00:00.6+02"],
    "interval": ["1 year -2 mons +3 days -04:05:06.7", "00:00:00"],
    "uuid": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    "json": ['{"a" : 1,\n "b":[null]}'],
    "jsonb": ['{"a": 1, "b": [null, "\\\\ \\" ü"]}', "null"],
    "inet": ["10.0.0.1", "10.0.0.0/8", "::1"],
    "cidr": ["10.0.0.0/8"],
    "bit(3)": ["101"],
    "money": ["-1.50"],
    "int4range": ["[1,5)", "empty"],
    "point": ["(1,2)"],
    "tsvector": ["'a':1 'b'"],
    "pg_lsn": ["16/B374D848"],
    "regclass": ["pg_class"],
    "int[]": ["{}", "{1,NULL,-3}", "{{1,2},{3,4}}", "[0:1]={5,6}", "{NULL}"],
    "text[]": ['{a,"",NULL,"NULL","b c","q\\"\\\\,{}"}', "{}", "{{a},{b}}", "[2:2]={x}"],
    "varchar(3)[]": ["{abc,NULL}"],
    "char(3)[]": ["{a}"],
    "bool[]": ["{t,f,NULL}"],
    "real[]": ["{NaN,-Infinity,0.1}"],
    "double precision[]": ["{NaN,1e300}"],
    "numeric(6,2)[]": ["{1.50,NULL}", "{NaN}"],
    "timestamptz[]": ['{"2024-01-01 00:00:00+00",NULL}', "{infinity}"],
    "date[]": ["{2024-01-01,-infinity}"],
    "bytea[]": ['{"\\\\x00ff",NULL}'],
    "jsonb[]": ['{"{\\"a\\": 1}"}'],
    "uuid[]": ["{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}"],
    "mood": ["sad", "very glad"],
    "mood[]": ['{sad,"very glad"}'],
    "price": ["1.50"],
    "price[]": ["{1.50,NULL}"],
    "yes": ["t", "f"],
    "tags": ["{a,b}", "{{a},{b}}"],
    "since": ["infinity", "2024-01-01"],
    "pair": ["(1,)", "(,)"],
    "shout": ["quiet"],
}  # fmt: skip

TYPES = """
CREATE TYPE mood AS ENUM ('sad', 'very glad');
CREATE DOMAIN price AS numeric(8, 2);
CREATE DOMAIN yes AS boolean;
CREATE DOMAIN tags AS text[];
CREATE DOMAIN since AS date;
CREATE TYPE pair AS (a int, b text);
CREATE TYPE shout AS ENUM ('quiet');
CREATE FUNCTION loudly(shout) RETURNS text LANGUAGE sql AS $$ SELECT 'LOUD' $$;
CREATE CAST (shout AS text) WITH FUNCTION loudly(shout);
"""


def create_values(conn: Connection) -> None:
    """A table of all types; its last row is null throughout."""
    conn.execute(TYPES)
    columns = ", ".join(f"c{place} {kind}" for place, kind in enumerate(VALUES))
    conn.execute(f"CREATE TABLE v ({columns})".encode())
    target = conn.pgconn
    marks = ", ".join(f"${place + 1}" for place in range(len(VALUES)))
    rows = [*zip_longest(*VALUES.values()), (None,) * len(VALUES)]
    for row in rows:
        texts = [None if text is None else text.encode() for text in row]
        result = target.exec_params(f"INSERT INTO v VALUES ({marks})".encode(), texts)  # noqa: S608
        assert result.status == ExecStatus.COMMAND_OK, result.error_message


@pytest.fixture
def values(conn: Connection, copy_of: Copies) -> Copy:
    create_values(conn)
    return copy_of("v")


def test_typed_rows_are_what_the_stream_decodes(conn: Connection, values: Copy) -> None:
    texts = text_columns(conn, "SELECT * FROM v")
    count = len(texts[0])
    table = values.source.table
    columns, raw = decode_columns(table, texts, count)
    reader = values.reader()
    found = pa.Table.from_batches(reader.typed()).combine_chunks()
    assert reader.rows == found.num_rows == count
    assert found.schema.names == [*(f"c{place}" for place in range(len(VALUES))), "_raw"]
    for place, (kind, expected) in enumerate(zip(VALUES, columns, strict=True)):
        column = found.column(place).chunk(0)
        assert column.type == expected.type == flat_table(table).columns[place].field.type, kind
        assert same(column, expected), (kind, column, expected)
    assert found.column("_raw").chunk(0).to_pylist() == raw.to_pylist()
    # Whatever a type cannot hold has its text: none of these is empty in the source.
    odd = {VALUES_NAMES[int(name[1:])] for row in raw.to_pylist() for name, _ in row}
    assert odd == {
        "numeric(12,2)", "date", "timestamp", "timestamptz", "int[]", "text[]", "numeric(6,2)[]",
        "timestamptz[]", "date[]", "tags", "since",
    }  # fmt: skip


VALUES_NAMES = list(VALUES)


def same(a: pa.Array, b: pa.Array) -> bool:
    """Equal to the bit: NaN too, and the sign of zero; but not what stands behind a null."""
    if pa.types.is_list(a.type):
        return bool(
            a.is_valid().equals(b.is_valid())
            and a.value_lengths().fill_null(0).equals(b.value_lengths().fill_null(0))
            and same(a.flatten(), b.flatten())
        )
    if pa.types.is_floating(a.type):
        bits = pa.int32() if a.type == pa.float32() else pa.int64()
        a, b = a.view(bits), b.view(bits)
    return bool(a.equals(b))


def test_texts_are_what_the_output_functions_write(conn: Connection, values: Copy) -> None:
    expected = text_columns(conn, "SELECT * FROM v")
    (part,) = values.reader().texts()
    assert part.snapshot == values.point
    assert part.table == values.source.table
    assert len(part) == len(expected[0])
    for kind, found, wanted in zip(VALUES, part.columns, expected, strict=True):
        assert found.to_pylist() == wanted.to_pylist(), kind


@pytest.mark.parametrize("binary", [False, True])
def test_raw_bytes_load_into_another_table(conn: Connection, values: Copy, binary: bool) -> None:
    reader = values.reader()
    data = list(reader.raw(binary=binary))
    conn.execute("CREATE TABLE w (LIKE v)")
    form = sql.SQL("binary" if binary else "text")
    with conn.cursor().copy(sql.SQL("COPY w FROM STDIN (FORMAT {})").format(form)) as copy:
        for piece in data:
            copy.write(piece)
    expected = [c.to_pylist() for c in text_columns(conn, "SELECT * FROM v")]
    assert [c.to_pylist() for c in text_columns(conn, "SELECT * FROM w")] == expected
    assert reader.rows == len(expected[0])


def test_what_roles_and_databases_set_does_not_matter(
    conn: Connection, database: str, copy_of: Copies
) -> None:
    create_values(conn)
    expected = text_columns(conn, "SELECT * FROM v")
    name = ConnectionUrl(database).database
    for setting in (
        "datestyle = 'SQL, DMY'", "timezone = 'Asia/Tokyo'", "intervalstyle = 'iso_8601'",
        "extra_float_digits = -10", "bytea_output = 'escape'", "client_encoding = 'LATIN1'",
        "statement_timeout = '5min'", "idle_in_transaction_session_timeout = '5min'",
    ):  # fmt: skip
        conn.execute(f'ALTER DATABASE "{name}" SET {setting}'.encode())
    # The session itself says what it is set to: otherwise there would be no rows.
    settings = ("statement_timeout", "idle_in_transaction_session_timeout")
    copy = copy_of("v", where=" AND ".join(f"current_setting('{s}') = '0'" for s in settings))
    (part,) = copy.reader().texts()
    assert [c.to_pylist() for c in part.columns] == [c.to_pylist() for c in expected]
    raw = b"".join(copy.reader().raw(binary=False)).decode()
    assert raw.count("\n") == len(part)
    assert "ein Flüßchen 🦀" in raw


def test_bytes_that_are_no_utf8_are_an_error(pg_server: EmbeddedPostgres, copy_of: Copies) -> None:
    name = "ascii_for_chunks"
    with connect(pg_server.url()) as admin:
        admin.execute(
            f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'"
            " TEMPLATE template0".encode()
        )
    try:
        url = pg_server.url(name) + "?client_encoding=utf8"
        with connect(url) as conn:
            conn.execute("CREATE TABLE t (id int, note text)")
            conn.execute(r"INSERT INTO t VALUES (1, 'fine'), (2, E'\xff')")
        copy = copy_of("t", url=url)
        for read in (
            copy.reader().typed,
            copy.reader().texts,
            lambda: copy.reader().raw(binary=True),
        ):
            with pytest.raises(SourceError, match="invalid byte sequence"):
                list(read())
        copy.holder.close()
    finally:
        close_idle_sessions()
        drop_database(pg_server, name)
