"""Roles of the source that want to run SQL at the destination, or stop the pipeline."""

from __future__ import annotations

import json
import random
import threading
from dataclasses import dataclass
from functools import partial
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from penstock.model.schema_message import PREFIX
from penstock.source.postgres.catalogue import document as catalogue_document
from tests.fix_changed import Changed

ATTACK = "DROP TABLE private.canary; INSERT INTO private.evidence VALUES ('ran')"

# What a stranger's document says of a table that is followed.
TEXTS = [
    f"0; {ATTACK}",
    f"0); {ATTACK}; --",
    "public.evil()",
    "(SELECT public.evil())",
    f"USING btree (id); {ATTACK}",
    f"CHECK (true); {ATTACK}",
    f"'; {ATTACK}; --",
]

# The same functions stand on both sides; at the destination they leave evidence.
FUNCTIONS = (
    "CREATE FUNCTION evil() RETURNS int LANGUAGE plpgsql AS $$BEGIN {} RETURN 1; END$$",
    (
        "CREATE FUNCTION evil(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql"
        " AS $$BEGIN {} RETURN n; END$$"
    ),
)


@pytest.fixture
def attacked(changed: Changed) -> Changed:
    with psycopg.connect(changed.target_url, autocommit=True) as target:
        target.execute("CREATE SCHEMA private; CREATE TABLE private.canary ()")
        target.execute("CREATE TABLE private.evidence (what text)")
        for function in FUNCTIONS:
            body = function.format("INSERT INTO private.evidence VALUES ('called');")
            target.execute(body.encode())
    changed.pipeline.execute(*(function.format("") for function in FUNCTIONS))
    return changed


def expect_unharmed(changed: Changed) -> None:
    with psycopg.connect(changed.target_url) as target:
        row = target.execute("SELECT to_regclass('private.canary')::text").fetchone()
        assert row == ("private.canary",)
        assert target.execute("SELECT * FROM private.evidence").fetchall() == []


# Whoever called one of these would stop.
PLANTED = (
    (
        "CREATE FUNCTION public.stop() RETURNS text LANGUAGE plpgsql AS"
        " $$BEGIN RAISE 'a stranger''s function was called'; END$$"
    ),
    (
        "CREATE FUNCTION public.obj_description(oid, text) RETURNS text LANGUAGE sql"
        " AS 'SELECT public.stop()'"
    ),
    (
        "CREATE FUNCTION public.to_jsonb(pg_replication_slots) RETURNS jsonb LANGUAGE sql"
        " AS 'SELECT public.stop()::jsonb'"
    ),
    (
        "CREATE FUNCTION public.is_like(name, name) RETURNS bool LANGUAGE sql"
        " AS 'SELECT public.stop()::bool'"
    ),
    "CREATE OPERATOR public.~~ (FUNCTION = is_like, LEFTARG = name, RIGHTARG = name)",
    "CREATE OPERATOR public.!~~ (FUNCTION = is_like, LEFTARG = name, RIGHTARG = name)",
)
# All keys near those that are taken, for as long as the session lasts.
LOCKS = """
SELECT pg_try_advisory_lock(((classid::bigint << 32) | objid::bigint) + n)
  FROM pg_locks, generate_series(-5, 5) n WHERE locktype = 'advisory' AND objsubid = 1
   AND pid <> pg_backend_pid()
"""


# What names, labels and comments of a stranger are made of, and what its defaults say.
ODD = [*"\"';.,(){}%$\\ \n\tä\u202e", "--", "/*", "%s", "{0}", "$$", ATTACK, "null", "x"]
DEFAULTS = [
    "public.evil()",
    "public.evil(1)",
    "abs(public.evil())",
    "pg_backend_pid()",
    "length(pg_sleep(0)::text)",
    "length(current_setting('application_name'))",
    "7",
]


@dataclass
class Planted:
    """A table of a stranger's own, with a column of an enum of its own."""

    table: str
    kind: str
    columns: list[str]
    rows: int = 0


