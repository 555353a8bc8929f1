"""Tables that change all the time: a seeded load of schema changes with rows between them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import psycopg

from penstock.model.table_definition import TableDefinition
from penstock.model.table_name import TableName
from penstock.source.postgres.catalogue.definitions import definitions_of
from tests.crash.row_texts import expect_same_rows
from tests.crash.side_session import Connection, SideSession

_PREFIX = "changing"
_MOST = 6
_TYPES = (
    *("integer", "bigint", "text", "varchar(20)", "numeric(10,2)", "boolean", "date"),
    *("timestamptz", "jsonb", "changing_mood", "text[]", "double precision"),
)
# What a value of any of them can be written as.
_VALUES = {
    "integer": ("7", "-2147483648", "NULL"),
    "bigint": ("9000000000", "0", "NULL"),
    "text": ("'word'", "repeat('long ', 900)", "''", "NULL"),
    "character varying": ("'short'", "NULL"),
    "numeric": ("12.34", "0", "NULL"),
    "boolean": ("true", "NULL"),
    "date": ("'2026-01-15'", "'infinity'", "NULL"),
    "timestamp with time zone": ("'2026-01-15 12:00:00.5+02'", "NULL"),
    "jsonb": ("'{\"a\": [1, null]}'", "NULL"),
    "changing_mood": ("'calm'", "NULL"),
    "text[]": ("'{a,\"b c\",NULL}'", "NULL"),
    "double precision": ("'NaN'", "0.1", "NULL"),
}

_COLUMNS = """
SELECT a.attname::text, format_type(a.atttypid, -1)
  FROM pg_attribute a
 WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
   AND a.attname <> 'id' AND a.attgenerated = ''
