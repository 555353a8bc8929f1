"""`schema: full` step by step, without Spark: every kind of object, crashes, what is refused."""

from __future__ import annotations

import difflib
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import psycopg
import pytest

from penstock import failpoints
from penstock.config.connection_url import ConnectionUrl
from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.errors import SourceUnavailable
from penstock.source.postgres.whole_schema import dump as dumping
from penstock.source.postgres.whole_schema.dump import dump_schema
from penstock.source.postgres.whole_schema.programs import find_programs
from penstock.source.schema_dump import DumpOptions
from tests.fix_postgres import SETTINGS, FreshServer, drop_database, home_of
from tests.whole_copy import copy_whole, snapshot_of
from tests.whole_schemas import (
    LATER,
    RENTAL_TABLES,
    RENTALS,
    RENTED,
    execute,
    rows_text,
    schema_text,
    wide_schema,
)


@pytest.fixture
def empty(pg_server: EmbeddedPostgres) -> Iterator[str]:
    """A database as initdb makes it."""
    name = f"whole_{uuid.uuid4().hex}"
    yield pg_server.create_database(name)
    drop_database(pg_server, name)


@pytest.fixture
def roles(database: str) -> tuple[str, str]:
    """Two that go with their server."""
    made = f"owner_{uuid.uuid4().hex}", f"reader_{uuid.uuid4().hex}"
    execute(database, tuple(f"CREATE ROLE {role}" for role in made))
    return made


def assert_same(source: str, target: str, *tables: str) -> None:
    there, here = schema_text(source), schema_text(target)
    difference = difflib.unified_diff(there.splitlines(), here.splitlines(), "source", "target")
    assert there == here, "\n".join(difference)
    for table in tables:
        assert rows_text(source, table) == rows_text(target, table)


