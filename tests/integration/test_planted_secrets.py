"""Passwords are nowhere but in the process: planted ones are looked for everywhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.metadata import entry_points
from typing import Any

import pytest
import yaml

from penstock.changelog.changelog import ChangeLog
from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.integration.secret_destinations import (
    KINDS,
    SECRETS,
    WITHOUT,
    Given,
    Surroundings,
    with_password,
)
from tests.shown_places import shown_by

pytestmark = pytest.mark.slow

SOURCE = "pl4nted-s0urce"


def test_every_destination_is_looked_at() -> None:
    assert {*KINDS, *WITHOUT} == {each.name for each in entry_points(group="penstock.destinations")}


@pytest.fixture(
    params=["postgres", *(pytest.param(each, marks=pytest.mark.release) for each in [*KINDS][1:])]
)
def given(request: pytest.FixtureRequest, pipeline: PipelineUnderTest) -> Iterator[Given]:
    with ExitStack() as stack:
        around = Surroundings(request, pipeline.folder, stack)
        found = KINDS[request.param](around)
        found.destination["type"] = request.param
        yield found


@pytest.fixture
def running(given: Given, pipeline: PipelineUnderTest) -> Iterator[subprocess.Popen[str]]:
    """`penstock run`, with Spark's page on, while it streams."""
    pipeline.execute("CREATE TABLE items (id int PRIMARY KEY)", "INSERT INTO items VALUES (1)")
    if given.objects is not None:
        pipeline.log = ChangeLog(given.objects.place(), given.objects.direct_options)
    log_options: dict[str, Any] = {"options": given.log_options} if given.log_options else {}
    pipeline.configure(
        destination=given.destination, copy=True, batch={"max_age": "1s"}, **log_options
    )
    pipeline.also(spark={"master": "local[1, 4]", "conf": {"spark.ui.enabled": True}})
    content = yaml.safe_load(pipeline.file.read_text())
    content["source"]["url"] = "${SECRET_SOURCE}"
    pipeline.file.write_text(yaml.safe_dump(content))
    environment = {**given.environment, "SECRET_SOURCE": with_password(pipeline.url, SOURCE)}
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
    running: subprocess.Popen[str], given: Given, pipeline: PipelineUnderTest
) -> None:
    places = shown_by(running.pid)
    files = [path for path in pipeline.folder.rglob("*") if path.is_file()]
    places |= {str(file): file.read_bytes() for file in files}
    if given.objects is not None:
        places |= given.objects.everything()
    assert any(place.endswith(".arrow") for place in places)
    with_secret = [
        place
        for place, content in places.items()
        if any(secret.encode() in content for secret in (SOURCE, *SECRETS))
    ]
    assert with_secret == []
