"""Reader and comparison find what is planted: they are no use if they cannot fail."""

from __future__ import annotations

from decimal import Decimal

import psycopg
import pytest

from penstock.embedded.postgres import EmbeddedPostgres
from tests.crash.invariant_reader import InvariantReader
from tests.crash.row_texts import expect_same_rows
from tests.fix_pipeline import wait_until
from tests.fix_postgres import drop_database
from tests.search_documents import shown
from tests.workload import run_transactions
from tests.workload_tables import TABLES, create_tables


def execute(url: str, *statements: bytes) -> None:
    """All in one transaction."""
    with psycopg.connect(url) as conn:
        for statement in statements:
            conn.execute(statement)


def wait_seen(reader: InvariantReader, states: int) -> None:
    wait_until(lambda: reader.states >= states, "the reader sees it")


def test_the_reader_sees_half_a_transaction(database: str) -> None:
    create_tables(database)
    with InvariantReader(database) as reader:
        wait_seen(reader, states=1)
        for key in range(3):
            # Whole transactions first: both balances change at once.
            execute(
                database,
                b"INSERT INTO left_balance VALUES (%d, 5)" % key,
                b"INSERT INTO right_balance VALUES (%d, -5)" % key,
            )
            wait_seen(reader, states=key + 2)
        reader.check(least_states=4)
        with pytest.raises(AssertionError, match="too few"):
            reader.check(least_states=100)
        execute(database, b"UPDATE left_balance SET amount = 6 WHERE id = 1")
        wait_until(lambda: reader.broken, "the reader sees the broken sum")
    with pytest.raises(AssertionError, match="half a transaction was visible"):
        reader.check()


def test_the_reader_outlives_its_connection(database: str) -> None:
    create_tables(database)
    with InvariantReader(database) as reader:
        wait_until(lambda: reader.polls, "it reads")
        execute(
            database,
            b"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            b" WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        before = reader.polls
        wait_until(lambda: reader.polls > before + 1, "it reads again")
        reader.check()


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        (
            b"UPDATE ledger SET amount = amount + 1 WHERE id = (SELECT min(id) FROM ledger)",
            "ledger",
        ),
        (b"DELETE FROM audit WHERE ctid = (SELECT min(ctid) FROM audit)", "in the source only"),
        (b"INSERT INTO journal SELECT * FROM journal LIMIT 1", "in the destination only"),
        (b"UPDATE accounts SET body = NULL WHERE length(body) > 2000", "accounts"),
        (b"UPDATE accounts SET body = '' WHERE body IS NULL", "accounts"),
    ],
)
def test_the_comparison_finds_what_differs(
    pg_server: EmbeddedPostgres, database: str, planted: bytes, found: str
) -> None:
    create_tables(database)
    run_transactions(database, seed=4, count=60)
    source = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    copy = f"{source}_copy"
    with psycopg.connect(pg_server.url(), autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {copy} TEMPLATE {source}".encode())
    try:
        assert expect_same_rows(database, pg_server.url(copy), TABLES) > 0
        execute(pg_server.url(copy), planted)
        with pytest.raises(AssertionError, match=found):
            expect_same_rows(database, pg_server.url(copy), TABLES)
    finally:
        drop_database(pg_server, copy)


def test_documents_are_compared_digit_by_digit() -> None:
    big = 2**60
    assert shown({"n": 0}) == shown({"n": "0"})
    assert shown({"n": big}) == shown({"n": str(big)})
    assert shown({"n": big}) != shown({"n": big + 1})
    assert shown({"n": Decimal("1.50")}) != shown({"n": "1.5"})
