"""Whole pipelines with rules: copied and streamed rows are the rules applied to the source's, what
refers still does, and no planted value is anywhere but in the change log.
"""
# ruff: noqa: S608 (statements of a test)

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from penstock.cli.main import main
from penstock.destination.files.committed_files import list_files
from penstock.metrics.pipeline_metrics import Metrics
from penstock.model.errors import PenstockError
from penstock.verify.verification import verify
from tests.fix_pipeline import PipelineUnderTest
from tests.integration.transformed_rows import expected_rows, rows_at
from tests.pipelines import engine_on, logged, pipeline_on
from tests.threads_engine import Threads
from tests.tree_of_tables import KEY, PLANTED, RULES, Changes, schema


def configure(pipeline: PipelineUnderTest, destination: dict[str, Any], key: str = KEY) -> None:
    pipeline.configure(destination=destination, copy=True)
    pipeline.also(transform={"key": key, "rules": RULES})


def catch_up(pipeline: PipelineUnderTest, tasks: SparkSession | Threads, said: list[str]) -> None:
    """Run to the end; ``said`` is what was logged."""
    metrics = Metrics(pipeline.name)
    with logged(said.append):
        run = pipeline_on(tasks, pipeline.config, pipeline.file, metrics)
        run.run(lambda: False, until_caught_up=True)
    assert PLANTED not in metrics.registry.exposition().decode()


@pytest.mark.parametrize(
    "seed",
    [0, *(pytest.param(seed, marks=pytest.mark.release) for seed in range(1, 10))],
)
def test_what_refers_still_does(
    pipeline: PipelineUnderTest, spark: SparkSession, target_url: str, seed: int
) -> None:
    """Ten tables whose keys all change on the way, random changes, also while they are copied."""
    changes = Changes(seed)
    pipeline.execute(*schema(), *changes.statements(80))
    pipeline.execute(
        f"INSERT INTO loose VALUES ('{PLANTED}', 'x'), ('{PLANTED}', 'x'), (NULL, 'y')"
    )
    configure(pipeline, {"type": "postgres", "url": target_url})
    pipeline.subscribe()
    # Between publication and snapshot, so that changes are replayed over copied rows.
    pipeline.execute(*changes.statements(20))
    said: list[str] = []
    catch_up(pipeline, spark, said)
    assert rows_at(target_url, expected_rows(pipeline)) == expected_rows(pipeline)
    pipeline.execute(*changes.statements(120))
    pipeline.execute("DELETE FROM loose WHERE ctid = (SELECT min(ctid) FROM loose)")
    pipeline.execute("UPDATE loose SET b = 'z'")
    catch_up(pipeline, spark, said)
    expected = expected_rows(pipeline)
    assert sum(expected["t3"].values())
    assert rows_at(target_url, expected) == expected
    report = verify(pipeline.config, pipeline.file, make_engine=engine_on(spark), wait=120)
    assert report.equal
    assert all(not result.violations for result in report.constraints)
    assert len([result for result in report.constraints if result.kind == "foreign key"]) == 9
    assert all(PLANTED not in line for line in said)
    assert PLANTED not in str(report.to_json())
    with psycopg.connect(target_url) as conn:
        tables = [f'public."{name}"' for name in expected]
        found = conn.execute(
            "SELECT n.nspname || '.' || quote_ident(c.relname) FROM pg_class c JOIN pg_namespace n"
            " ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p') AND n.nspname = 'penstock'"
        )
        for name in (*tables, *(name for (name,) in found)):
            row = conn.execute(
                f"SELECT count(*) FROM {name} t WHERE t::text ~ '{PLANTED}'"
            ).fetchone()
            assert row == (0,), name


def written(pipeline: PipelineUnderTest) -> str:
    """All that a pipeline left in its folder, but the change log."""
    log = Path(pipeline.config.change_log.path)
    return "\n".join(
        file.read_bytes().decode(errors="replace")
        for file in pipeline.folder.rglob("*")
        if file.is_file() and log not in file.parents and file != pipeline.file
    )


