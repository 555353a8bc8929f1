"""Tables and types as the catalogue describes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from penstock.model.table_schema import PgType
from penstock.source.postgres.catalogue.tables import read_tables, resolve_types
from tests.application_session import connect

pytestmark = pytest.mark.every_postgres

Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def conn(database: str) -> Iterator[Connection]:
    with connect(database) as connection:
        yield connection


def test_types_are_resolved_to_the_bottom(conn: Connection) -> None:
    conn.execute(
        """
        CREATE TYPE mood AS ENUM ('sad', 'ok');
        CREATE DOMAIN price AS numeric(10, 2);
        CREATE DOMAIN fair_price AS price;
        CREATE TYPE pair AS (a int, b text);
        CREATE TABLE t (id int PRIMARY KEY, moods mood[], p fair_price, ps fair_price[],
                        c pair, r int4range, m int4multirange, point point, v int2vector);
        """
    )
    columns: dict[str, int] = dict(
        conn.execute(
            "SELECT attname::text, atttypid::bigint FROM pg_attribute"
            " WHERE attrelid = 't'::regclass AND attnum > 0"
        ).fetchall()
    )
    types = resolve_types(conn, columns.values())

    def column(name: str) -> PgType:
        return types[columns[name]]

    assert column("id") == PgType(23, "int4")
    moods = column("moods")
    assert (moods.kind, moods.name) == ("array", "_mood")
    assert moods.inner is not None
    assert (moods.inner.kind, moods.inner.name) == ("enum", "mood")
    price = column("p")
    assert (price.kind, price.typmod) == ("domain", -1)
    assert price.inner is not None
    assert (price.inner.name, price.inner.kind) == ("price", "domain")
    assert price.inner.typmod == ((10 << 16) | 2) + 4
    assert price.inner.inner == PgType(1700, "numeric")
    assert column("ps").inner == price
    assert [column(name).kind for name in ("c", "r", "m", "point", "v")] == [
        "composite",
        "range",
        "multirange",
        "base",
        "base",
    ]
    assert resolve_types(conn, [4_000_000_000]) == {}


def test_keys_and_identities(conn: Connection) -> None:
    conn.execute(
        """
        CREATE TABLE two (b int, a int, c int, PRIMARY KEY (c, b) INCLUDE (a));
        CREATE TABLE late (id int PRIMARY KEY DEFERRABLE);
        CREATE TABLE chosen (id int NOT NULL);
        CREATE UNIQUE INDEX chosen_key ON chosen (id);
        ALTER TABLE chosen REPLICA IDENTITY USING INDEX chosen_key;
        CREATE TABLE bare (id int);
        """
    )
    tables = {table.name: table for table in read_tables(conn)}
    assert set(tables) == {"two", "late", "chosen", "bare"}
    assert tables["two"].primary_key == ("c", "b")
    assert tables["two"].missing_identity == ""
    assert tables["late"].missing_identity == "its primary key is deferrable"
    assert tables["chosen"].missing_identity == ""
    assert tables["bare"].missing_identity == "no primary key"
    conn.execute("DROP INDEX chosen_key")
    (chosen,) = (table for table in read_tables(conn) if table.name == "chosen")
    assert chosen.missing_identity == "the index of its replica identity is gone"
