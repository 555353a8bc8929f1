"""Steps of the random load that give one row what another one had: identities, keys, sums."""

from __future__ import annotations

import random

from tests.workload_tables import TEXTS, Connection, body, execute, private_key

_KEYS = 24
_MOVE_ID = {
    table: f"UPDATE {table} SET id = %s WHERE id = %s"  # noqa: S608 (names of our own)
    for table in ("parcels", "ledger", "right_balance")
}

_ADD_AMOUNT = {
    table: f"INSERT INTO {table} VALUES (%s, %s)"  # noqa: S608
    f" ON CONFLICT (id) DO UPDATE SET amount = {table}.amount + excluded.amount"
    for table in ("left_balance", "right_balance")
}


def _move(conn: Connection, table: str, old: int, new: int) -> int:
    return execute(conn, _MOVE_ID[table], new, old)


# -- parcels: identified by an index, not by their primary key -------------------------------------


def add_parcels(conn: Connection, chance: random.Random) -> int:
    first = chance.randrange(_KEYS)
    return execute(
        conn,
        "INSERT INTO parcels SELECT n, 'p' || n, n %% 3, n, %s"
        " FROM generate_series(%s::int, %s::int) n ON CONFLICT DO NOTHING",
        body(chance),
        first,
        first + 4,
    )


def weigh_parcels(conn: Connection, chance: random.Random) -> int:
    """Neither key changes; now and then the row goes."""
    key = chance.randrange(_KEYS)
    if chance.random() < 0.2:
        return execute(conn, "DELETE FROM parcels WHERE id = %s", key)
    return execute(
        conn, "UPDATE parcels SET weight = weight + 1 WHERE id BETWEEN %s AND %s", key, key + 4
    )


def swap_parcel_ids(conn: Connection, chance: random.Random) -> int:
    """The primary key changes, the identity does not: there is no old row in the stream."""
    one, other = chance.sample(range(_KEYS), 2)
    aside = private_key(conn)
    return sum(
        _move(conn, "parcels", old, new)
        for old, new in ((one, aside), (other, one), (aside, other))
    )


def swap_parcel_codes(conn: Connection, chance: random.Random) -> int:
    """The identity changes, the primary key does not."""
    one, other = chance.sample(range(_KEYS), 2)
    aside = private_key(conn)
    return sum(
        execute(
            conn,
            "UPDATE parcels SET code = %s, lane = %s WHERE code = %s",
            f"p{new}",
            new % 3,
            f"p{old}",
        )
        for old, new in ((one, aside), (other, one), (aside, other))
    )


# -- ledger: a primary key, and whole old rows -----------------------------------------------------


def enter(conn: Connection, chance: random.Random) -> int:
    first = chance.randrange(_KEYS)
    return execute(
        conn,
        "INSERT INTO ledger SELECT n, n, %s FROM generate_series(%s::int, %s::int) n"
        " ON CONFLICT (id) DO UPDATE SET amount = ledger.amount + 1",
        body(chance),
        first,
        first + 3,
    )


def correct(conn: Connection, chance: random.Random) -> int:
    """Key swaps, updates beside large values and deletes."""
    one, other = chance.sample(range(_KEYS), 2)
    aside = private_key(conn)
    draw = chance.random()
    if draw < 0.5:
        moves = ((one, aside), (other, one), (aside, other))
        return sum(_move(conn, "ledger", old, new) for old, new in moves)
    if draw < 0.8:
        return execute(
            conn, "UPDATE ledger SET amount = -amount WHERE id BETWEEN %s AND %s", one, one + 3
        )
    return execute(conn, "DELETE FROM ledger WHERE id = %s", one)


# -- seats, badges: unique columns beside the key --------------------------------------------------


def take_seats(conn: Connection, chance: random.Random) -> int:
    first = chance.randrange(_KEYS)
    return execute(
        conn,
        "INSERT INTO seats SELECT n, n, %s FROM generate_series(%s::int, %s::int) n"
        " ON CONFLICT DO NOTHING",
        chance.choice(TEXTS),
        first,
        first + 5,
    )


def swap_seats(conn: Connection, chance: random.Random) -> int:
    """Two rows exchange a unique value by way of a third one, or one takes what another left."""
    one, other = chance.sample(range(_KEYS), 2)
    aside = private_key(conn)
    moves = [(one, aside), (other, one), (aside, other)]
    changes = 0
    if chance.random() < 0.3:
        changes = execute(conn, "DELETE FROM seats WHERE place = %s", other)
        moves = [(one, other)]
    return changes + sum(
        execute(conn, "UPDATE seats SET place = %s WHERE place = %s", new, old)
        for old, new in moves
    )


def give_badges(conn: Connection, chance: random.Random) -> int:
    first = chance.randrange(_KEYS)
    return execute(
        conn,
        "INSERT INTO badges SELECT n, n, %s FROM generate_series(%s::int, %s::int) n"
        " WHERE NOT EXISTS (SELECT FROM badges b WHERE b.number = n OR b.id = n)",
        body(chance),
        first,
        first + 5,
    )


def swap_badges(conn: Connection, chance: random.Random) -> int:
    """Exchanged directly, since the constraint is looked at when the transaction ends."""
    if chance.random() < 0.2:
        # All of them: a ring.
        return execute(conn, "UPDATE badges SET number = (number + 1) % 30")
    one, other = chance.sample(range(_KEYS), 2)
    return execute(
        conn,
        "UPDATE badges SET number = CASE number WHEN %s THEN %s ELSE %s END"
        " WHERE number IN (%s, %s)",
        one,
        other,
        one,
        one,
        other,
    )


# -- left_balance, right_balance: a sum that every transaction keeps -------------------------------


def transfer(conn: Connection, chance: random.Random) -> int:
    amount = chance.randint(1, 1000)
    changes = 0
    for table, change in chance.sample((("left_balance", amount), ("right_balance", -amount)), 2):
        changes += execute(
            conn,
            _ADD_AMOUNT[table],
            chance.randrange(20),
            change,
        )
    return changes


def close_balance(conn: Connection, chance: random.Random) -> int:
    """A row goes, and what it held goes to the other table, under a key that moves on."""
    key, new = chance.sample(range(20), 2)
    found = conn.execute("DELETE FROM left_balance WHERE id = %s RETURNING amount", [key])
    row = found.fetchone()
    if row is None:
        return 0
    changes = 1 + execute(
        conn,
        _ADD_AMOUNT["right_balance"],
        20,
        row[0],
    )
    taken = conn.execute("SELECT FROM right_balance WHERE id = %s", [new]).fetchone()
    return changes if taken else changes + _move(conn, "right_balance", 20, new)
