"""No value that a rule covers is anywhere but in the change log: many are planted, and everything
that was written, logged, shown or sent is searched.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.destination.clickhouse.client import ClickHouseClient
from penstock.destination.clickhouse.options import ClickHouseOptions
from penstock.source.postgres.whole_schema.programs import find_programs
from tests.clickhouse_server import ClickHouseServer
from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.integration.planted_values import (
    AT_TARGET,
    KEYED,
    MARK,
    REFUSED_BY_A_RULE,
    TABLES,
    TRANSFORM,
    changes,
    planted,
    rows,
    with_planted,
)
from tests.kafka_messages import read_topics
from tests.rabbitmq_messages import BoundQueue
from tests.rabbitmq_server import RabbitServer
from tests.shown_places import shown_by

pytestmark = pytest.mark.slow

# What Spark writes to its folders is not packed, so that it can be searched, and it tells of all
# that it does.
SPARK = {
    "spark.ui.enabled": True,
    "spark.shuffle.compress": False,
    "spark.shuffle.spill.compress": False,
    "spark.broadcast.compress": False,
}


_TABLES = 4


def configure(pipeline: PipelineUnderTest, destinations: Mapping[str, dict[str, Any]]) -> None:
    pipeline.configure(copy=True)
    events = pipeline.folder / "events"
    events.mkdir()
    logs = {"spark.eventLog.enabled": True, "spark.eventLog.dir": events.as_uri()}
    conf = {**SPARK, **logs, "spark.eventLog.compress": False}
    pipeline.also(transform=TRANSFORM, spark={"master": "local[2, 4]", "conf": conf})
    content = yaml.safe_load(pipeline.file.read_text())
    del content["destination"]
    content["destinations"] = dict(destinations)
    pipeline.file.write_text(yaml.safe_dump(content, sort_keys=False))


class Running:
    """`penstock run` with all that it can say."""

    def __init__(self, pipeline: PipelineUnderTest, process: subprocess.Popen[bytes]) -> None:
        self.pipeline = pipeline
        self.process = process

    @property
    def output(self) -> str:
        return (self.pipeline.folder / "output").read_text()

    def wait_delivered(self, names: list[str]) -> None:
        """Until every destination has copied all tables, and holds what is committed by now."""
        self.pipeline.execute("SELECT pg_logical_emit_message(true, 'app', '')")
        end = self.pipeline.wal_end()
        log = self.pipeline.log

        def delivered() -> bool:
            output = self.output
            assert self.process.poll() is None, output[-5000:]
            if output.count(" -> ready") < _TABLES * len(names):
                return False
            found = [log.reader(f"{self.pipeline.name}.{name}") for name in names]
            return all(each is not None and each.frontier.end_lsn >= end for each in found)

        wait_until(delivered, "all destinations hold everything")


@contextmanager
def running(pipeline: PipelineUnderTest) -> Iterator[Running]:
    with (pipeline.folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "penstock", "--debug", "--log-level", "debug"),
                *("run", str(pipeline.file)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=pipeline.folder,
            env={**os.environ, "TMPDIR": str(pipeline.folder)},
        )
        try:
            yield Running(pipeline, process)
        finally:
            process.terminate()
            process.wait(180)


def files_of(pipeline: PipelineUnderTest) -> dict[str, bytes]:
    """All that lies in its folder, stages and Spark's own among it, but for the change log. Some
    come and go.
    """
    log = Path(pipeline.log.root.path)
    found = {}
    for path in pipeline.folder.rglob("*"):
        if log not in path.parents and path.is_file():
            try:
                found[str(path)] = unpacked(path)
            except FileNotFoundError:
                continue
    return found


def unpacked(path: Path) -> bytes:
    """Parquet files are packed; one that is being written has no end yet."""
    if path.suffix == ".parquet":
        with suppress(pa.ArrowInvalid):
            return repr(pq.ParquetFile(path).read().to_pylist()).encode()
    return path.read_bytes()


def held_by(url: str, name: str) -> dict[str, bytes]:
    """Every row of every table that a ClickHouse has of a pipeline, and how they were made."""
    client = ClickHouseClient(ClickHouseOptions.model_validate({"url": url}))

    def texts(sql: str) -> list[str]:
        # Bytes of a bytea are there as they are.
        found = client.read(sql, doing="searching")[0].cast(pa.binary()).to_pylist()
        return [value.decode(errors="backslashreplace") for value in found]

    databases = f"database LIKE '{name}%'"
    names = "SELECT concat('`', database, '`.`', name, '`') FROM system.tables WHERE " + databases  # noqa: S608
    found = {}
    for table in texts(names):
        lines = texts(f"SELECT formatRow('JSONEachRow', *) FROM {table}")  # noqa: S608
        lines += texts(f"SHOW CREATE TABLE {table}")
        found[table] = "\n".join(lines).encode()
    assert len(found) > _TABLES
    return found


def dumped(url: str, *options: str) -> bytes:
    """A whole database, rows and all."""
    command = [find_programs(0).pg_dump, *options, url]
    return subprocess.run(command, check=True, capture_output=True).stdout


def commands(pipeline: PipelineUnderTest) -> dict[str, bytes]:
    """What people see."""
    file = str(pipeline.file)
    every = [
        ("status", file, "--json"),
        ("status", file),
        ("check", file),
        ("tables", "list", file, "--json"),
        ("transform", "check", file, "--only", "warehouse"),
        ("dead-letters", "list", file, "--json", "--only", "warehouse"),
        ("dead-letters", "show", file, "1", "--only", "warehouse"),
        ("schema", "history", file, "people", "--only", "warehouse"),
    ]
    return {" ".join(each): CliRunner().invoke(app, [*each]).output.encode() for each in every}


@pytest.mark.parametrize(
    ("count", "others"),
    [
        (100, ()),
        pytest.param(720, ("files", "kafka"), marks=pytest.mark.release),
        pytest.param(100, ("delta", "clickhouse", "rabbitmq"), marks=pytest.mark.release),
    ],
    ids=[
        "some into postgres",
        "10,000 into postgres, files and kafka",
        "some into postgres, delta, clickhouse and rabbitmq",
    ],
)
def test_no_planted_value_gets_out(
    pipeline: PipelineUnderTest,
    target_url: str,
    request: pytest.FixtureRequest,
    count: int,
    others: tuple[str, ...],
) -> None:
    assert planted(count) > (10_000 if "kafka" in others else 1_000)
    keyed = (KEYED,) if {"delta", "clickhouse"}.intersection(others) else ()
    pipeline.execute(*TABLES, *keyed, *rows(count))
    with psycopg.connect(target_url, autocommit=True) as conn:
        conn.execute(AT_TARGET)
    out = pipeline.folder / "out"
    brokers = request.getfixturevalue("kafka_server").brokers if "kafka" in others else ""
    clickhouse: ClickHouseServer | None = None
    rabbit: dict[str, Any] = {}
    if "clickhouse" in others:
        clickhouse = request.getfixturevalue("clickhouse_server")
    if "rabbitmq" in others:
        server: RabbitServer = request.getfixturevalue("rabbit_server")
        rabbit = {**server.destination, "exchange": pipeline.name}
        queue = BoundQueue(server, pipeline.name)
    kinds: dict[str, dict[str, Any]] = {
        "warehouse": {"type": "postgres", "url": target_url, "dead_letter": True},
        "files": {"type": "files", "path": str(out), "format": "ndjson"},
        "kafka": {"type": "kafka", "brokers": brokers},
        "delta": {"type": "delta", "path": str(pipeline.folder / "lake")},
        "clickhouse": {
            "type": "clickhouse",
            "url": clickhouse.url if clickhouse is not None else "",
            "database": pipeline.name,
            "ledger_database": f"{pipeline.name}_ledger",
        },
        "rabbitmq": {"type": "rabbitmq", **rabbit},
    }
    names = ["warehouse", *others]
    configure(pipeline, {name: kinds[name] for name in names})
    with running(pipeline) as run:
        run.wait_delivered(names)
        pipeline.execute(*changes(count))
        run.wait_delivered(names)
        places = shown_by(run.process.pid)
        places |= files_of(pipeline)
        pipeline.execute(REFUSED_BY_A_RULE)
        wait_until(lambda: run.output.count("token") >= len(names), "the rule fails for all")
        places |= {f"{place} later": text for place, text in shown_by(run.process.pid).items()}
    places |= files_of(pipeline)
    places |= commands(pipeline)
    places["target"] = dumped(target_url)
    places["store"] = dumped(pipeline.url, "--schema=penstock")
    if "kafka" in others:
        messages = read_topics(brokers, lambda topic: pipeline.name in topic)
        assert len(messages) > count
        places |= {
            f"message {number}": b"\n".join(
                (message.key() or b"", message.value() or b"", repr(message.headers()).encode())
            )
            for number, message in enumerate(messages)
        }
    if clickhouse is not None:
        places |= held_by(clickhouse.url, pipeline.name)
    if "rabbitmq" in others:
        letters_sent = queue.messages()
        assert len(letters_sent) > count
        places |= {
            f"letter {number}": b"\n".join(
                (letter.routing_key.encode(), repr(letter.headers).encode(), letter.body)
            )
            for number, letter in enumerate(letters_sent)
        }
    # The file says where what was planted comes from, and the log is the documented exception.
    del places[str(pipeline.file)]
    assert with_planted(places) == {}
    # What was searched is what there is to search: rows, refused ones, and the rule that failed.
    with psycopg.connect(target_url) as conn:
        (people,) = conn.execute("SELECT count(*) FROM people").fetchone() or (0,)
        letters = conn.execute("SELECT row_values::text FROM penstock.dead_letter").fetchall()
    assert people > count
    assert len(letters) == 20
    assert all("email" in text for (text,) in letters)
    status = json.loads(places[f"status {pipeline.file} --json"])
    assert "token" in json.dumps(status)
    if "files" in others:
        assert sum(text.count(b"\n") for place, text in places.items() if str(out) in place) > count


def test_what_is_planted_would_be_found() -> None:
    """The search knows a value as it is, and as others write it."""
    seen = {
        "text": f"x {MARK}7 y".encode(),
        "hex": b"\\x" + f"{MARK}b7".encode().hex().encode(),
        **{
            f"base64 {at}": __import__("base64").b64encode(b"#" * at + MARK.encode() + b"123")
            for at in range(4)
        },
        "number": b"7131713171310007",
        "uuid": b"7e577e57-0000-4000-8000-00000000000a",
        "time": b"1971-02-03 04:05:06.000001",
        "microseconds": b"34401906000006",
    }
    assert with_planted(seen).keys() == seen.keys()
    assert with_planted({"others": b"7131713999999999 1971-01-01 00:00:00 pl4nted"}) == {}
