"""Whole pipelines whose source is another one than before, or went back."""

from __future__ import annotations

import json
import shutil

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.destination.files.committed_files import list_files
from penstock.destination.files.manifest import read_manifest
from penstock.model.errors import IdentityChanged
from penstock.source.postgres.subscription.subscription import find_subscription
from tests.application_session import connect
from tests.fix_pipeline import MakePipeline, PipelineUnderTest, wait_until
from tests.fix_postgres import FreshServer
from tests.integration.test_pipeline import ITEMS, catch_up, delivered, insert, inserts, running
from tests.integration.test_pipeline import wait_for as wait_for_changes
from tests.physical_copies import image_of, restore
from tests.threads_engine import Threads


def into_files(pipeline: PipelineUnderTest) -> None:
    path = str(pipeline.folder / "out")
    pipeline.configure(destination={"type": "files", "path": path, "format": "ndjson"})
    pipeline.execute(ITEMS)


@pytest.mark.release
def test_a_source_that_went_back_is_refused_and_the_remedy_works(
    fresh_server: FreshServer, make_pipeline: MakePipeline, threads: Threads
) -> None:
    server = fresh_server()
    shop = make_pipeline(server.create_database("shop"))
    into_files(shop)
    shop.subscribe()
    insert(shop, 1)
    catch_up(shop, threads)
    image = image_of(server)
    with running(shop, threads) as run:
        insert(shop, 2)
        wait_for_changes(shop, run, 2)
        restore(server, image)
        # Driver and capture come back to it; whoever is first says so.
        wait_until(run.done, "the run ends")
    with pytest.raises(IdentityChanged, match="The source went back"):
        run.result()
    # Without the log, too: then the destination alone knows.
    shutil.rmtree(shop.log.root.path)
    with pytest.raises(IdentityChanged, match="The destination stands at") as caught:
        catch_up(shop, threads)
    assert "penstock destroy" in caught.value.remedy
    done = CliRunner().invoke(app, ["destroy", str(shop.file), "--yes"])
    assert done.exit_code == 0, done.output
    shop.subscribe()
    insert(shop, 2)
    catch_up(shop, threads)
    # What was delivered before stays; its positions mean nothing any more.
    assert sorted(ids(shop)) == [1, 2, 2]


def ids(shop: PipelineUnderTest) -> list[int]:
    files = list_files(shop.folder / "out", shop.name, "public.items")
    lines = [line for file in files for line in file.read_text().splitlines()]
    return [json.loads(line)["key"]["id"] for line in lines]


def test_two_pipelines_of_one_name_into_one_destination(
    pipeline: PipelineUnderTest, make_pipeline: MakePipeline, fresh_server: FreshServer,
    threads: Threads,
) -> None:  # fmt: skip
    """The second is refused before it has made or taken over anything."""
    into_files(pipeline)
    other = make_pipeline(fresh_server().create_database("shop"))
    other.name = pipeline.name
    other.configure(
        destination={"type": "files", "path": str(pipeline.folder / "out"), "format": "ndjson"}
    )
    other.execute(ITEMS)
    pipeline.subscribe()
    with running(pipeline, threads) as run:
        insert(pipeline, 1)
        wait_for_changes(pipeline, run, 1)
        with pytest.raises(IdentityChanged, match="another source, one with the system identifier"):
            catch_up(other, threads)
        insert(pipeline, 2)
        wait_for_changes(pipeline, run, 2)
    assert delivered(pipeline) == inserts(1, 2)
    with connect(other.url) as conn:
        assert find_subscription(conn, other.name) is None
    manifest = read_manifest(pipeline.folder / "out", pipeline.name)
    assert manifest is not None
    assert manifest.source is not None
    assert manifest.source.database == pipeline.url.rpartition("/")[2]
