"""What a transaction of the random load is made of: each step returns how many changes it made."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.workload_swaps import (
    add_parcels,
    close_balance,
    correct,
    enter,
    give_badges,
    swap_badges,
    swap_parcel_codes,
    swap_parcel_ids,
    swap_seats,
    take_seats,
    transfer,
    weigh_parcels,
)
from tests.workload_tables import TEXTS, Connection, body, execute, private_key

Step = Callable[[Connection, random.Random], int]

LOOSE = "workload, loose"
"""The prefix of messages that belong to no transaction."""

_KEYS = 400


def _row(chance: random.Random) -> list[object]:
    return [
        chance.choice(TEXTS),
        chance.choice((None, "0", "-12.50", "1e-20", "NaN", str(chance.getrandbits(90)))),
        chance.choice((None, [], list(TEXTS), ["a", None])),
        chance.choice((None, "{}", '{"a": [1, "\\n", null]}')),
        chance.choice((None, "infinity", "2024-02-29 12:00:00.000001+00")),
        chance.choice((None, True, False)),
        body(chance),
    ]


# -- accounts: a primary key -----------------------------------------------------------------------

_INTO_ACCOUNTS = "INSERT INTO accounts VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"


def insert(conn: Connection, chance: random.Random) -> int:
    return sum(
        execute(conn, f"{_INTO_ACCOUNTS} ON CONFLICT DO NOTHING", chance.randrange(_KEYS), *row)
        for row in [_row(chance) for _ in range(chance.randint(1, 5))]
    )


def upsert(conn: Connection, chance: random.Random) -> int:
    return execute(
        conn,
        f"{_INTO_ACCOUNTS} ON CONFLICT (id)"
        " DO UPDATE SET name = excluded.name, seen = excluded.seen",
        chance.randrange(_KEYS),
        *_row(chance),
    )


def update_beside_toast(conn: Connection, chance: random.Random) -> int:
    """Leaves large values as they are: they come unset."""
    first = chance.randrange(_KEYS)
    return execute(
        conn,
        "UPDATE accounts SET balance = coalesce(balance, 0) + 1, name = %s WHERE id BETWEEN %s"
        " AND %s",
        chance.choice(TEXTS),
        first,
        first + 8,
    )


def update_toast(conn: Connection, chance: random.Random) -> int:
    body = chance.choice((None, "x" * 4000))
    return execute(
        conn, "UPDATE accounts SET body = %s WHERE id = %s", body, chance.randrange(_KEYS)
    )


def delete(conn: Connection, chance: random.Random) -> int:
    first = chance.randrange(_KEYS)
    return execute(conn, "DELETE FROM accounts WHERE id BETWEEN %s AND %s", first, first + 3)


def _move(conn: Connection, old: int, new: int) -> int:
    return execute(conn, "UPDATE accounts SET id = %s WHERE id = %s", new, old)


def change_key(conn: Connection, chance: random.Random) -> int:
    """A row with a large value takes another row's place: delete, then move."""
    old, new = chance.sample(range(_KEYS), 2)
    gone = execute(conn, "DELETE FROM accounts WHERE id = %s", new)
    return gone + _move(conn, old, new)


def chain_of_keys(conn: Connection, chance: random.Random) -> int:
    """One row takes three keys one after another, and another one may follow to the first."""
    first, second, third, fourth = chance.sample(range(_KEYS), 4)
    changes = execute(conn, "DELETE FROM accounts WHERE id IN (%s, %s)", second, third)
    changes += _move(conn, first, second)
    if chance.random() < 0.5:
        changes += execute(conn, "UPDATE accounts SET active = NOT active WHERE id = %s", second)
    changes += _move(conn, second, third)
    if chance.random() < 0.5:
        changes += _move(conn, fourth, first)
    return changes


def walk_key(conn: Connection, _chance: random.Random) -> int:
    """A row with a large value goes one key further: a chain over many transactions."""
    changes = execute(conn, "DELETE FROM accounts WHERE id = 599")
    moved = execute(
        conn,
        "UPDATE accounts SET id = id + 1 WHERE id ="
        " (SELECT max(id) FROM accounts WHERE id BETWEEN 500 AND 598)",
    )
    if moved:
        return changes + moved
    return changes + execute(
        conn,
        "INSERT INTO accounts (id, name, body) VALUES (500, 'walker', repeat('w', 5000))"
        " ON CONFLICT DO NOTHING",
    )


def same_key_again(conn: Connection, chance: random.Random) -> int:
    """Deleted and inserted: nothing of the old row may shine through."""
    key = chance.randrange(_KEYS)
    gone = execute(conn, "DELETE FROM accounts WHERE id = %s", key)
    return gone + execute(conn, _INTO_ACCOUNTS, key, *_row(chance))


def come_and_go(conn: Connection, chance: random.Random) -> int:
    """A row that no other transaction ever sees."""
    key = chance.randrange(700, 710)
    return (
        execute(conn, _INTO_ACCOUNTS, key, *_row(chance))
        + execute(conn, "UPDATE accounts SET name = 'going' WHERE id = %s", key)
        + execute(conn, "DELETE FROM accounts WHERE id = %s", key)
    )


def many_rows(conn: Connection, chance: random.Random) -> int:
    """A transaction of thousands: segments roll inside it."""
    first = 10_000 + chance.randrange(10) * 1000
    added = execute(
        conn,
        "INSERT INTO accounts (id, name, body) SELECT n, md5(n::text), repeat('z', 100)"
        " FROM generate_series(%s::int, %s::int) n ON CONFLICT DO NOTHING",
        first,
        first + chance.randint(1500, 2500),
    )
    changed = execute(conn, "UPDATE accounts SET active = true WHERE id % 10 = 0")
    return added + changed + execute(conn, "DELETE FROM accounts WHERE id >= 10000")


