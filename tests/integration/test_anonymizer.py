"""The transformer that calls functions of PostgreSQL Anonymizer, with a stand-in for it."""
# ruff: noqa: S608 (statements of a test)

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.config.connection_url import ConnectionUrl
from penstock.config.transform_config import ColumnRule, TransformConfig
from penstock.model.errors import ConfigError, SourceUnavailable
from penstock.source.postgres.preflight.rule_checks import followed_tables
from penstock.source.postgres.rule_samples import column_hints
from penstock.transform.anonymizer_session import close_kept, kept_session
from penstock.transform.rules import BoundRule, Rules
from penstock.transform.transformers.column_facts import ColumnFacts
from penstock.transform.transformers.contract import Inputs, UnfitError, ValueRefusedError
from tests.anonymizer_stand_in import OLDEST, install, salt
from tests.fix_pipeline import PipelineUnderTest
from tests.fix_postgres import FreshServer
from tests.integration.fake_pooler import TransactionPooler
from tests.integration.test_transformed_pipeline import catch_up
from tests.integration.transformed_rows import expected_rows, rows_at
from tests.tcp_proxy import TcpProxy
from tests.threads_engine import Threads
from tests.tree_of_tables import KEY, PLANTED

TEXT = ColumnFacts("c", "text", "text")
INTEGER = ColumnFacts("c", "integer", "integer", bits=31)
SHORT = ColumnFacts("c", "text", "character varying", length=8)

Bind = Callable[..., BoundRule]


@pytest.fixture(autouse=True)
def _stand_in_possible(pg_version: int) -> Iterator[None]:
    if pg_version < OLDEST:
        pytest.skip("Postgres takes extensions from a folder of a test's own from 18 on")
    yield
    close_kept()


@pytest.fixture
def anon(database: str) -> str:
    install(database)
    return database


def rules(url: str) -> Rules:
    config = {"anonymizer": {"url": url}, "rules": [{"table": "a", "keep": ["*"]}]}
    return Rules(TransformConfig.model_validate(config))


def bound(url: str, facts: ColumnFacts = TEXT, **said: Any) -> BoundRule:
    rule = ColumnRule.model_validate({"use": "anonymizer", **said})
    return rules(url).bind(rule, facts, "a.c")


def applied(rule: BoundRule, *values: str) -> list[str | None]:
    """As an executor does it: with what the driver has told."""
    transformer = pickle.loads(pickle.dumps(rule.transformer))  # noqa: S301
    found: list[str | None] = transformer.apply(pa.array(values, pa.string()), Inputs()).to_pylist()
    return found


def test_what_functions_give(anon: str) -> None:
    email = bound(anon, function="partial_email")
    assert applied(email, "anna@shop.de", "bob@x.org", "anna@shop.de") == [
        "an***@sh***",
        "bo***@x.***",
        "an***@sh***",
    ]
    assert applied(email) == []
    partial = bound(anon, SHORT, function="partial", arguments=["{value}", 2, "***", 2])
    assert applied(partial, "+49 30 1") == ["+4*** 1"]
    assert applied(
        bound(anon, INTEGER, function="noise", arguments=["{value}", 0], random=True), "7"
    ) == ["7"]
    cities = applied(bound(anon, function="fake_city", arguments=[], random=True), *"x" * 200)
    assert len(set(cities)) > 5
    assert applied(bound(anon, function="lower"), "ü A;'\\") == ["ü a;'\\"]


def test_uniqueness_and_keys(anon: str) -> None:
    found = {
        algorithm: bound(anon, function="digest", arguments=["{value}", "salt", algorithm])
        for algorithm in ("md5", "sha256")
    }
    assert found["md5"].transformer.uniqueness == "lost"
    assert found["sha256"].transformer.uniqueness == "not promised"
    assert bound(anon, function="hash").transformer.uniqueness == "not promised"
    assert bound(anon, SHORT, function="hash").transformer.uniqueness == "lost"
    assert bound(anon, function="partial_email").transformer.uniqueness == "lost"
    assert "keep them apart" in (found["sha256"].why_no_key or "")
    drawn = bound(anon, function="fake_city", arguments=[], random=True)
    assert "at random" in (drawn.why_no_key or "")


