"""A source that is not the one any more, or not where it was: restored, promoted, exchanged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.errors import IdentityChanged
from penstock.model.source_identity import SourceIdentity
from tests.fix_pipeline import MakePipeline, PipelineUnderTest, wait_until
from tests.fix_postgres import FreshServer
from tests.physical_copies import (
    backup_of,
    demote,
    image_of,
    promote,
    restore,
    standby_of,
    wait_for_standby,
)

ITEMS = "CREATE TABLE items (id int PRIMARY KEY)"


def followed(server: EmbeddedPostgres, make_pipeline: MakePipeline) -> PipelineUnderTest:
    """A pipeline whose log holds the row 1."""
    pipeline = make_pipeline(server.create_database("shop"))
    pipeline.execute(ITEMS)
    pipeline.subscribe()
    assert captured(pipeline, 1) == [1]
    return pipeline


def captured(pipeline: PipelineUnderTest, *new: int) -> list[int]:
    """What the log holds once there are these rows, too."""
    for number in new:
        pipeline.execute(f"INSERT INTO items VALUES ({number})")  # noqa: S608
    return [int((change.new or {})["id"] or "") for change in pipeline.capture_all()]


def refusal(pipeline: PipelineUnderTest) -> IdentityChanged:
    """What capture ends with."""
    with pytest.raises(IdentityChanged) as caught, pipeline.capturing() as capture:
        wait_until(capture.done, "capture gives up", timeout=60)
    return caught.value


def timeline(pipeline: PipelineUnderTest) -> int:
    found = json.loads(Path(pipeline.log.root.full("log.json")).read_text())
    assert isinstance(found["timeline"], int)
    return found["timeline"]


def at_port_of(pipeline: PipelineUnderTest, server: EmbeddedPostgres) -> None:
    pipeline.url = server.url("shop")
    pipeline.configure()


@pytest.mark.every_postgres
def test_a_restored_image_is_noticed_and_the_remedy_works(
    fresh_server: FreshServer, make_pipeline: MakePipeline
) -> None:
    server = fresh_server()
    pipeline = followed(server, make_pipeline)
    image = image_of(server)
    assert captured(pipeline, 2) == [1, 2]
    held = pipeline.log.list().frontier
    assert held is not None
    restore(server, image)
    error = refusal(pipeline)
    assert "went back (a restored image?)" in error.message
    assert pipeline.log.root.path in error.message
    assert "penstock destroy" in error.remedy
    done = CliRunner().invoke(app, ["destroy", str(pipeline.file), "--yes"])
    assert done.exit_code == 0, done.output
    pipeline.subscribe()
    assert captured(pipeline, 3) == [3]


@pytest.mark.release
def test_a_backup_that_was_recovered_to_an_earlier_point(
    fresh_server: FreshServer, make_pipeline: MakePipeline
) -> None:
    """It has a timeline of its own, and may have written more than the log holds."""
    server = fresh_server()
    pipeline = followed(server, make_pipeline)
    image = image_of(server)
    assert captured(pipeline, 2) == [1, 2]
    restore(server, image, recovers=True)
    pipeline.execute("INSERT INTO items SELECT generate_series(1000, 9000)")
    error = refusal(pipeline)
    assert "the source left timeline 1 at" in error.message
    assert timeline(pipeline) == 1


@pytest.mark.every_postgres
def test_a_promoted_standby_that_lost_nothing_goes_on(
    fresh_server: FreshServer, make_pipeline: MakePipeline
) -> None:
    primary, standby = fresh_server(), fresh_server()
    pipeline = followed(primary, make_pipeline)
    standby_of(primary, standby)
    assert captured(pipeline, 2) == [1, 2]
    wait_for_standby(primary, standby)
    primary.stop()
    promote(standby)
    at_port_of(pipeline, standby)
    assert captured(pipeline, 3) == [1, 2, 3]
    assert timeline(pipeline) == 2
    assert captured(pipeline, 4) == [1, 2, 3, 4]


@pytest.mark.every_postgres
def test_a_standby_is_waited_for_until_it_is_promoted(
    fresh_server: FreshServer, make_pipeline: MakePipeline
) -> None:
    """Who streamed from it before would take what is written in its new timeline for the old."""
    server = fresh_server()
    pipeline = followed(server, make_pipeline)
    demote(server)
    capture = pipeline.start_capture()
    wait_until(lambda: "is a standby" in capture.report().get("error", ""), "capture waits", 30)
    promote(server)
    pipeline.execute("INSERT INTO items VALUES (2)")
    pipeline.sync(capture)
    assert capture.stop() == 0
    assert timeline(pipeline) == 2
    assert captured(pipeline, 3) == [1, 2, 3]


def test_a_promoted_standby_that_lost_what_we_hold(
    fresh_server: FreshServer, make_pipeline: MakePipeline
) -> None:
    primary, standby = fresh_server(), fresh_server()
    pipeline = followed(primary, make_pipeline)
    standby_of(primary, standby)
    wait_for_standby(primary, standby)
    standby.stop()
    assert captured(pipeline, 2) == [1, 2]
    primary.stop()
    standby.start()
    promote(standby)
    at_port_of(pipeline, standby)
    pipeline.execute("INSERT INTO items SELECT generate_series(1000, 9000)")
    assert "the source left timeline 1 at" in refusal(pipeline).message


@pytest.mark.release
def test_a_standby_by_pg_basebackup_has_no_slot(
    fresh_server: FreshServer, make_pipeline: MakePipeline
) -> None:
    """The same history, and yet nothing to go on with: the slot is what is missed, and named."""
    primary, standby = fresh_server(), fresh_server()
    pipeline = followed(primary, make_pipeline)
    backup_of(primary, standby)
    wait_for_standby(primary, standby)
    primary.stop()
    promote(standby)
    at_port_of(pipeline, standby)
    capture = pipeline.start_capture()
    assert capture.wait() == 1
    assert "failed over to one that never had it" in capture.report()["error"]


def test_what_the_destination_holds_of_another_source_is_not_gone_on_from(
    pipeline: PipelineUnderTest,
) -> None:
    """One that does not remember its position has it beside the log, with the source."""
    pipeline.execute(ITEMS)
    uuid = pipeline.subscribe().uuid
    captured(pipeline, 1)
    frontier = pipeline.log.list().frontier
    assert frontier is not None
    known = json.loads(Path(pipeline.log.root.full("log.json")).read_text())
    own = SourceIdentity(known["system_id"], known["timeline"], known["database"], uuid)
    for other in (replace(own, system_id="7"), replace(own, publication="other")):
        pipeline.log.set_reader(pipeline.name, frontier, source=other)
        assert "of another source" in refusal(pipeline).message
    for same in (own, None):
        pipeline.log.set_reader(pipeline.name, frontier, source=same)
        captured(pipeline)