# -- Key Pairs: a key of two columns ---------------------------------------------------------------


def add_pairs(conn: Connection, chance: random.Random) -> int:
    first = chance.randrange(100)
    return execute(
        conn,
        'INSERT INTO "Key Pairs" SELECT n, n::text, %s, %s'
        " FROM generate_series(%s::int, %s::int) n ON CONFLICT DO NOTHING",
        chance.choice(TEXTS),
        body(chance),
        first,
        first + 5,
    )


def swap_keys(conn: Connection, chance: random.Random) -> int:
    """Two rows exchange their keys, by way of a third one; their large values come unset."""
    one, other = chance.sample(range(100), 2)
    aside = private_key(conn)
    return sum(
        execute(
            conn,
            'UPDATE "Key Pairs" SET "left" = %s, "ri""ght" = %s WHERE "left" = %s',
            target,
            str(target),
            source,
        )
        for source, target in ((one, aside), (other, one), (aside, other))
    )


# -- journal, audit: no key ------------------------------------------------------------------------


def journal(conn: Connection, chance: random.Random) -> int:
    """Rows that are alike, without a key."""
    return execute(
        conn,
        "INSERT INTO journal SELECT %s, %s, %s FROM generate_series(1, %s)",
        chance.choice(TEXTS),
        chance.choice((None, "1.0", "1.00")),
        chance.choice((None, "y" * 5000)),
        chance.randint(1, 4),
    )


def change_journal(conn: Connection, chance: random.Random) -> int:
    return execute(
        conn,
        "UPDATE journal SET line = %s WHERE ctid IN (SELECT ctid FROM journal LIMIT 2)",
        chance.choice(TEXTS),
    )


def cut_journal(conn: Connection, chance: random.Random) -> int:
    return execute(
        conn,
        "DELETE FROM journal WHERE ctid IN (SELECT ctid FROM journal LIMIT %s)",
        chance.randint(1, 30),
    )


def wide_rows(conn: Connection, chance: random.Random) -> int:
    """Megabytes at once: a micro-batch of several tasks."""
    added = execute(
        conn,
        "INSERT INTO journal SELECT n::text, n, repeat(md5(n::text), 200)"
        " FROM generate_series(1, %s) n",
        chance.randint(700, 900),
    )
    return added + execute(conn, "DELETE FROM journal WHERE length(body) = 6400")


def audit(conn: Connection, chance: random.Random) -> int:
    return execute(conn, "INSERT INTO audit VALUES (%s, now())", chance.choice(TEXTS))


# -- visits: identified by an index, without a primary key ----------------------------------------


def visit(conn: Connection, chance: random.Random) -> int:
    """The first column of the identity is not the table's first, and changes."""
    return execute(
        conn, "INSERT INTO visits (at, path) VALUES (now(), %s)", chance.choice(TEXTS)
    ) + execute(
        conn,
        "UPDATE visits SET path = %s WHERE number %% 20 = %s",
        chance.choice(TEXTS),
        chance.randrange(20),
    )


# -- all of them -----------------------------------------------------------------------------------

_TRUNCATED = (
    "visits",
    "visits, journal",
    'accounts, "Key Pairs"',
    "journal",
    "parcels, seats, ledger",
    "badges, audit",
    "left_balance, right_balance",
)


def truncate(conn: Connection, chance: random.Random) -> int:
    execute(conn, f"TRUNCATE {chance.choice(_TRUNCATED)} RESTART IDENTITY")
    return 1


def truncate_between_rows(conn: Connection, chance: random.Random) -> int:
    """Several tables at once; only what comes after it stays."""
    changes = sum(step(conn, chance) for step in (visit, journal, enter, take_seats, transfer))
    tables = "visits, journal, ledger, seats, left_balance, right_balance"
    execute(conn, f"TRUNCATE {tables} RESTART IDENTITY")
    return changes + 1 + sum(step(conn, chance) for step in (visit, journal, enter, take_seats))


def message(conn: Connection, chance: random.Random) -> int:
    conn.execute(
        "SELECT pg_logical_emit_message(true, 'of a step', %s::bytea)", [chance.randbytes(20)]
    )
    return 1


def emit_loose(conn: Connection, chance: random.Random) -> int:
    """Not a change of this transaction: it is sent even if that is rolled back."""
    conn.execute("SELECT pg_logical_emit_message(false, %s, %s)", [LOOSE, str(chance.random())])
    return 0


STEPS: dict[Step, float] = {
    insert: 10,
    upsert: 6,
    update_beside_toast: 8,
    update_toast: 4,
    delete: 6,
    change_key: 5,
    chain_of_keys: 5,
    walk_key: 5,
    same_key_again: 4,
    come_and_go: 3,
    add_pairs: 5,
    swap_keys: 6,
    journal: 6,
    change_journal: 5,
    cut_journal: 4,
    audit: 3,
    visit: 6,
    add_parcels: 5,
    weigh_parcels: 4,
    swap_parcel_ids: 4,
    swap_parcel_codes: 4,
    enter: 5,
    correct: 6,
    take_seats: 4,
    swap_seats: 7,
    give_badges: 4,
    swap_badges: 6,
    transfer: 20,
    close_balance: 5,
    truncate: 1,
    truncate_between_rows: 0.5,
    message: 3,
    emit_loose: 3,
    many_rows: 0.05,
    wide_rows: 0.02,
}
"""Every kind of step with its weight."""