class Stranger(threading.Thread):
    """Sends messages, plants functions, tables and names, and takes locks, as a role that may
    connect and, as in Postgres 14, create in ``public``.
    """

    def __init__(self, url: str, count: int, seed: int) -> None:
        super().__init__()
        self._url = url
        self._count = count
        self._random = random.Random(seed)
        self._made = 0
        self.planted: list[Planted] = []
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            own = make_conninfo(self._url, user="stranger", password="x")
            with psycopg.connect(own, autocommit=True) as conn:
                documents = self._documents(conn)
                for statement in PLANTED:
                    conn.execute(statement)
                for number in range(self._count):
                    if number % 16 == 9:
                        self._plant(conn)
                    else:
                        self._send(conn, documents)
                    if number % 100 == 0:
                        conn.execute(LOCKS)
        except BaseException as error:
            self.failure = error

    def _documents(self, conn: psycopg.Connection[Any]) -> dict[int, Any]:
        """What the triggers would say, which every role can find out."""
        oids = [o for (o,) in conn.execute("SELECT 'items'::regclass::oid::bigint").fetchall()]
        query = catalogue_document.as_query(catalogue_document.TABLES)
        row = conn.execute(query, {"tables": oids}).fetchone()
        assert row is not None
        return dict.fromkeys(oids, json.loads(row[0]))

    def _send(self, conn: psycopg.Connection[Any], documents: dict[int, Any]) -> None:
        chance = self._random
        prefix = chance.choice([PREFIX, PREFIX, "penstock.verify", "test sentinel", "", "x"])
        content = chance.randbytes(chance.choice([0, 1, 64, 65, 300, 100_000]))
        if chance.random() < 0.7:
            content = self._document(conn, documents)
        if chance.random() < 0.5:
            content = chance.randbytes(32).hex().encode() + content
        conn.execute(
            "SELECT pg_logical_emit_message(%s, %s, %s::bytea)",
            [chance.random() < 0.8, prefix, content],
        )

    def _odd(self) -> str:
        """A name, a label or a comment that nothing else has."""
        self._made += 1
        odd = "".join(self._random.choices(ODD, k=8)).encode()[: 63 - len(str(self._made))]
        return odd.decode(errors="ignore") + str(self._made)

    def _plant(self, conn: psycopg.Connection[Any]) -> None:
        chance = self._random
        if len(self.planted) < 4 or chance.random() < 0.05:
            own = Planted(self._odd(), self._odd(), [self._odd(), self._odd()])
            first, second = own.columns
            run(conn, "CREATE TYPE {k} AS ENUM ({l})", k=own.kind, l=sql.Literal(self._odd()))
            run(
                conn,
                "CREATE TABLE {t} (id int PRIMARY KEY DEFAULT {d}, {a} text DEFAULT {x}, {b} {k})",
                t=own.table,
                d=sql.SQL(chance.choice(DEFAULTS)),
                a=first,
                x=sql.Literal(self._odd()),
                b=second,
                k=own.kind,
            )
            self.planted.append(own)
        own = chance.choice(self.planted)
        chance.choice([self._rename, self._comment, self._label, self._default, self._check])(
            conn, own
        )
        own.rows += 1
        run(
            conn,
            "INSERT INTO {t} (id, {a}, {b}) SELECT {n}, {x}, max(e) FROM unnest("
            "enum_range(NULL::{k})) e",
            t=own.table,
            a=own.columns[0],
            b=own.columns[1],
            n=sql.Literal(own.rows),
            x=sql.Literal(self._odd()),
            k=own.kind,
        )

    def _rename(self, conn: psycopg.Connection[Any], own: Planted) -> None:
        number, new = self._random.randrange(len(own.columns)), self._odd()
        run(conn, "ALTER TABLE {t} RENAME {a} TO {b}", t=own.table, a=own.columns[number], b=new)
        own.columns[number] = new
        if self._random.random() < 0.3:
            new = self._odd()
            run(conn, "ALTER TABLE {t} RENAME TO {n}", t=own.table, n=new)
            own.table = new

    def _comment(self, conn: psycopg.Connection[Any], own: Planted) -> None:
        text = sql.Literal(self._odd())
        run(conn, "COMMENT ON TABLE {t} IS {x}", t=own.table, x=text)
        run(conn, "COMMENT ON COLUMN {t}.{a} IS {x}", t=own.table, a=own.columns[0], x=text)
        run(conn, "COMMENT ON TYPE {k} IS {x}", k=own.kind, x=text)

    def _label(self, conn: psycopg.Connection[Any], own: Planted) -> None:
        run(conn, "ALTER TYPE {k} ADD VALUE {x}", k=own.kind, x=sql.Literal(self._odd()))

    def _default(self, conn: psycopg.Connection[Any], own: Planted) -> None:
        new, default = self._odd(), sql.SQL(self._random.choice(DEFAULTS))
        run(conn, "ALTER TABLE {t} ADD {a} int DEFAULT {d}", t=own.table, a=new, d=default)
        own.columns.append(new)

    def _check(self, conn: psycopg.Connection[Any], own: Planted) -> None:
        name, other = self._odd(), self._odd()
        rule = "ALTER TABLE {t} ADD CONSTRAINT {n} CHECK (public.evil(id) > 0)"
        run(conn, rule, t=own.table, n=name)
        run(conn, "CREATE INDEX {n} ON {t} (public.evil(id))", n=other, t=own.table)

    def _document(self, conn: psycopg.Connection[Any], documents: dict[int, Any]) -> bytes:
        chance = self._random
        ((oid, document),) = documents.items()
        text = chance.choice(TEXTS)
        forged = json.loads(json.dumps(document))
        for column in forged["columns"]:
            if chance.random() < 0.5:
                column["expr"] = text
            if chance.random() < 0.2:
                column["name"] = f'{column["name"]}"; {ATTACK}; --'
        forged["indexes"].append(
            {"table": oid, "oid": 1, "name": "i", "is_unique": False, "definition": text, "key": []}
        )
        forged["constraints"].append(
            {
                "table": oid,
                "oid": 2,
                "name": "c",
                "kind": "c",
                "definition": text,
                "key": [],
                "referenced_schema": None,
                "referenced_name": None,
            }
        )
        xid = conn.execute("SELECT pg_current_xact_id()::text").fetchone()
        assert xid is not None
        gone = chance.random() < 0.3
        value = {
            "xid": str(int(xid[0]) + 1),
            "version": chance.randrange(10**6),
            "tag": chance.choice(["ALTER TABLE", "DROP TABLE", None, 7]),
            "rewrite": chance.random() < 0.5,
            "tables": [{"table": oid, "document": None if gone else forged}],
        }
        if chance.random() < 0.2:
            value["failure"] = "made up"
        return json.dumps(value).encode()


