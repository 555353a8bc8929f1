"""The page of `penstock serve`: a pipeline with two destinations, and one that is only copied."""

from __future__ import annotations

from functools import partial

import psycopg
import pytest
import yaml
from playwright.sync_api import Page, expect

from penstock.changelog.changelog import ChangeLog
from penstock.config import load_deliveries
from penstock.operations.dead_letters import list_letters
from penstock.operations.run_record import running
from penstock.store import pipeline_store
from tests.fix_browser import Serve, ServeProcess
from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.on_the_page import Visit, ask_for, choose, is_ready, phases


@pytest.mark.release
@pytest.mark.slow
@pytest.mark.usefixtures("ended")
def test_a_living_pipeline_with_two_destinations(
    pipeline: PipelineUnderTest, target_url: str, serve: Serve, visit: Visit
) -> None:
    """Each is shown and steered by its name; what it refused is looked at and discarded."""
    pipeline.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, note text)",
        "INSERT INTO orders SELECT n, 'x' FROM generate_series(1, 500) n",
    )
    pipeline.configure(copy=True, include=("public.*",), tables={"reconcile": "1s"})
    pipeline.also(spark={"master": "local[1, 4]"})
    content = yaml.safe_load(pipeline.file.read_text())
    del content["destination"]
    content["destinations"] = {
        "warehouse": {"type": "postgres", "url": target_url, "dead_letter": True},
        "lake": {"type": "files", "path": str(pipeline.folder / "lake"), "format": "ndjson"},
    }
    pipeline.file.write_text(yaml.safe_dump(content, sort_keys=False))
    warehouse, lake = load_deliveries(pipeline.file)
    server = serve(str(pipeline.file), "--no-start")
    watched = visit(server)
    page = watched.page
    page.get_by_role("link", name=pipeline.name).click()
    page.get_by_role("button", name="Start").click()
    with pipeline_store(warehouse) as to_warehouse, pipeline_store(lake) as to_lake:
        for store in (to_warehouse, to_lake):
            wait_until(partial(is_ready, store), "all are ready", 600)
        expect(page.get_by_text("healthy", exact=True)).to_be_visible()
        flow = page.get_by_label("Flow of rows")
        expect(flow).to_contain_text("warehouse: postgres")
        expect(flow).to_contain_text("lake: files")
        watched.shot("two-destinations")

        # The lake is copied anew; the warehouse is not.
        to_warehouse.open()
        to_lake.open()
        orders = to_lake.find_table("public", "orders")
        assert orders is not None
        since = to_warehouse.get_state_since(orders), to_lake.get_state_since(orders)
        page.goto(f"{server.base}/pipelines/{pipeline.name}?destination=lake")
        choose(page, "public.orders")
        page.get_by_role("button", name="Copy anew").click()
        page.get_by_role("dialog").get_by_role("button", name="Copy anew").click()

        def copied_anew() -> bool:
            return phases(to_lake) == {"ready"} and to_lake.get_state_since(orders) != since[1]

        wait_until(copied_anew, "the lake was copied anew", 400)
        assert phases(to_warehouse) == {"ready"}
        assert to_warehouse.get_state_since(orders) == since[0]

        refuse_and_discard(page, server, pipeline, target_url)
    page.goto(f"{server.base}/pipelines/{pipeline.name}")
    ask_for(page, "Stop now")
    wait_until(lambda: running(pipeline.config) is None, "the pipeline has stopped", 400)
    page.goto(f"{server.base}/pipelines/{pipeline.name}?tab=configuration")
    page.get_by_role("button", name="Give up destination lake").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("lake")
    dialog.get_by_role("button", name="Give up").click()
    log = ChangeLog.of(lake.change_log)
    wait_until(lambda: list(log.all_readers()) == [warehouse.delivery], "the lake is gone", 400)
    watched.expect_clean()


def refuse_and_discard(
    page: Page, server: ServeProcess, pipeline: PipelineUnderTest, target_url: str
) -> None:
    """Rows that one destination refuses are kept there: looked at as a whole, discarded, and
    brought again by copying their table anew.
    """
    long = "much longer " * 60
    with psycopg.connect(target_url, autocommit=True) as conn:
        conn.execute("ALTER TABLE orders ADD CONSTRAINT short CHECK (length(note) < 5) NOT VALID")
        letters = partial(list_letters, load_deliveries(pipeline.file)[0])
        pipeline.execute(
            "INSERT INTO orders VALUES (501, repeat('much longer ', 60))",
            "INSERT INTO orders VALUES (502, 'not needed')",
        )
        wait_until(lambda: len(letters()) == 2, "the rows are kept", 400)
        first, second = (letter.id for letter in letters())
        page.goto(f"{server.base}/pipelines/{pipeline.name}?tab=dead-letters")
        expect(page.locator("tr", has_text="public.orders").first).to_contain_text("short")
        page.get_by_role("button", name=f"Show the whole of {first}").click()
        expect(page.get_by_role("dialog").get_by_text(long.strip())).to_be_visible()
        page.get_by_role("dialog").get_by_role("button", name="Close").click()
        expect(page.get_by_role("dialog")).to_have_count(0)

        page.get_by_role("checkbox", name=f"Choose {second}", exact=True).click()
        # It is still chosen after another look.
        page.get_by_role("button", name="Look again").click()
        ask_for(page, "Discard")
        wait_until(lambda: [letter.id for letter in letters()] == [first], "it is gone")

        conn.execute("ALTER TABLE orders DROP CONSTRAINT short")
        page.get_by_role("checkbox", name=f"Choose {first}", exact=True).click()
        page.get_by_role("button", name="Copy their tables anew").click()
        page.get_by_role("dialog").get_by_role("button", name="Copy anew").click()
        arrived = "SELECT count(*) FROM orders WHERE id IN (501, 502)"
        wait_until(lambda: conn.execute(arrived).fetchone() == (2,), "the rows came again", 400)
        # With the new copy the letter goes: nothing is left to be chosen.
        wait_until(lambda: not letters(), "the letter is gone")
        expect(page.get_by_text("No refused rows are kept")).to_be_visible()


@pytest.mark.release
@pytest.mark.slow
def test_a_copy_without_following(
    pipeline: PipelineUnderTest, target_url: str, serve: Serve, visit: Visit
) -> None:
    pipeline.execute(
        "CREATE TABLE orders (id int PRIMARY KEY)",
        "INSERT INTO orders SELECT n FROM generate_series(1, 500) n",
    )
    pipeline.configure(
        destination={"type": "postgres", "url": target_url}, copy=True, include=("public.*",)
    )
    pipeline.also(spark={"master": "local[1, 4]"})
    server = serve(str(pipeline.file), "--no-start")
    watched = visit(server)
    page = watched.page
    page.goto(f"{server.base}/pipelines/{pipeline.name}?tab=operations")
    ask_for(page, "Copy without following")
    expect(page.get_by_text("snapshot: succeeded")).to_be_visible(timeout=400_000)
    with psycopg.connect(target_url) as conn:
        assert conn.execute("SELECT count(*) FROM orders").fetchone() == (500,)
    watched.shot("operations-snapshot")
    watched.expect_clean()
