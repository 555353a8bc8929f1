"""A seeded random load of everything that a log must carry, and a record of what it committed."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg

Connection = psycopg.Connection[Any]

SCHEMA = (
    # Values from 2 kB on leave the row, uncompressed: an update of other columns skips them.
    """CREATE TABLE accounts (id bigint PRIMARY KEY, name text NOT NULL, balance numeric,
       tags text[], doc jsonb, seen timestamptz, active boolean, body text)""",
    "ALTER TABLE accounts ALTER body SET STORAGE EXTERNAL",
    """CREATE TABLE "Key Pairs" ("left" int, "ri""ght" text, note text,
       PRIMARY KEY ("left", "ri""ght"))""",
    "CREATE TABLE journal (line text, amount numeric, body text)",
    "ALTER TABLE journal ALTER body SET STORAGE EXTERNAL",
    "ALTER TABLE journal REPLICA IDENTITY FULL",
    "CREATE TABLE visits (number bigserial, at timestamptz, path text NOT NULL)",
    "CREATE UNIQUE INDEX visit ON visits (path, number)",
    "ALTER TABLE visits REPLICA IDENTITY USING INDEX visit",
)
TABLES = ("accounts", "Key Pairs", "journal", "visits")
MARK = "workload"
"""The prefix of the message that every transaction emits; its content names the transaction."""
LOOSE = "workload, loose"
"""The prefix of messages that belong to no transaction."""

_KEYS = 400
_TEXTS = ("plain", "", "äöü €", "tab\tnew\nline", "back\\slash", "'quoted\"", "\u2028 {,}", "NULL")
# Lost connections are seen as these; deadlocks and violated keys are sorted out before.
_CONNECTION_LOST = (psycopg.OperationalError, psycopg.InterfaceError)


def create_tables(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        for statement in SCHEMA:
            conn.execute(statement.encode())


@dataclass
class Record:
    """Transactions by their mark, with the number of changes of each, its message included.

    One is in doubt if the connection was lost before the server answered to its COMMIT.
    """

    committed: dict[str, int] = field(default_factory=dict)
    in_doubt: dict[str, int] = field(default_factory=dict)


class Session:
    """One connection's share of the load: transactions one after another."""

    def __init__(self, number: int, seed: int, record: Record) -> None:
        self._number = number
        self._random = random.Random(f"{seed}/{number}")
        self._record = record
        self._count = 0
        # Each kind once, so that a short load has all of them; then by chance.
        self._first = list(_STEPS)
        self._random.shuffle(self._first)

    def transaction(self, conn: Connection) -> None:
        """Run one; what the server refuses (a deadlock, a key that is taken) is rolled back.

        Raises where the connection is lost.
        """
        self._count += 1
        mark = f"{self._number}:{self._count}"
        chance = self._random
        steps = [self._step() for _ in range(chance.choice((1, 1, 2, 3, 6)))]
        rolls_back = chance.random() < 0.1
        loose_last = chance.random() < 0.1
        try:
            # First, since psycopg's savepoints are transactions where none is open yet.
            conn.execute("SELECT pg_logical_emit_message(true, %s, %s)", [MARK, mark])
            changes = sum(self._with_savepoints(step, conn) for step in steps)
            if loose_last:
                # Right before the commit record, or before the abort, which it outlives.
                _emit_loose(conn, chance)
            if rolls_back:
                conn.rollback()
                return
            self._record.in_doubt[mark] = changes + 1
            conn.commit()
        except psycopg.Error as error:
            if error.sqlstate is None or error.sqlstate[:2] not in ("23", "40"):
                raise
            conn.rollback()
            self._record.in_doubt.pop(mark, None)
        else:
            self._record.committed[mark] = self._record.in_doubt.pop(mark)

    def _step(self) -> Step:
        if self._first:
            return self._first.pop()
        return self._random.choices(list(_STEPS), list(_STEPS.values()))[0]

    def _with_savepoints(self, step: Step, conn: Connection) -> int:
        chance = self._random
        draw = chance.random()
        if draw < 0.1:
            with conn.transaction(force_rollback=True):
                step(conn, chance)
            return 0
        if draw < 0.3:
            with conn.transaction():
                return step(conn, chance)
        return step(conn, chance)


