"""Passwords are nowhere but in the process: planted ones are looked for everywhere else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.kafka_server import KafkaServer
from tests.kinesis_server import KinesisServer
from tests.rabbitmq_server import USERS, RabbitServer
from tests.shown_places import shown_by

pytestmark = pytest.mark.slow

SOURCE, DESTINATION = "pl4nted-s0urce", "pl4nted-dest1nation"
SECRETS = (SOURCE, DESTINATION, USERS["penstock"])


def with_password(url: str, password: str) -> str:
    """The test servers ask for none, so that any will do."""
    return re.sub(r"//([^:@/]*)(:[^@/]*)?@", rf"//\1:{password}@", url)


def destinations(
    request: pytest.FixtureRequest, folder: Path
) -> tuple[dict[str, Any], dict[str, str]]:
    """A destination's part of the pipeline file, and what goes into the environment."""
    kind = request.param
    if kind == "postgres":
        url = with_password(request.getfixturevalue("target_url"), DESTINATION)
        return {"type": kind, "url": "${SECRET_TARGET}"}, {"SECRET_TARGET": url}
    if kind == "kafka":
        server: KafkaServer = request.getfixturevalue("kafka_server")
        # Not asked for on the plain listener, and sent to tasks all the same.
        client = {"sasl.password": "${SECRET_KAFKA}", "sasl.username": "somebody"}
        return (
            {"type": kind, "brokers": server.brokers, "client": client},
            {"SECRET_KAFKA": DESTINATION},
        )
    if kind == "kinesis":
        kinesis: KinesisServer = request.getfixturevalue("kinesis_server")
        return (
            {"type": kind, **kinesis.destination},
            {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": DESTINATION},
        )
    if kind == "rabbitmq":
        rabbit: RabbitServer = request.getfixturevalue("rabbit_server")
        given = {**rabbit.destination, "password": "${SECRET_RABBIT}", "declare": True}
        return (
            {"type": kind, **given, "unroutable": "count"},
            {"SECRET_RABBIT": USERS["penstock"]},
        )
    return {"type": kind, **({"path": str(folder / "out")} if kind == "files" else {})}, {}


@pytest.fixture(
    params=[
        "postgres",
        *(
            pytest.param(kind, marks=pytest.mark.release)
            for kind in ("kafka", "kinesis", "rabbitmq", "files", "stdout")
        ),
    ]
)
def running(
    request: pytest.FixtureRequest, pipeline: PipelineUnderTest
) -> Iterator[subprocess.Popen[str]]:
    """`penstock run`, with Spark's page on, while it streams."""
    destination, environment = destinations(request, pipeline.folder)
    pipeline.execute("CREATE TABLE items (id int PRIMARY KEY)", "INSERT INTO items VALUES (1)")
    pipeline.configure(destination=destination, copy=True)
    pipeline.also(spark={"master": "local[1, 4]", "conf": {"spark.ui.enabled": True}})
    content = yaml.safe_load(pipeline.file.read_text())
    content["source"]["url"] = "${SECRET_SOURCE}"
    pipeline.file.write_text(yaml.safe_dump(content))
    environment["SECRET_SOURCE"] = with_password(pipeline.url, SOURCE)
    with (pipeline.folder / "output").open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "--log-level", "debug", "run", str(pipeline.file)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            text=True,
            cwd=pipeline.folder,
            env={**os.environ, **environment, "TMPDIR": str(pipeline.folder)},
        )
        try:
            wait_until(
                lambda: process.poll() is not None or _delivered(pipeline, after=None),
                "rows are copied",
            )
            before = pipeline.log.reader(pipeline.name)
            pipeline.execute("INSERT INTO items VALUES (2)")
            wait_until(
                lambda: process.poll() is not None or _delivered(pipeline, after=before),
                "a change is delivered",
            )
            assert process.poll() is None, (pipeline.folder / "output").read_text()
            yield process
        finally:
            process.terminate()
            process.wait(120)


def _delivered(pipeline: PipelineUnderTest, after: Any) -> bool:
    found = pipeline.log.reader(pipeline.name)
    return found is not None and (after is None or found.frontier > after.frontier)


def test_planted_secrets_are_found_nowhere(
    running: subprocess.Popen[str], pipeline: PipelineUnderTest
) -> None:
    places = shown_by(running.pid)
    files = [path for path in pipeline.folder.rglob("*") if path.is_file()]
    assert any(path.suffix == ".arrow" for path in files)
    places |= {str(file): file.read_bytes() for file in files}
    with_secret = [
        place
        for place, content in places.items()
        if any(secret.encode() in content for secret in SECRETS)
    ]
    assert with_secret == []
