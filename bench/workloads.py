"""The workloads: tables, and the server-side loops that fill the WAL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import psycopg
from psycopg import sql

from penstock.model.lsn import parse_lsn

W4_TABLES = 500
# A w4 transaction writes to this many tables, so that neighbouring changes differ in table.
_W4_TABLES_A_TRANSACTION = 10

COLUMNS = sql.SQL(
    "id bigint PRIMARY KEY, quantity int, name text, price numeric(12,2), note text,"
    " tags text[], details jsonb, changed_at timestamptz"
)

# One row made from the number i; about 280 bytes as text.
ROW = sql.SQL(
    "i, (i % 10007)::int, 'customer ' || md5(i::text), (i % 1000000) * 0.01,"
    " 'left at ' || md5((i + 1)::text) || ' and ' || md5((i + 2)::text),"
    " ARRAY['tag ' || i % 97, 'tag ' || i % 89, 'a \"quoted\" tag'],"
    " jsonb_build_object('shelf', i % 331, 'weight', (i % 1000) * 0.125, 'fragile', i % 2 = 0),"
    " timestamptz '2024-01-01 UTC' + i * interval '1.000123 seconds'"
)
_CHANGES = sql.SQL(
    "quantity = quantity + 1, price = price + 0.01, changed_at = changed_at + interval '1 day'"
)

# Before each commit the session notes where the WAL stands: the last transaction alone has its
# commit record beyond the last note.
_COMMIT = sql.SQL(
    "PERFORM set_config('bench.before_commit', pg_current_wal_insert_lsn()::text, false); COMMIT;"
)


@dataclass(frozen=True)
class Mix:
    """How many transactions of which size, per kind of change."""

    inserts: int
    updates: int = 0
    deletes: int = 0
    rows_an_insert: int = 1000
    rows_an_update: int = 10
    rows_a_delete: int = 100

    @property
    def changes(self) -> int:
        return (
            self.inserts * self.rows_an_insert
            + self.updates * self.rows_an_update
            + self.deletes * self.rows_a_delete
        )


@dataclass(frozen=True)
class Load:
    """What a load left in the WAL.

    Its last transaction alone commits at or after ``last_commit``; at ``end`` everything is
    written, and a logical message follows there at once.
    """

    changes: int
    last_commit: int
    end: int


Connection = psycopg.Connection[tuple[object, ...]]


@dataclass(frozen=True)
class Workload:
    """A backlog: make its tables, then write it; ``write`` returns the number of changes.

    A ``phase`` is a part of a workload that is a backlog of its own.
    """

    name: str
    create: Callable[[Connection], None]
    write: Callable[[Connection], int]
    phase: str | None = None

    @property
    def title(self) -> str:
        return self.name if self.phase is None else f"{self.name} {self.phase}"

    @property
    def label(self) -> str:
        """The title as a part of names."""
        return self.title.replace(" ", "_")

    def load(self, conn: Connection) -> Load:
        # The server keeps fsync on; only this session does not wait for it.
        conn.execute("SET synchronous_commit = off")
        changes = self.write(conn)
        row = conn.execute(
            "SELECT current_setting('bench.before_commit'), pg_current_wal_insert_lsn()::text"
        ).fetchone()
        assert row is not None  # noqa: S101 (a SELECT without FROM has one row)
        # A reader that is told to stop at an LSN stops at the first message from there on; without
        # one it would wait for a keepalive.
        conn.execute("SELECT pg_logical_emit_message(false, 'bench', 'end')")
        return Load(changes, parse_lsn(str(row[0])), parse_lsn(str(row[1])))


def backlog(name: str, scale: float) -> Workload:
    """w1, w2 or w4 at a scale."""
    if name == "w1":
        return w1(scale)
    return w2(scale) if name == "w2" else w4(scale)


def w1(scale: float) -> Workload:
    """1M inserts by 1,000, 300k updates by 10, 100k deletes by 100, on one table."""
    mix = scaled_mix(scale)
    return Workload("w1", _create_one, partial(_write_mix, mix))


def w1_phases(scale: float) -> list[Workload]:
    """The inserts, the updates and the deletes of w1, one backlog after the other."""
    mix = scaled_mix(scale)
    writers: dict[str, Callable[[Mix, Connection], int]] = {
        "insert": _write_inserts,
        "update": _write_updates,
        "delete": _write_deletes,
    }
    return [
        Workload(
            "w1",
            # All three work on one table, which the first finds missing.
            _create_one if phase == "insert" else _create_nothing,
            partial(write, mix),
            phase,
        )
        for phase, write in writers.items()
    ]


def w2(scale: float) -> Workload:
    """One transaction of 5M inserts."""
    mix = Mix(inserts=1, rows_an_insert=max(1000, round(5_000_000 * scale)))
    return Workload("w2", _create_one, partial(_write_mix, mix))


def w4(scale: float) -> Workload:
    """The mix of w1 over 500 tables, each transaction over ten of them."""
    mix = scaled_mix(scale)
    groups = min(W4_TABLES // _W4_TABLES_A_TRANSACTION, mix.inserts)
    # Every group of ten tables gets the same, so that updates and deletes find their rows.
    mix = Mix(
        inserts=mix.inserts // groups * groups,
        updates=max(1, mix.updates // groups) * groups,
        deletes=max(1, mix.deletes // groups) * groups,
    )
    return Workload("w4", _create_many, lambda conn: _write_spread(conn, mix, groups))


def scaled_mix(scale: float) -> Mix:
    """The mix of w1: transactions keep their size, their number is scaled."""
    return Mix(
        inserts=max(1, round(1000 * scale)),
        updates=max(1, round(30_000 * scale)),
        deletes=max(1, round(1000 * scale)),
    )


def _create_one(conn: Connection) -> None:
    conn.execute(sql.SQL("CREATE TABLE item ({})").format(COLUMNS))


def _create_many(conn: Connection) -> None:
    for number in range(W4_TABLES):
        conn.execute(
            sql.SQL("CREATE TABLE {} ({})").format(sql.Identifier(f"item_{number}"), COLUMNS)
        )


def _create_nothing(_conn: Connection) -> None:
    pass


def _write_mix(mix: Mix, conn: Connection) -> int:
    return sum(write(mix, conn) for write in (_write_inserts, _write_updates, _write_deletes))


def _write_inserts(mix: Mix, conn: Connection) -> int:
    _loop(
        conn,
        mix.inserts,
        sql.SQL(
            "INSERT INTO item SELECT {row} FROM generate_series(n * {rows} + 1, (n + 1) * {rows}) i"
        ).format(row=ROW, rows=sql.Literal(mix.rows_an_insert)),
    )
    return mix.inserts * mix.rows_an_insert


def _write_updates(mix: Mix, conn: Connection) -> int:
    _loop(
        conn,
        mix.updates,
        sql.SQL(
            "UPDATE item SET {changes} WHERE id > n * {rows} AND id <= (n + 1) * {rows}"
        ).format(changes=_CHANGES, rows=sql.Literal(mix.rows_an_update)),
    )
    return mix.updates * mix.rows_an_update


def _write_deletes(mix: Mix, conn: Connection) -> int:
    total = mix.inserts * mix.rows_an_insert
    _loop(
        conn,
        mix.deletes,
        sql.SQL(
            "DELETE FROM item WHERE id > {total} - (n + 1) * {rows} AND id <= {total} - n * {rows}"
        ).format(total=sql.Literal(total), rows=sql.Literal(mix.rows_a_delete)),
    )
    return mix.deletes * mix.rows_a_delete


def _write_spread(conn: Connection, mix: Mix, groups: int) -> int:
    """As _write_mix; transaction n works on group n % groups, for the (n / groups)th time."""
    per_table = _W4_TABLES_A_TRANSACTION
    inserted = mix.rows_an_insert // per_table
    deleted = mix.rows_a_delete // per_table
    total = mix.inserts // groups * inserted
    _loop_tables(
        conn,
        mix.inserts,
        groups,
        sql.SQL(
            "INSERT INTO %I SELECT {row} FROM generate_series($1 * {rows} + 1, ($1 + 1) * {rows}) i"
        ).format(row=ROW, rows=sql.Literal(inserted)),
    )
    _loop_tables(
        conn,
        mix.updates,
        groups,
        sql.SQL("UPDATE %I SET {changes} WHERE id = $1 + 1").format(changes=_CHANGES),
    )
    _loop_tables(
        conn,
        mix.deletes,
        groups,
        sql.SQL(
            "DELETE FROM %I WHERE id > {total} - ($1 + 1) * {rows} AND id <= {total} - $1 * {rows}"
        ).format(total=sql.Literal(total), rows=sql.Literal(deleted)),
    )
    return mix.changes


def _loop(conn: Connection, transactions: int, statement: sql.Composed) -> None:
    """Run a statement in its own transaction for each n; inside the server, so nothing waits."""
    if transactions == 0:
        return
    body = sql.SQL(
        "DECLARE n bigint; BEGIN FOR n IN 0 .. {last} LOOP {statement}; {commit} END LOOP; END"
    ).format(last=sql.Literal(transactions - 1), statement=statement, commit=_COMMIT)
    conn.execute(sql.SQL("DO {}").format(sql.Literal(body.as_string(conn))))


def _loop_tables(conn: Connection, transactions: int, groups: int, statement: sql.Composed) -> None:
    """Run a statement on the tables of one group after another, one transaction a group.

    %I in it is the table, $1 how often the group had its turn before.
    """
    # What format() sees must keep the percent signs of the row's expressions.
    text = statement.as_string(conn).replace("%", "%%").replace("%%I", "%I")
    body = sql.SQL(
        "DECLARE n int; t int; BEGIN FOR n IN 0 .. {last} LOOP"
        " FOR t IN (n % {groups}) * {size} .. (n % {groups}) * {size} + {size} - 1 LOOP"
        " EXECUTE format({text}, 'item_' || t) USING (n / {groups})::bigint;"
        " END LOOP; {commit} END LOOP; END"
    ).format(
        last=sql.Literal(transactions - 1),
        groups=sql.Literal(groups),
        size=sql.Literal(_W4_TABLES_A_TRANSACTION),
        text=sql.Literal(text),
        commit=_COMMIT,
    )
    conn.execute(sql.SQL("DO {}").format(sql.Literal(body.as_string(conn))))