REFUSED: list[tuple[ColumnFacts, dict[str, Any], str]] = [
    (TEXT, {"function": "fake_city", "arguments": []}, "say `random: true`"),
    (TEXT, {"function": "k_anonymity"}, "say `random: true`"),
    (TEXT, {"function": "no_such"}, "has no function anon.no_such"),
    (TEXT, {"function": "hash", "arguments": ["{value}", 1]}, "does not take 2 arguments"),
    (TEXT, {"function": "generalize_int4range"}, "does not take such arguments"),
    (INTEGER, {"function": "generalize_int4range"}, "cast to the column's type"),
    (INTEGER, {"function": "pseudo_city"}, "may be no integer"),
    (TEXT, {"function": "digest", "arguments": ["{value}", "", "x"]}, "gives null"),
    (TEXT, {"function": "detect"}, "one value for one value"),
    (TEXT, {"function": "unload", "arguments": [], "random": True}, "SQLSTATE 25006"),
    (TEXT, {"function": "outsider"}, "has no function anon.outsider"),
    (TEXT, {"function": "partial_email"}, "which is not the extension's"),
    (ColumnFacts("c", "enum", "mood"), {"function": "lower"}, "does not take mood"),
]


def test_what_is_refused(anon: str) -> None:
    with psycopg.connect(anon, autocommit=True) as conn:
        for name, kind in (("outsider", "text"), ("partial_email", "int")):
            conn.execute(
                f"CREATE FUNCTION anon.{name}({kind}) RETURNS text IMMUTABLE LANGUAGE sql"
                " AS $$ SELECT $1::text $$".encode()
            )
    for facts, said, why in REFUSED:
        with pytest.raises(UnfitError, match=re.escape(why)):
            bound(anon, facts, **said)
    with psycopg.connect(anon) as conn:
        assert conn.execute("SELECT count(*) FROM anon.city").fetchone() == (50,)


def test_without_the_extension(database: str) -> None:
    with pytest.raises(UnfitError, match="CREATE EXTENSION anon"):
        bound(database, function="hash")


def test_suggestions_know_the_extensions_functions(pipeline: PipelineUnderTest) -> None:
    install(pipeline.url)
    pipeline.execute("CREATE TABLE people (id int PRIMARY KEY, email text)")
    pipeline.configure(include=("public.*",))
    tables = followed_tables(pipeline.config)
    ((hints,),) = ([found.values() for found in column_hints(pipeline.config, tables, 0).values()],)
    for each in hints:
        assert each.functions["fake_city"] is True
        assert each.functions["k_anonymity"] is True
        assert each.functions["partial_email"] is False
        assert each.functions["lower"] is False
        assert "detect" not in each.functions


def test_a_refused_value_is_not_shown(anon: str) -> None:
    rule = bound(anon, function="hex_to_int")
    with pytest.raises(ValueRefusedError) as caught:
        applied(rule, "ff", PLANTED)
    error: BaseException | None = caught.value
    while error is not None:
        assert PLANTED not in repr(vars(error)) + str(error)
        error = error.__cause__ or error.__context__
    assert "anon.hex_to_int refused a value with SQLSTATE 22P02" in str(caught.value)


def mark(url: str, **said: Any) -> str:
    return bound(url, **said).signature


def test_the_fingerprint_is_that_of_what_comes_out(anon: str) -> None:
    """Another salt, dictionary, definition or version; and of what has nothing to do with it."""
    names = ("hash", "pseudo_city", "partial_email")

    def marks() -> dict[str, str]:
        return {name: mark(anon, function=name) for name in names}

    first = marks()
    assert marks() == first
    salt(anon, "two")
    second = marks()
    assert {name for name in names if second[name] != first[name]} == {"hash", "pseudo_city"}
    with psycopg.connect(anon, autocommit=True) as conn:
        # One that no probe meets is enough.
        conn.execute("INSERT INTO anon.city VALUES (1000, 'Nowhere')")
        third = marks()
        assert third["pseudo_city"] != second["pseudo_city"]
        assert third["partial_email"] == second["partial_email"]
        conn.execute(
            "CREATE OR REPLACE FUNCTION anon.partial_email(ov text) RETURNS text IMMUTABLE"
            " LANGUAGE sql AS $$ SELECT CASE WHEN length(ov) > 99 THEN '' ELSE left(ov, 2)"
            " || '***@' || left(split_part(ov, '@', 2), 2) || '***' END $$"
        )
        fourth = marks()
        assert fourth["partial_email"] != third["partial_email"]
        conn.execute("SET allow_system_table_mods = on")
        conn.execute("UPDATE pg_extension SET extversion = '1.1' WHERE extname = 'anon'")
    assert marks()["partial_email"] != fourth["partial_email"]


def test_executors_notice_another_function(anon: str) -> None:
    """In a session that was kept, and in a new one: no value leaves, and none becomes null."""
    rule = bound(anon, function="partial_email")
    hashed = bound(anon, function="hash", errors="null")
    before = applied(rule, "anna@shop.de"), applied(hashed, "anna@shop.de")
    salt(anon, "two")
    # The session that is kept has the salt of before, and so has what it gives.
    assert applied(hashed, "anna@shop.de") == before[1]
    close_kept()
    with pytest.raises(UnfitError, match="other values than when the pipeline was started"):
        applied(hashed, "anna@shop.de")
    again = bound(anon, function="hash")
    assert applied(again, "anna@shop.de") != before[1]
    with psycopg.connect(anon, autocommit=True) as conn:
        conn.execute(
            "CREATE OR REPLACE FUNCTION anon.partial_email(ov text) RETURNS text IMMUTABLE"
            " LANGUAGE sql AS $$ SELECT 'other' $$"
        )
    with pytest.raises(UnfitError, match="other values than when the pipeline was started"):
        applied(rule, "anna@shop.de")