class Workload:
    """Sessions in threads of their own, from ``start`` to ``stop``, over every loss of the server.

    ``pause`` is the time between two transactions of a session: it bounds how much there is to
    compare in the end.
    """

    def __init__(self, url: str, seed: int, *, sessions: int = 2, pause: float = 0.05) -> None:
        self._url = url
        self._pause = pause
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self.records = [Record() for _ in range(sessions)]
        self._threads = [
            threading.Thread(target=self._run, args=(Session(number, seed, record),), daemon=True)
            for number, record in enumerate(self.records)
        ]

    @property
    def committed(self) -> dict[str, int]:
        """What the server has confirmed so far."""
        return {mark: n for record in self.records for mark, n in dict(record.committed).items()}

    @property
    def in_doubt(self) -> dict[str, int]:
        return {mark: n for record in self.records for mark, n in dict(record.in_doubt).items()}

    @property
    def count(self) -> int:
        """How many transactions were committed so far."""
        self.check()
        return sum(len(record.committed) for record in self.records)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the load, and raise what made it fail."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self.check()

    def check(self) -> None:
        """Raise what made the load fail."""
        if self._failure is not None:
            raise self._failure

    def _run(self, session: Session) -> None:
        try:
            while not self._stop.is_set():
                try:
                    with psycopg.connect(self._url, connect_timeout=5) as conn:
                        while not self._stop.wait(self._pause):
                            session.transaction(conn)
                except _CONNECTION_LOST as error:
                    if error.sqlstate is not None and error.sqlstate[:2] not in ("57", "08"):
                        raise
                    self._stop.wait(0.05)
        except BaseException as error:
            self._failure = error


def run_transactions(url: str, seed: int, count: int) -> Record:
    """A load of one session and ``count`` transactions, done when this returns."""
    record = Record()
    session = Session(0, seed, record)
    with psycopg.connect(url) as conn:
        for _ in range(count):
            session.transaction(conn)
    return record


# -- steps: each returns how many changes it made -----------------------------------------------

Step = Callable[[Connection, random.Random], int]


def _row(chance: random.Random) -> list[object]:
    body = chance.choice((None, "short", chance.choice("abcäö") * chance.randint(3000, 9000)))
    return [
        chance.choice(_TEXTS),
        chance.choice((None, "0", "-12.50", "1e-20", "NaN", str(chance.getrandbits(90)))),
        chance.choice((None, [], list(_TEXTS), ["a", None])),
        chance.choice((None, "{}", '{"a": [1, "\\n", null]}')),
        chance.choice((None, "infinity", "2024-02-29 12:00:00.000001+00")),
        chance.choice((None, True, False)),
        body,
    ]


def _insert(conn: Connection, chance: random.Random) -> int:
    return sum(
        conn.execute(
            "INSERT INTO accounts VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
            [chance.randrange(_KEYS), *_row(chance)],
        ).rowcount
        for _ in range(chance.randint(1, 5))
    )


def _upsert(conn: Connection, chance: random.Random) -> int:
    return conn.execute(
        "INSERT INTO accounts VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (id)"
        " DO UPDATE SET name = excluded.name, seen = excluded.seen",
        [chance.randrange(_KEYS), *_row(chance)],
    ).rowcount


def _update_beside_toast(conn: Connection, chance: random.Random) -> int:
    """Leaves large values as they are: they come unset."""
    first = chance.randrange(_KEYS)
    return conn.execute(
        "UPDATE accounts SET balance = coalesce(balance, 0) + 1, name = %s WHERE id BETWEEN %s"
        " AND %s",
        [chance.choice(_TEXTS), first, first + 8],
    ).rowcount


def _update_toast(conn: Connection, chance: random.Random) -> int:
    body = chance.choice((None, "x" * 4000))
    return conn.execute(
        "UPDATE accounts SET body = %s WHERE id = %s", [body, chance.randrange(_KEYS)]
    ).rowcount


def _delete(conn: Connection, chance: random.Random) -> int:
    first = chance.randrange(_KEYS)
    return conn.execute(
        "DELETE FROM accounts WHERE id BETWEEN %s AND %s", [first, first + 3]
    ).rowcount


def _change_key(conn: Connection, chance: random.Random) -> int:
    """A row with a large value takes another row's place: delete, then move."""
    old, new = chance.randrange(_KEYS), chance.randrange(_KEYS)
    if old == new:
        return 0
    gone = conn.execute("DELETE FROM accounts WHERE id = %s", [new]).rowcount
    return gone + conn.execute("UPDATE accounts SET id = %s WHERE id = %s", [new, old]).rowcount


def _add_pairs(conn: Connection, chance: random.Random) -> int:
    return conn.execute(
        'INSERT INTO "Key Pairs" SELECT n, n::text, %s FROM generate_series(%s::int, %s::int) n'
        " ON CONFLICT DO NOTHING",
        [chance.choice(_TEXTS), first := chance.randrange(100), first + 5],
    ).rowcount