def run(conn: psycopg.Connection[Any], text: LiteralString, **parts: str | sql.Composable) -> None:
    """A statement with names, which are quoted, and texts."""
    named = {
        name: sql.Identifier(part) if isinstance(part, str) else part
        for name, part in parts.items()
    }
    conn.execute(sql.SQL(text).format(**named))


def same_rows(attacked: Changed, own: Planted) -> bool:
    """Whether the destination has what its owner wrote there, under the names of last."""
    columns = sql.SQL(", ").join(map(sql.Identifier, ["id", *own.columns]))
    query = sql.SQL("(SELECT {} FROM {})").format(columns, sql.Identifier(own.table))
    try:
        return attacked.is_equal(query.as_string(None))
    except psycopg.Error:
        return False


def test_a_stranger_runs_stops_and_changes_nothing(attacked: Changed) -> None:
    attacked.pipeline.execute(
        "CREATE ROLE stranger LOGIN PASSWORD 'x'", "GRANT CREATE ON SCHEMA public TO stranger"
    )
    try:
        with attacked.running() as run:
            attacked.wait(run, attacked.is_same, "the tables are copied")
            stranger = Stranger(attacked.pipeline.url, 1000, seed=1)
            stranger.start()
            for number in range(40):
                attacked.transaction(
                    f"UPDATE items SET label = 'n{number}' WHERE id % 7 = {number % 7}",  # noqa: S608
                    f"INSERT INTO parts VALUES ({1000 + number}, 1, 'under attack')",  # noqa: S608
                )
                if number % 20 == 10:
                    attacked.transaction(f"ALTER TABLE items ADD COLUMN c{number} int DEFAULT 1")
            stranger.join()
            assert stranger.failure is None
            # What is behind its last message: once this is there, capture has met them all.
            attacked.transaction("UPDATE items SET label = 'last' WHERE id % 7 = 0")
            attacked.wait(run, lambda: attacked.is_same("items", "parts"), "all is delivered")
            for own in stranger.planted:
                attacked.wait(run, partial(same_rows, attacked, own), f"{own} is delivered")
            attacked.wait(run, lambda: set(attacked.phases().values()) == {"ready"}, "all is ready")
        assert len(stranger.planted) >= 4
        expect_unharmed(attacked)
        report = attacked.pipeline.log.capture_report()
        assert report is not None
        assert report["forged"] > 250
    finally:
        attacked.pipeline.execute("DROP OWNED BY stranger", "DROP ROLE stranger")


