"""Functions and operators that a stranger puts where the role's search path leads."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from penstock.config import ConnectionUrl, PipelineConfig
from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.errors import PipelineBusy
from penstock.model.table_state import Init
from penstock.source.postgres.connect import connect
from penstock.source.postgres.pipeline_lock import PipelineLock
from penstock.source.postgres.preflight.all_checks import run_checks
from penstock.source.postgres.source_status import read_source_status
from penstock.source.postgres.subscription.subscription import (
    destroy_subscription,
    ensure_subscription,
)
from penstock.source.postgres.tracking.schema_tracking import ensure_tracking, remove_tracking
from penstock.store import PostgresStore
from tests.integration.fake_pooler import TransactionPooler

# Each fits a call of ours better than the system's own does, and does what that does.
FUNCTIONS = {
    "obj_description(oid, text)": "text",
    "to_jsonb(pg_replication_slots)": "jsonb",
    "concat_ws(text, bigint, numeric)": "text",
    "concat_ws(text, text, text, text, text, text)": "text",
}
OPERATORS = {
    ("name", "~~", "name"): "SELECT $1::text ~~ $2::text",
    ("name", "!~~", "name"): "SELECT $1::text !~~ $2::text",
    ("oid", "||", "text"): "SELECT $1::text || $2",
}


@pytest.fixture
def trapped(database: str) -> Iterator[str]:
    """A database in which a role that may create in ``public``, as every role may on Postgres 14,
    has set its traps.
    """
    role = f"stranger_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'".encode())
        admin.execute("CREATE SCHEMA shop; CREATE TABLE shop.items (id int PRIMARY KEY)")
        if admin.info.server_version >= 150000:
            admin.execute(f"GRANT CREATE ON SCHEMA public TO {role}".encode())
        with psycopg.connect(
            make_conninfo(database, user=role, password="x"), autocommit=True
        ) as stranger:
            stranger.execute("CREATE TABLE evidence (what text, who text)")
            stranger.execute("GRANT INSERT ON evidence TO PUBLIC")
            for number, (signature, result) in enumerate(FUNCTIONS.items()):
                _plant(stranger, number, signature, result)
            for number, ((left, operator, right), text) in enumerate(OPERATORS.items()):
                result = "text" if operator == "||" else "bool"
                function = f"act_{number}({left}, {right})"
                stranger.execute(_trap(function, result, text.removeprefix("SELECT ")).encode())
                stranger.execute(
                    f"CREATE OPERATOR public.{operator} (FUNCTION = act_{number},"
                    f" LEFTARG = {left}, RIGHTARG = {right})".encode()
                )
        yield database
        admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


def _plant(stranger: psycopg.Connection[object], number: int, signature: str, result: str) -> None:
    name, _, arguments = signature.partition("(")
    places = ", ".join(f"${place + 1}" for place in range(arguments.count(",") + 1))
    true = f"pg_catalog.{name}({places})"
    if name == "obj_description":
        true = "pg_catalog.obj_description($1, $2::name)"
    stranger.execute(_trap(f"public.{signature}", result, true).encode())


def _trap(signature: str, result: str, true: str) -> str:
    note = f"INSERT INTO public.evidence VALUES ('{signature}', current_user::text);"  # noqa: S608
    return (
        f"CREATE FUNCTION {signature} RETURNS {result} LANGUAGE plpgsql"
        f" SET search_path = pg_catalog AS $$BEGIN {note} RETURN {true}; END$$"
    )


def evidence(url: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as admin:
        return admin.execute("SELECT DISTINCT what, who FROM public.evidence").fetchall()


@pytest.mark.every_postgres
def test_nothing_of_a_stranger_runs_in_sessions_at_the_source(trapped: str, tmp_path: Path) -> None:
    config = PipelineConfig.model_validate(
        {
            "name": f"t_{uuid.uuid4().hex[:12]}",
            "source": {"url": trapped, "tables": {"include": ["shop.*"]}, "copy": False},
            "change_log": {"path": str(tmp_path / "log")},
            "destination": {"type": "discard"},
        }
    )
    assert [each.name for each in run_checks(config) if each.status == "failed"] == []
    with connect(trapped) as conn, connect(trapped) as other:
        assert ensure_tracking(conn)
        for _ in range(2):
            ensure_subscription(conn, config)
        assert read_source_status(conn, config.name).slot is not None
        with (
            PipelineLock(conn, config.name),
            suppress(PipelineBusy),
            PipelineLock(other, config.name, patience=0),
        ):
            pytest.fail("two holders of one lock")
        destroy_subscription(conn, config.name)
        remove_tracking(conn)
    assert evidence(trapped) == []


@pytest.mark.every_postgres
def test_nothing_of_a_stranger_runs_in_sessions_of_the_store(
    trapped: str, pg_server: EmbeddedPostgres
) -> None:
    pooler = TransactionPooler(pg_server.port)
    pooled = trapped.replace(f":{pg_server.port}/", f":{pooler.port}/")
    try:
        for url in (trapped, pooled):
            with PostgresStore(ConnectionUrl(url), "shop") as store:
                store.open()
                store.update_table_state(7, Init())
                store.table_stamp()
                store.forget_pipeline()
        # A pooler's other clients find the path that they had.
        with psycopg.connect(pooled, autocommit=True, prepare_threshold=None) as client:
            assert client.execute("SHOW search_path").fetchone() == ('"$user", public',)
    finally:
        pooler.close()
    assert evidence(trapped) == []


def test_the_role_s_own_path_counts_for_nothing(database: str) -> None:
    """Also one on which a stranger's schema stands before the system's."""
    with psycopg.connect(database, autocommit=True) as admin:
        name = admin.info.dbname
        admin.execute(
            sql.SQL("ALTER DATABASE {} SET search_path = public, pg_catalog").format(
                sql.Identifier(name)
            )
        )
        admin.execute("CREATE TABLE public.evidence (what text)")
        admin.execute(
            _trap("public.act(int, int)", "bool", "true").replace(", current_user::text", "")
        )
        admin.execute(
            "CREATE OPERATOR public.= (FUNCTION = public.act, LEFTARG = int, RIGHTARG = int)"
        )
    for replication in (False, True):
        with connect(database, replication=replication) as conn:
            assert conn.execute(b"SHOW search_path").fetchone() == ("",)
    with psycopg.connect(database) as admin:
        assert admin.execute("SELECT FROM public.evidence").fetchall() == []