"""


class ChangingTables(SideSession):
    """A transaction of schema changes and rows about once a second."""

    def __init__(self, url: str, seed: int) -> None:
        super().__init__(url, pause=1.0)
        self._chance = random.Random(f"changes of {seed}")
        self._made = 0
        self.changes = 0
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute("CREATE TYPE changing_mood AS ENUM ('calm')")
            for _ in range(2):
                self._make(conn, "")

    def transaction(self, conn: Connection) -> None:
        table = self._chance.choice(self._tables(conn) or [""])
        for _ in range(self._chance.randint(1, 4)):
            step = self._chance.choices(*zip(*_STEPS.items(), strict=True))[0]
            try:
                with conn.transaction(force_rollback=self._chance.random() < 0.1):
                    step(self, conn, table)
            except (
                psycopg.errors.ProgrammingError,
                psycopg.errors.IntegrityError,
                psycopg.errors.DataError,
                psycopg.errors.NotSupportedError,
            ):
                # What cannot be done now: no such column, rows that do not fit.
                continue
        if self._chance.random() < 0.1:
            conn.rollback()
        else:
            conn.commit()
            self.changes += 1

    def _tables(self, conn: Connection) -> list[str]:
        return tables(conn)

    def _columns(self, conn: Connection, table: str) -> dict[str, str]:
        return dict(conn.execute(_COLUMNS, [table]).fetchall())

    def _column(self, conn: Connection, table: str) -> str:
        return self._chance.choice(sorted(self._columns(conn, table)) or ["none"])

    # -- rows ------------------------------------------------------------------------------------

    def _value(self, kind: str) -> str:
        return self._chance.choice(_VALUES.get(kind, ("NULL",)))

    def _insert(self, conn: Connection, table: str) -> None:
        columns = self._columns(conn, table)
        names = ", ".join(["id", *columns])
        values = ", ".join(["n", *(self._value(kind) for kind in columns.values())])
        first = self._chance.randrange(100_000)
        conn.execute(
            f"INSERT INTO {table} ({names}) SELECT {values}"  # noqa: S608
            f" FROM generate_series({first}, {first + 20}) n ON CONFLICT DO NOTHING".encode()
        )

    def _update(self, conn: Connection, table: str) -> None:
        column = self._column(conn, table)
        value = self._value(self._columns(conn, table).get(column, ""))
        where = f"id % 7 = {self._chance.randrange(7)}"
        conn.execute(f"UPDATE {table} SET {column} = {value} WHERE {where}".encode())  # noqa: S608

    def _delete(self, conn: Connection, table: str) -> None:
        where = f"id % 11 = {self._chance.randrange(11)}"
        conn.execute(f"DELETE FROM {table} WHERE {where}".encode())  # noqa: S608

    # -- changes ---------------------------------------------------------------------------------

    def _alter(self, conn: Connection, table: str, what: str) -> None:
        conn.execute(f"ALTER TABLE {table} {what}".encode())

    def _new_name(self) -> str:
        self._made += 1
        return f"c{self._made}"

    def _add(self, conn: Connection, table: str) -> None:
        kind = self._chance.choice(_TYPES)
        bare = kind.partition("(")[0].replace("varchar", "character varying")
        default = self._chance.choice(("", f"DEFAULT {self._value(bare)}"))
        self._alter(conn, table, f"ADD COLUMN {self._new_name()} {kind} {default}")

    def _add_with_rewrite(self, conn: Connection, table: str) -> None:
        kind = self._chance.choice(("bigserial", "double precision DEFAULT random()"))
        self._alter(conn, table, f"ADD COLUMN {self._new_name()} {kind}")

    def _drop(self, conn: Connection, table: str) -> None:
        self._alter(conn, table, f"DROP COLUMN {self._column(conn, table)}")

    def _rename(self, conn: Connection, table: str) -> None:
        column = self._column(conn, table)
        self._alter(conn, table, f"RENAME COLUMN {column} TO {self._new_name()}")

    def _swap(self, conn: Connection, table: str) -> None:
        columns = sorted(self._columns(conn, table))
        if len(columns) < 2:
            return
        one, other = self._chance.sample(columns, 2)
        for old, new in ((one, "passing"), (other, one), ("passing", other)):
            self._alter(conn, table, f"RENAME COLUMN {old} TO {new}")

    def _type(self, conn: Connection, table: str) -> None:
        column = self._column(conn, table)
        kind, using = self._chance.choice(
            (("text", f"{column}::text"), ("bigint", f"length({column}::text)"))
        )
        self._alter(conn, table, f"ALTER {column} DROP DEFAULT")
        self._alter(conn, table, f"ALTER {column} TYPE {kind} USING {using}")

    def _not_null(self, conn: Connection, table: str) -> None:
        column, verb = self._column(conn, table), self._chance.choice(("SET", "DROP"))
        self._alter(conn, table, f"ALTER {column} {verb} NOT NULL")

    def _default(self, conn: Connection, table: str) -> None:
        column = self._column(conn, table)
        value = self._value(self._columns(conn, table).get(column, ""))
        verb = self._chance.choice(("DROP DEFAULT", f"SET DEFAULT {value}"))
        self._alter(conn, table, f"ALTER {column} {verb}")

    def _index(self, conn: Connection, table: str) -> None:
        column = self._column(conn, table)
        conn.execute(f"CREATE INDEX {self._new_name()} ON {table} ({column})".encode())

    def _identity(self, conn: Connection, table: str) -> None:
        self._alter(conn, table, f"REPLICA IDENTITY {self._chance.choice(('FULL', 'DEFAULT'))}")

    def _enum(self, conn: Connection, _table: str) -> None:
        conn.execute(f"ALTER TYPE changing_mood ADD VALUE '{self._new_name()}'".encode())

    def _rename_table(self, conn: Connection, table: str) -> None:
        self._made += 1
        self._alter(conn, table, f"RENAME TO {_PREFIX}_{self._made}")

    def _make(self, conn: Connection, _table: str) -> None:
        if len(self._tables(conn)) >= _MOST:
            return
        self._made += 1
        name = f"{_PREFIX}_{self._made}"
        conn.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY, a text, b integer)".encode())
        conn.execute(
            f"INSERT INTO {name} SELECT n, 'first', n FROM generate_series(1, 300) n".encode()  # noqa: S608
        )

    def _remove(self, conn: Connection, table: str) -> None:
        if len(self._tables(conn)) > 2:
            conn.execute(f"DROP TABLE {table}".encode())


_STEPS: dict[Callable[[ChangingTables, Connection, str], None], int] = {
    ChangingTables._insert: 10,
    ChangingTables._update: 8,
    ChangingTables._delete: 3,
    ChangingTables._add: 5,
    ChangingTables._add_with_rewrite: 1,
    ChangingTables._drop: 3,
    ChangingTables._rename: 3,
    ChangingTables._swap: 2,
    ChangingTables._type: 1,
    ChangingTables._not_null: 1,
    ChangingTables._default: 2,
    ChangingTables._index: 1,
    ChangingTables._identity: 1,
    ChangingTables._enum: 1,
    ChangingTables._rename_table: 1,
    ChangingTables._make: 1,
    ChangingTables._remove: 1,
}


def tables(conn: Connection) -> list[str]:
    """Those that change, as they are called now."""
    found = conn.execute(
        "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'"
        " AND tablename ~ %s ORDER BY 1",
        [f"^{_PREFIX}_[0-9]+$"],
    )
    return [name for (name,) in found.fetchall()]


def expect_same_tables(source_url: str, target_url: str) -> int:
    """Fail unless both sides have the same tables with the same columns, keys, types and rows."""
    with psycopg.connect(source_url) as source, psycopg.connect(target_url) as target:
        names = tables(source)
        here, there = _shapes(source, names), _shapes(target, names)
        different = [
            f"{name}:\n  source      {here[name]}\n  destination {there.get(name)}"
            for name in names
            if here[name] != there.get(name)
        ]
        assert not different, "\n".join(different)
    # In the order of the source's columns: a column that was made anew stands last over there.
    return expect_same_rows(source_url, target_url, names, by_name=True)


def _shapes(conn: Connection, names: Sequence[str]) -> dict[str, object]:
    found = definitions_of(conn, [TableName("public", name) for name in names])
    return {table.name: _shape(table) for table in found}


def _shape(table: TableDefinition) -> object:
    return (
        sorted((c.name, str(c.type), c.not_null, c.default) for c in table.columns),
        table.primary_key,
        sorted((kind.name, kind.labels) for kind in table.types),
        sorted(index.definition for index in table.indexes),
    )