def _swap_keys(conn: Connection, chance: random.Random) -> int:
    """Two rows exchange their keys, by way of a third one."""
    one, other = chance.sample(range(100), 2)
    # A key of this session only, so that two swaps do not meet there.
    aside = -1 - conn.info.backend_pid
    return sum(
        conn.execute(
            'UPDATE "Key Pairs" SET "left" = %s, "ri""ght" = %s WHERE "left" = %s',
            [target, str(target), source],
        ).rowcount
        for source, target in ((one, aside), (other, one), (aside, other))
    )


def _journal(conn: Connection, chance: random.Random) -> int:
    """Rows that are alike, without a key."""
    return conn.execute(
        "INSERT INTO journal SELECT %s, %s, %s FROM generate_series(1, %s)",
        [
            chance.choice(_TEXTS),
            chance.choice((None, "1.0", "1.00")),
            chance.choice((None, "y" * 5000)),
            chance.randint(1, 4),
        ],
    ).rowcount


def _change_journal(conn: Connection, chance: random.Random) -> int:
    return conn.execute(
        "UPDATE journal SET line = %s WHERE ctid IN (SELECT ctid FROM journal LIMIT 2)",
        [chance.choice(_TEXTS)],
    ).rowcount


def _cut_journal(conn: Connection, chance: random.Random) -> int:
    return conn.execute(
        "DELETE FROM journal WHERE ctid IN (SELECT ctid FROM journal LIMIT %s)",
        [chance.randint(1, 30)],
    ).rowcount


def _visit(conn: Connection, chance: random.Random) -> int:
    """The first column of the identity is not the table's first, and changes."""
    added = conn.execute(
        "INSERT INTO visits (at, path) VALUES (now(), %s)", [chance.choice(_TEXTS)]
    ).rowcount
    changed = conn.execute(
        "UPDATE visits SET path = %s WHERE number %% 20 = %s",
        [chance.choice(_TEXTS), chance.randrange(20)],
    ).rowcount
    return added + changed


def _truncate(conn: Connection, chance: random.Random) -> int:
    tables = chance.choice(("visits", "visits, journal", 'accounts, "Key Pairs"', "journal"))
    conn.execute(f"TRUNCATE {tables} RESTART IDENTITY".encode())
    return 1


def _message(conn: Connection, chance: random.Random) -> int:
    conn.execute(
        "SELECT pg_logical_emit_message(true, 'of a step', %s::bytea)", [chance.randbytes(20)]
    )
    return 1


def _emit_loose(conn: Connection, chance: random.Random) -> int:
    """Not a change of this transaction: it is sent even if that is rolled back."""
    conn.execute("SELECT pg_logical_emit_message(false, %s, %s)", [LOOSE, str(chance.random())])
    return 0


def _many_rows(conn: Connection, chance: random.Random) -> int:
    """A transaction of thousands: segments roll inside it."""
    first = 10_000 + chance.randrange(10) * 1000
    added = conn.execute(
        "INSERT INTO accounts (id, name, body) SELECT n, md5(n::text), repeat('z', 100)"
        " FROM generate_series(%s::int, %s::int) n ON CONFLICT DO NOTHING",
        [first, first + chance.randint(1500, 2500)],
    ).rowcount
    changed = conn.execute("UPDATE accounts SET active = true WHERE id % 10 = 0").rowcount
    return added + changed + conn.execute("DELETE FROM accounts WHERE id >= 10000").rowcount


def _wide_rows(conn: Connection, chance: random.Random) -> int:
    """Megabytes at once: a micro-batch of several tasks."""
    added = conn.execute(
        "INSERT INTO journal SELECT n::text, n, repeat(md5(n::text), 200)"
        " FROM generate_series(1, %s) n",
        [chance.randint(700, 900)],
    ).rowcount
    return added + conn.execute("DELETE FROM journal WHERE length(body) = 6400").rowcount


_STEPS: dict[Step, float] = {
    _insert: 10,
    _upsert: 6,
    _update_beside_toast: 8,
    _update_toast: 4,
    _delete: 6,
    _change_key: 5,
    _add_pairs: 5,
    _swap_keys: 6,
    _journal: 6,
    _change_journal: 5,
    _cut_journal: 4,
    _visit: 6,
    _truncate: 1,
    _message: 3,
    _emit_loose: 3,
    _many_rows: 0.05,
    _wide_rows: 0.02,
}
"""Every kind of step with its weight."""