def test_a_lost_connection_is_made_again(fresh_server: FreshServer) -> None:
    server = fresh_server()
    url = server.create_database("shop")
    install(url)
    rule = bound(url, function="hash")
    before = applied(rule, "anna")
    with kept_session(ConnectionUrl(url)) as session:
        ((pid,),) = session.rows(psycopg.sql.SQL("SELECT pg_backend_pid()"))
        ((path, read_only),) = session.rows(
            psycopg.sql.SQL(
                "SELECT current_setting('search_path'), current_setting('transaction_read_only')"
            )
        )
        assert (path.strip('"'), read_only) == ("", "on")
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
    assert applied(rule, "anna") == before
    server.stop()
    for _ in range(2):
        with pytest.raises(SourceUnavailable, match="did not answer"):
            applied(rule, "anna")
    with pytest.raises(SourceUnavailable, match="did not answer"):
        bound(url, function="hash")
    server.start()
    assert applied(rule, "anna") == before


RULES: dict[str, Any] = {
    "email": {"use": "anonymizer", "function": "partial_email"},
    "phone": {
        "use": "anonymizer",
        "function": "partial",
        "arguments": ["{value}", 2, "***", 2],
        "when": "id > 3",
    },
    "home": {"use": "anonymizer", "function": "pseudo_city"},
    "code": {"use": "anonymizer", "function": "hash"},
    "work": {"use": "anonymizer", "function": "fake_city", "arguments": [], "random": True},
    "hex": {"use": "anonymizer", "function": "hex_to_int", "errors": "null"},
}
TABLE = (
    "CREATE TABLE people (id int PRIMARY KEY, email text, phone varchar(30), home text,"
    " code text UNIQUE, work text, hex text)"
)


def inserted(first: int, last: int) -> str:
    return (
        f"INSERT INTO people SELECT n, '{PLANTED}' || n % 7 || '@shop.de', '+49 30 ' || n,"
        f" NULLIF('{PLANTED}' || n % 5, '{PLANTED}0'), '{PLANTED}' || n, '{PLANTED}',"
        f" CASE WHEN n % 2 = 0 THEN '{PLANTED}' ELSE 'ff' END"
        f" FROM generate_series({first}, {last}) n"
    )


def steady(rows: dict[str, Any]) -> list[tuple[str | None, ...]]:
    """Without what draws."""
    found = [row[:5] + row[6:] for row in rows["people"].elements()]
    return sorted(found, key=repr)


@pytest.mark.slow
def test_copied_rows_are_streamed_rows(
    pipeline: PipelineUnderTest, threads: Threads, target_url: str, caplog: Any
) -> None:
    """A table is copied and followed; it is copied anew under another salt; then a function refuses
    a value. None of it shows one.
    """
    install(pipeline.url)
    pipeline.execute(TABLE, inserted(1, 50))
    into = {"type": "postgres", "url": target_url}
    pipeline.configure(include=("public.*",), destination=into, copy=True)
    table: dict[str, Any] = {"table": "people", "columns": RULES, "keep": ["id"]}
    pipeline.also(transform={"key": KEY, "rules": [table]})
    said: list[str] = []
    checked = CliRunner().invoke(app, ["transform", "check", str(pipeline.file)])
    assert checked.exit_code == 0, checked.output
    assert "email (anonymizer)" in checked.output
    shown = CliRunner().invoke(app, ["transform", "preview", str(pipeline.file), "-n", "1"])
    assert "***@sh***" in shown.output
    catch_up(pipeline, threads, said)
    copied = steady(rows_at(target_url, expected_rows(pipeline)))
    assert copied == steady(expected_rows(pipeline))
    pipeline.execute(
        inserted(51, 90),
        "UPDATE people SET home = home || '!' WHERE id % 3 = 0",
        "UPDATE people SET id = id + 1000 WHERE id % 10 = 0",
        "DELETE FROM people WHERE id % 11 = 0",
    )
    catch_up(pipeline, threads, said)
    expected = steady(expected_rows(pipeline))
    assert steady(rows_at(target_url, expected_rows(pipeline))) == expected
    # Nulls stay, what is refused became null, and what draws has drawn.
    rows = list(expected_rows(pipeline)["people"])
    assert any(row[3] is None for row in rows)
    assert {row[6] for row in rows} == {None, "255"}
    assert all((row[5] or "").startswith("City") for row in rows)
    salt(pipeline.url, "two")
    close_kept()
    catch_up(pipeline, threads, said)
    assert any("its rules or the key are others" in line for line in said)
    assert steady(rows_at(target_url, expected_rows(pipeline))) == steady(expected_rows(pipeline))
    assert steady(expected_rows(pipeline)) != expected
    table["columns"] = {**RULES, "hex": {"use": "anonymizer", "function": "hex_to_int"}}
    pipeline.also(transform={"key": KEY, "rules": [table]})
    catch_up(pipeline, threads, said)
    told = "\n".join(said)
    assert "column hex: its rule cannot be followed: anon.hex_to_int refused a value" in told
    assert PLANTED not in told + caplog.text
    status = CliRunner().invoke(app, ["status", str(pipeline.file), "--json"])
    assert "SQLSTATE 22P02" in status.output
    assert PLANTED not in status.output