@pytest.mark.parametrize(
    "place", ["postgres.schema_before", "postgres.copy_truncated", "postgres.schema_after"]
)
def test_begun_again_it_is_the_same(
    database: str, empty: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(database, (*RENTALS, *RENTED))
    monkeypatch.setitem(failpoints._points, place, ("error", 1))
    with pytest.raises(RuntimeError, match=place):
        copy_whole(database, empty)
    assert copy_whole(database, empty) == []
    assert_same(database, empty, *RENTAL_TABLES, "store.sums")


def test_a_second_copy_follows_what_changed(database: str, empty: str) -> None:
    execute(database, (*RENTALS, *RENTED))
    assert copy_whole(database, empty) == []
    execute(database, LATER)
    execute(empty, ("SELECT nextval('public.ticket') FROM generate_series(1, 9)",))
    assert copy_whole(database, empty) == []
    assert_same(database, empty, *RENTAL_TABLES)
    with psycopg.connect(empty) as conn:
        # Drawn from here: it does not go back.
        assert conn.execute("SELECT nextval('public.ticket')").fetchone() == (160,)


def test_a_snapshot_s_name_may_be_another_s(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart of the server names come again: it would be a schema of another point."""
    url, options = ConnectionUrl(database), DumpOptions()
    dump = partial(dump_schema, url, options=options, check=lambda: None, application="test")
    with snapshot_of(database) as held:
        dump(held)
        with pytest.raises(SourceUnavailable, match="ended before the schema was read"):
            dump(replace(held, backend_start="1.5"))
    # The holder's session ends in here.
    with suppress(psycopg.OperationalError), snapshot_of(database) as held:

        def dump_beside_restart(*_: object) -> None:
            with psycopg.connect(database) as conn:
                conn.execute("SELECT pg_terminate_backend(%s, 5000)", [held.backend_pid])

        monkeypatch.setattr(dumping, "_run", dump_beside_restart)
        monkeypatch.setattr(Path, "read_bytes", lambda _: b"")
        with pytest.raises(SourceUnavailable, match="ended before the schema was read"):
            dump(held)


VIEWS = (
    "CREATE MATERIALIZED VIEW sums AS SELECT n, count(*) FROM plain {where} GROUP BY n",
    "CREATE UNIQUE INDEX by_n ON sums (n)",
    "CREATE INDEX by_count ON sums ({columns})",
    "COMMENT ON MATERIALIZED VIEW sums IS 'all'",
    "COMMENT ON INDEX by_n IS 'each'",
    "GRANT SELECT ON sums TO PUBLIC",
    "CREATE VIEW a AS SELECT id::{kind} AS id FROM plain",
    "COMMENT ON VIEW a IS 'first'",
    "CREATE TRIGGER put INSTEAD OF INSERT ON a FOR EACH ROW EXECUTE FUNCTION put()",
    "CREATE VIEW b AS SELECT id FROM a",
    "GRANT SELECT ON b TO PUBLIC",
    "CREATE FUNCTION f() RETURNS {kind} LANGUAGE sql AS 'SELECT 1::{kind}'",
    "COMMENT ON FUNCTION f() IS 'one'",
)


def test_what_lies_upon_a_changed_view_is_made_again(database: str, empty: str) -> None:
    """Indexes, comments, grants and triggers go with what is dropped, and views upon it have to go
    first. What is in the way once is not in the way for ever.
    """
    first = {"where": "", "columns": "count", "kind": "integer"}
    then = {"where": "WHERE n > 1", "columns": "count, n", "kind": "text"}
    execute(
        database,
        (
            "CREATE TABLE plain (id integer PRIMARY KEY, n integer)",
            "INSERT INTO plain SELECT n, n FROM generate_series(1, 9) n",
            "CREATE FUNCTION put() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
            *(each.format(**first) for each in VIEWS),
        ),
    )
    assert copy_whole(database, empty, privileges=True) == []
    assert_same(database, empty, "plain", "sums")
    gone = ("DROP MATERIALIZED VIEW sums", "DROP VIEW a CASCADE", "DROP FUNCTION f()")
    execute(database, (*gone, *(each.format(**then) for each in VIEWS)))
    # Somebody's own: neither dropped nor forgotten.
    execute(empty, ("CREATE VIEW theirs AS SELECT id FROM a",))
    refused = copy_whole(database, empty, privileges=True)
    assert [each.title for each in refused] == ["view public.a"]
    execute(empty, ("DROP VIEW theirs",))
    assert copy_whole(database, empty, privileges=True) == []
    assert_same(database, empty, "plain", "sums")
    execute(database, ("DROP VIEW a CASCADE",))
    # Its comment went with it.
    assert copy_whole(database, empty, privileges=True) == []
    assert_same(database, empty)


@pytest.mark.release
@pytest.mark.every_postgres
def test_a_wide_schema(database: str, empty: str, pg_version: int, roles: tuple[str, str]) -> None:
    execute(database, wide_schema(pg_version, roles))
    assert copy_whole(database, empty, owner=True, privileges=True) == []
    assert_same(database, empty)


@pytest.mark.release
@pytest.mark.parametrize(("there", "here"), [(14, 18), (18, 14)])
def test_another_version(there: int, here: int) -> None:
    """The target is what pg_dump and pg_restore make there: servers write the same views in other
    words. Nothing is left out but what they leave out as well.
    """
    with (
        EmbeddedPostgres(home=home_of(there), settings=SETTINGS) as source,
        EmbeddedPostgres(home=home_of(here), settings=SETTINGS) as target,
    ):
        url, copied = source.create_database("shop"), target.create_database("copied")
        roles = "owner_of_all", "reader_of_all"
        for server in (source, target):
            execute(server.url(), tuple(f"CREATE ROLE {role}" for role in roles))
        execute(url, (*RENTALS, *RENTED))
        execute(url, wide_schema(min(there, here), roles))
        assert copy_whole(url, copied, owner=True, privileges=True) == []
        restored = target.create_database("restored")
        programs = find_programs(there)
        archive = subprocess.run(
            [programs.pg_dump, "-Fc", "--no-publications", url], check=True, capture_output=True
        )
        # It sets what an older server does not know, and goes on.
        subprocess.run(
            [programs.pg_restore, f"--dbname={restored}"],
            input=archive.stdout,
            capture_output=True,
            check=here > there,
        )
        assert_same(restored, copied, *RENTAL_TABLES, "store.sums")


def test_roles_are_made_if_asked(
    database: str, roles: tuple[str, str], fresh_server: FreshServer
) -> None:
    owner, reader = roles
    execute(
        database,
        (
            f"ALTER ROLE {owner} LOGIN BYPASSRLS CREATEDB PASSWORD 'secret'",
            f"GRANT {owner} TO {reader}",
            "CREATE TABLE plain (id integer PRIMARY KEY)",
            f"ALTER TABLE plain OWNER TO {owner}",
            f"GRANT SELECT ON plain TO {reader}",
        ),
    )
    target = fresh_server().url("not_yet")
    wishes = {"roles": True, "owner": True, "privileges": True, "create_database": True}
    assert copy_whole(database, target, **wishes) == []
    assert_same(database, target, "plain")
    with psycopg.connect(target) as conn:
        row = conn.execute(
            "SELECT rolcanlogin, rolbypassrls, rolcreatedb, rolsuper, rolpassword,"
            " pg_has_role(%s, %s, 'MEMBER') FROM pg_authid WHERE rolname = %s",
            [reader, owner, owner],
        ).fetchone()
    assert row == (True, False, False, False, None, True)