def test_another_key_strict_mode_and_leaks(pipeline: PipelineUnderTest, threads: Threads) -> None:
    """Into files, which keep all that they ever got: values, schema events, defaults, messages."""
    pipeline.execute(
        "CREATE TABLE loose (a text, b text)",
        "ALTER TABLE loose REPLICA IDENTITY FULL",
        f"CREATE TABLE t1 (id int PRIMARY KEY, email text DEFAULT '{PLANTED}')",
        f"INSERT INTO t1 SELECT n, '{PLANTED}' || n FROM generate_series(1, 1000) n",
    )
    rules = [
        {"table": "t1", "columns": {"id": "integer_key", "email": "email"}},
        {"table": "loose", "columns": {"a": "hash"}, "keep": ["b"]},
    ]
    out = {"type": "files", "path": str(pipeline.folder / "out"), "format": "ndjson"}
    pipeline.configure(destination=out, copy=True)
    pipeline.also(transform={"key": KEY, "rules": rules})
    said: list[str] = []
    catch_up(pipeline, threads, said)
    pipeline.execute(
        f"UPDATE t1 SET email = '{PLANTED}' || id || 'b', id = id + 5000 WHERE id % 2 = 0",
        "DELETE FROM t1 WHERE id % 3 = 0",
        f"INSERT INTO loose SELECT '{PLANTED}' || n, 'b' FROM generate_series(1, 1000) n",
        "UPDATE loose SET b = 'c'",
        "DELETE FROM loose",
        f"ALTER TABLE t1 ALTER email SET DEFAULT '{PLANTED}2'",
        "INSERT INTO t1 (id) VALUES (10001)",
        f"SELECT pg_logical_emit_message(true, 'app', '{PLANTED}')",
    )
    catch_up(pipeline, threads, said)
    lines = [
        json.loads(line)
        for file in list_files(pipeline.folder / "out", pipeline.name)
        for line in file.read_text().splitlines()
    ]
    assert len([line for line in lines if line["table"] == "loose"]) == 3000
    assert len([line for line in lines if line["table"] == "t1"]) > 1500
    # Another key: rows that came under the old one are copied anew.
    copied = len([line for line in lines if line["op"] == "read"])
    pipeline.also(transform={"key": KEY[::-1], "rules": rules})
    catch_up(pipeline, threads, said)
    assert any("its rules or the key are others" in line for line in said)
    again = [
        json.loads(line)
        for file in list_files(pipeline.folder / "out", pipeline.name)
        for line in file.read_text().splitlines()
    ]
    assert len([line for line in again if line["op"] == "read"]) > copied
    # A column that no rule names.
    pipeline.execute(
        f"ALTER TABLE t1 ADD COLUMN phone text DEFAULT '{PLANTED}3'",
        f"UPDATE t1 SET phone = '{PLANTED}4'",
    )
    with pytest.raises(PenstockError, match=r"without a rule|has no rule"):
        catch_up(pipeline, threads, said)
    assert PLANTED not in written(pipeline)
    assert all(PLANTED not in line for line in said)


def test_commands(
    pipeline: PipelineUnderTest, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    pipeline.execute(
        "CREATE TABLE users (id int PRIMARY KEY, email text UNIQUE, born date, nick text)",
        "COMMENT ON COLUMN users.nick IS 'PII: what friends call them'",
        "CREATE TABLE orders (id int PRIMARY KEY, user_id int REFERENCES users, contact text)",
        'CREATE TABLE "Old. Users" (id int PRIMARY KEY, email text)',
        "INSERT INTO users VALUES (1, 'anna@shop.de', '1980-02-03', 'ann')",
        "INSERT INTO orders VALUES (1, 1, 'bob@shop.de')",
    )
    pipeline.configure(destination={"type": "stdout"}, copy=False)

    def command(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["transform", arguments[0], str(pipeline.file), *arguments[1:]])
        return int(str(ended.value.code)), capsys.readouterr().out

    code, out = command("suggest")
    assert code == 0
    monkeypatch.setenv("PENSTOCK_TRANSFORM_KEY", KEY)
    with pipeline.file.open("a") as file:
        file.write(out)
    proposed = pipeline.config.transform
    assert proposed is not None
    rules = {", ".join(rule.table): rule for rule in proposed.rules}
    assert rules["public.users"].columns["email"].use == "email"
    assert rules["public.users"].columns["born"].use == "truncate_time"
    assert rules["public.users"].columns["nick"].use == "hash"
    assert rules["public.orders"].columns["contact"].use == "email"
    assert rules['public."Old. Users"'].columns["email"].use == "email"
    assert "anna" not in out
    assert command("check")[0] == 0
    code, out = command("preview", "--table", "users")
    assert code == 0
    assert "email: anna@shop.de → " in out
    assert "born: 1980-02-03 → 1980-01-01" in out
    pipeline.also(
        transform={
            "key": KEY,
            "mode": "relaxed",
            "rules": [{"table": "users", "columns": {"id": "integer_key"}}],
        }
    )
    code, out = command("check")
    assert code == 1
    assert "public.orders.user_id: refers to public.users.id" in out