@pytest.mark.release
def test_executors_of_spark_call_them(
    pipeline: PipelineUnderTest, spark: SparkSession, target_url: str
) -> None:
    install(pipeline.url)
    pipeline.execute(TABLE, inserted(1, 50))
    into = {"type": "postgres", "url": target_url}
    pipeline.configure(include=("public.*",), destination=into, copy=True)
    table = {"table": "people", "columns": RULES, "keep": ["id"]}
    pipeline.also(transform={"key": KEY, "rules": [table]})
    said: list[str] = []
    catch_up(pipeline, spark, said)
    pipeline.execute(inserted(51, 90), "UPDATE people SET home = home || '!' WHERE id % 3 = 0")
    catch_up(pipeline, spark, said)
    assert steady(rows_at(target_url, expected_rows(pipeline))) == steady(expected_rows(pipeline))
    assert PLANTED not in "\n".join(said)


@pytest.mark.release
def test_a_start_refuses_what_the_check_refuses(
    pipeline: PipelineUnderTest, threads: Threads, target_url: str
) -> None:
    """Without rows that are copied, another salt is refused, as another key is."""
    install(pipeline.url)
    pipeline.execute("CREATE TABLE people (id text PRIMARY KEY, email text)")
    into = {"type": "postgres", "url": target_url}
    pipeline.configure(include=("public.*",), destination=into, copy=False)
    with psycopg.connect(target_url, autocommit=True) as conn:
        conn.execute("CREATE TABLE people (id text PRIMARY KEY, email text)")
    said: list[str] = []
    hashed = {"use": "anonymizer", "function": "hash"}
    table: dict[str, Any] = {"table": "people", "keep": ["id"]}
    for columns, why in (
        ({"id": hashed, "email": "hash"}, "belongs to the key"),
        ({"email": {"use": "anonymizer", "function": "fake_city", "arguments": []}}, "random"),
    ):
        table["columns"] = columns
        pipeline.also(transform={"key": KEY, "rules": [table]})
        with pytest.raises(ConfigError, match=why):
            catch_up(pipeline, threads, said)
    table["columns"] = {"email": hashed}
    pipeline.also(transform={"rules": [table]})
    catch_up(pipeline, threads, said)
    pipeline.execute("INSERT INTO people VALUES ('1', 'anna@shop.de')")
    catch_up(pipeline, threads, said)
    salt(pipeline.url, "two")
    with pytest.raises(ConfigError, match="rules, key or condition"):
        catch_up(pipeline, threads, said)
    salt(pipeline.url, "one")
    catch_up(pipeline, threads, said)


def test_a_database_that_falls_silent_is_not_waited_for(
    anon: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a proxy stays connected for a server that is gone."""
    monkeypatch.setattr("penstock.transform.anonymizer_session.ANSWER_SECONDS", 1)
    info = conninfo_to_dict(anon)
    with TcpProxy(int(str(info["port"]))) as proxy:
        near = make_conninfo(anon, host="127.0.0.1", port=proxy.port, connect_timeout=2)
        rule = bound(near, function="hash")
        before = applied(rule, "anna")
        proxy.swallow()
        proxy.accept()
        assert applied(rule, "anna") == before
        proxy.swallow()
        with pytest.raises(SourceUnavailable, match="did not answer"):
            applied(rule, "anna")


def test_a_pooler_is_refused_and_keeps_no_setting(anon: str) -> None:
    """The settings of a session would be those of whoever gets its backend next."""
    info = conninfo_to_dict(anon)
    pooler = TransactionPooler(int(str(info["port"])))
    url = make_conninfo(anon, host="127.0.0.1", port=pooler.port)
    try:
        with pytest.raises(UnfitError, match="pooler"):
            bound(url, function="hash")
        with psycopg.connect(url, autocommit=True, prepare_threshold=None) as conn:
            assert conn.execute("SHOW default_transaction_read_only").fetchone() == ("off",)
    finally:
        pooler.close()