def test_what_a_tables_owner_wrote_does_not_run_at_the_destination(attacked: Changed) -> None:
    odd = """x"'; DROP TABLE private.canary; --$$ä\\"""
    with psycopg.connect(attacked.pipeline.url, autocommit=True) as conn:
        conn.execute("CREATE ROLE owner; GRANT CREATE, USAGE ON SCHEMA public TO owner")
        conn.execute("SET SESSION AUTHORIZATION owner")
        names = [sql.Identifier(odd[: 63 - len(str(n))] + str(n)) for n in range(5)]
        label, text = sql.Literal(odd), sql.Literal(odd)
        conn.execute(sql.SQL("CREATE TYPE {} AS ENUM ({})").format(names[0], label))
        conn.execute(
            sql.SQL(
                "CREATE TABLE {t} (id int PRIMARY KEY DEFAULT public.evil(), {a} {e} DEFAULT {l},"
                " b text DEFAULT {l}, c int CHECK (public.evil(c) > 0),"
                " d int GENERATED ALWAYS AS (public.evil(id)) STORED,"
                " f int DEFAULT pg_backend_pid(), g text DEFAULT"
                " query_to_xml('TABLE private.evidence', true, false, '')::text)"
            ).format(t=names[1], a=names[2], e=names[0], l=text)
        )
        conn.execute(sql.SQL("CREATE INDEX {} ON {} (public.evil(id))").format(names[3], names[1]))
        for kind, name in (("TABLE", names[1]), ("TYPE", names[0])):
            conn.execute(sql.SQL("COMMENT ON {} {} IS {}").format(sql.SQL(kind), name, text))
        conn.execute(
            sql.SQL("INSERT INTO {} (id, c, g) VALUES (1, 1, 'a'), (2, 2, NULL)").format(names[1])
        )
    try:
        attacked.run_until_caught_up()
        with psycopg.connect(attacked.pipeline.url, autocommit=True) as conn:
            conn.execute("SET SESSION AUTHORIZATION owner")
            conn.execute(
                sql.SQL("ALTER TABLE {} ADD h int DEFAULT public.evil() NOT NULL").format(names[1])
            )
            conn.execute(sql.SQL("INSERT INTO {} (id, c, g) VALUES (3, 3, NULL)").format(names[1]))
        attacked.run_until_caught_up()
        expect_unharmed(attacked)
        table = names[1].as_string(None)
        rows = f"(SELECT id, {names[2].as_string(None)}, b, c, f, g, h FROM {table})"  # noqa: S608
        assert attacked.is_equal(rows)
        assert set(attacked.phases().values()) == {"ready"}
        told = "\n".join(attacked.said)
        for what in ("default of column id", "column d", "column h", "index", "constraint"):
            assert what in told
        assert "query_to_xml() does more than compute a value" in told
    finally:
        attacked.pipeline.execute("DROP OWNED BY owner", "DROP ROLE owner")
