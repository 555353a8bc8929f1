"""The suite's own chunks are what a server would give."""

from __future__ import annotations

import psycopg
import pytest

from penstock.testing.contract.chunk_rows import ChunkRows
from penstock.testing.contract.deliveries import ITEMS

ROWS = [("1", "a\tb\n\\N\r"), ("-2", None), ("3", ""), ("4", "é🎉")]


@pytest.mark.parametrize("form", ["text", "binary"])
def test_a_server_takes_the_raw_bytes(target_url: str, form: str) -> None:
    binary = form == "binary"
    with psycopg.connect(target_url) as conn:
        conn.execute("CREATE TEMP TABLE items (id bigint, name text)")
        into = f"COPY items FROM STDIN (FORMAT {form})"
        with conn.cursor() as cursor, cursor.copy(into.encode()) as copy:
            for piece in ChunkRows(ITEMS, "0", ROWS).raw(binary=binary):
                copy.write(piece)
        found = conn.execute("SELECT id::text, name FROM items ORDER BY abs(id)").fetchall()
        assert found == ROWS
        with (
            conn.cursor() as cursor,
            cursor.copy(into.replace("FROM STDIN", "TO STDOUT").encode()) as copy,
        ):
            given = b"".join(map(bytes, copy))
    assert given == b"".join(ChunkRows(ITEMS, "0", ROWS).raw(binary=binary))
