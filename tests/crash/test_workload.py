"""The load itself: it does what it says, and all that it is there for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import combinations

import psycopg
import pytest

from tests.crash.delivery import expect_recorded
from tests.crash.witness import Change, call_witness, hear_witness
from tests.workload import run_transactions
from tests.workload_tables import BALANCES, TABLES, create_tables


@pytest.fixture
def witnessed(database: str) -> list[Change]:
    """What Postgres sent of one session's load."""
    create_tables(database)
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    call_witness(database)
    record = run_transactions(database, seed=1, count=400)
    changes = hear_witness(database, "everything")
    expect_recorded(changes, record.committed, record.in_doubt)
    with psycopg.connect(database, autocommit=True) as conn:
        row = conn.execute(BALANCES).fetchone()
        assert row is not None
        assert row[0] == -row[1] != 0
    return changes


def test_the_load_holds_every_hard_case(witnessed: list[Change]) -> None:
    """Each of these broke some replication once; a load without one would test nothing."""
    transactions = defaultdict(list)
    for change in witnessed:
        transactions[change.position.commit_lsn].append(change)
    moves = [change for change in witnessed if _moves(change)]

    def moves_unset(table: str) -> bool:
        return any(
            move.table == table and move.new is not None and "body" not in move.new
            for move in moves
        )

    assert {change.table for change in witnessed} >= set(TABLES)
    assert moves_unset("accounts")
    assert moves_unset("Key Pairs")
    assert moves_unset("parcels")
    assert any(_chain(changes) for changes in transactions.values())
    assert any(_truncates_between_rows(changes) for changes in transactions.values())
    assert any(_replaces_a_row(changes) for changes in transactions.values())
    assert any(_comes_and_goes(changes) for changes in transactions.values())
    assert _swaps(transactions.values(), "seats", "id", "place")
    assert _swaps(transactions.values(), "badges", "id", "number")
    assert _swaps(transactions.values(), "parcels", "code", "id")
    assert max(map(len, transactions.values())) > 1000
    assert {change.op for change in witnessed if change.table == "audit"} <= {"insert", "truncate"}


def _moves(change: Change) -> bool:
    """Whether a row's identity changes, as far as the stream says."""
    if change.op != "update" or not change.old or change.new is None:
        return False
    return any(change.new.get(name) != value for name, value in change.old.items())


def _chain(changes: list[Change]) -> bool:
    """One row takes two keys one after another."""
    moves = [change for change in changes if change.table == "accounts" and _moves(change)]
    return any(
        one.new and other.old and one.new["id"] == other.old["id"]
        for number, one in enumerate(moves)
        for other in moves[number + 1 :]
    )


def _truncates_between_rows(changes: list[Change]) -> bool:
    tables: dict[str, str] = defaultdict(str)
    for change in changes:
        tables[change.table] += "T" if change.op == "truncate" else "r"
    return sum("rT" in ops and "Tr" in ops for ops in tables.values()) > 1


def _replaces_a_row(changes: list[Change]) -> bool:
    gone = set()
    for change in changes:
        row = change.new or change.old
        if change.table != "accounts" or not row:
            continue
        if change.op == "delete":
            gone.add(row["id"])
        elif change.op == "insert" and row["id"] in gone:
            return True
    return False


def _comes_and_goes(changes: list[Change]) -> bool:
    seen = defaultdict(list)
    for change in changes:
        row = change.new or change.old
        if change.table == "accounts" and row:
            seen[row["id"]].append(change.op)
    return ["insert", "update", "delete"] in seen.values()


def _swaps(transactions: Iterable[list[Change]], table: str, key: str, column: str) -> bool:
    """Whether two rows ever leave a transaction with what the other one brought into it."""
    rows: dict[str | None, str | None] = {}
    for changes in transactions:
        before = dict(rows)
        for change in changes:
            if change.table != table:
                continue
            if change.op == "truncate":
                rows.clear()
            elif change.op == "delete" and change.old:
                rows.pop(change.old[key], None)
            elif change.new:
                rows[change.new[key]] = change.new[column]
        changed = [row for row in before if row in rows and rows[row] != before[row]]
        if any(
            (rows[one], rows[other]) == (before[other], before[one])
            for one, other in combinations(changed, 2)
        ):
            return True
    return False
