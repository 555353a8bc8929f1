"""Tables that are full before the pipeline starts, and writers that leave no row where it was."""

from __future__ import annotations

import random
import threading
from types import TracebackType
from typing import Self

import psycopg

from tests.workload_tables import Connection, execute

KEYED = ("crates", "days")
"""Of these, what was copied once is not copied again."""

# The keys that rows begin with.
_CRATES = 1500
_DAYS = 600

# Bodies leave the row, uncompressed: an update of other columns sends them unset.
FILL = (
    "CREATE TABLE crates (id bigint PRIMARY KEY, note text, body text) WITH (fillfactor = 90)",
    "ALTER TABLE crates ALTER body SET STORAGE EXTERNAL",
    """INSERT INTO crates SELECT n, 'note', repeat(md5(n::text), 70 + n % 90)
       FROM generate_series(1, 1500) n""",
    """CREATE TABLE days (id int, day date, note text, body text, PRIMARY KEY (id, day))
       PARTITION BY RANGE (day)""",
    "CREATE TABLE days_1 PARTITION OF days FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')",
    "CREATE TABLE days_2 PARTITION OF days FOR VALUES FROM ('2026-02-01') TO ('2026-03-01')",
    "CREATE TABLE days_3 PARTITION OF days DEFAULT",
    "ALTER TABLE days_1 ALTER body SET STORAGE EXTERNAL",
    "ALTER TABLE days_2 ALTER body SET STORAGE EXTERNAL",
    """INSERT INTO days SELECT n, date '2026-01-01' + n % 90, 'note', repeat(md5(n::text), 100)
       FROM generate_series(1, 600) n""",
    # No key: how often a row is there is all that there is to know of it.
    "CREATE TABLE slips (line text, amount int)",
    "ALTER TABLE slips REPLICA IDENTITY FULL",
    "INSERT INTO slips SELECT repeat('s', 50 + n % 30), n % 5 FROM generate_series(1, 8000) n",
    "CREATE TABLE side (id int PRIMARY KEY, note text)",
    "INSERT INTO side SELECT n, 'side' FROM generate_series(1, 300) n",
)
COPIED = ("crates", "days", "slips", "side")


def fill_tables(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        for statement in FILL:
            conn.execute(statement.encode())


def _write(conn: Connection, chance: random.Random) -> None:
    """One transaction. Rows of different length go into whatever block has room."""
    crate, day, slip = chance.randint(1, _CRATES), chance.randint(1, _DAYS), chance.randrange(5)
    note = "m" * chance.randint(0, 600)
    match chance.randrange(12):
        case 0 | 1 | 2:
            execute(
                conn,
                "UPDATE crates SET note = %s WHERE id BETWEEN %s AND %s",
                *(note, crate, crate + 20),
            )
        case 3:
            # To a key that was free, or, for a moment, back.
            execute(
                conn,
                "UPDATE crates SET id = CASE WHEN id > 1000000 THEN id - 1000000"
                " ELSE id + 1000000 END WHERE id IN (%s, %s + 1000000)"
                " AND (SELECT count(*) FROM crates WHERE id IN (%s, %s + 1000000)) = 1",
                *(crate, crate, crate, crate),
            )
        case 4:
            execute(conn, "DELETE FROM crates WHERE id BETWEEN %s AND %s", crate, crate + 3)
        case 5:
            execute(
                conn,
                "INSERT INTO crates SELECT n, 'again', repeat(md5(n::text), 80)"
                " FROM generate_series(%s::int, %s::int) n ON CONFLICT DO NOTHING",
                *(crate, crate + 5),
            )
        case 6:
            execute(conn, "UPDATE crates SET body = reverse(body) WHERE id = %s", crate)
        case 7:
            execute(
                conn,
                "UPDATE days SET note = %s WHERE id BETWEEN %s AND %s",
                *(note, day, day + 10),
            )
        case 8:
            # Into another partition.
            execute(
                conn,
                "UPDATE days SET day = date '2026-01-01' + %s::int WHERE id = %s",
                *(chance.randrange(90), day),
            )
        case 9:
            execute(
                conn,
                "DELETE FROM slips WHERE ctid IN"
                " (SELECT ctid FROM slips WHERE amount = %s LIMIT %s)",
                *(slip, chance.randint(1, 4)),
            )
        case 10:
            execute(
                conn,
                "INSERT INTO slips SELECT repeat('s', 50 + n), %s FROM generate_series(1, 3) n",
                slip,
            )
            execute(
                conn,
                "UPDATE slips SET amount = amount + 5"
                " WHERE ctid IN (SELECT ctid FROM slips WHERE amount = %s LIMIT 1)",
                slip,
            )
        case _:
            if chance.random() < 0.02:
                execute(conn, "TRUNCATE side")
            execute(
                conn,
                "INSERT INTO side VALUES (%s, %s) ON CONFLICT (id)"
                " DO UPDATE SET note = excluded.note",
                *(crate, note),
            )


class Writers:
    """Sessions that write to the filled tables while the block lasts, over every loss of the
    server. ``stop`` may be called before its end."""

    def __init__(self, url: str, seed: int, *, sessions: int = 2, pause: float = 0.05) -> None:
        self._url = url
        self._pause = pause
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(
                target=self._run, args=(random.Random(f"writers {seed}/{number}"),), daemon=True
            )
            for number in range(sessions)
        ]
        self.count = 0

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def stop(self) -> None:
        """End them, and raise what made one fail."""
        self.__exit__(None, None, None)
        self.check()

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self, chance: random.Random) -> None:
        try:
            while not self._stop.is_set():
                try:
                    with psycopg.connect(self._url, connect_timeout=5) as conn:
                        while not self._stop.wait(self._pause):
                            self._transaction(conn, chance)
                except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                    if error.sqlstate is not None and error.sqlstate[:2] not in ("57", "08"):
                        raise
                    self._stop.wait(0.05)
        except BaseException as error:
            self._failure = error

    def _transaction(self, conn: Connection, chance: random.Random) -> None:
        try:
            for _ in range(chance.choice((1, 1, 2, 4))):
                _write(conn, chance)
            if chance.random() < 0.1:
                conn.rollback()
            else:
                conn.commit()
                self.count += 1
        except psycopg.Error as error:
            # A key that another session took meanwhile, and deadlocks.
            if error.sqlstate is None or not error.sqlstate.startswith(("23", "40")):
                raise
            conn.rollback()
