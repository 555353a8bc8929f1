"""The page of `penstock serve` on living pipelines, in a real Chromium: every view and button."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest
from playwright.sync_api import Page, expect

from penstock.operations.run_record import running
from penstock.store import PostgresStore, pipeline_store
from tests.fix_browser import Serve, ServeProcess, Watched
from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.on_the_page import Visit, ask_for, choose, expect_accessible, is_ready, phases

TABS = (
    ("tables", "Search tables"),
    ("charts", "Rows a second"),
    ("schema", "Version 1"),
    ("dead-letters", "Look again"),
    ("events", "local: tables rollback"),
    ("checks", "All checks passed"),
    ("verify", "Equal: 2 tables"),
    ("operations", "init: succeeded"),
    ("configuration", "change_log"),
)


@pytest.mark.release
@pytest.mark.slow
@pytest.mark.usefixtures("ended")
def test_a_living_pipeline(
    pipeline: PipelineUnderTest, target_url: str, serve: Serve, visit: Visit
) -> None:
    """Every view and every button, with the effect at the pipeline; a server that is killed."""
    pipeline.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, note varchar(20))",
        "INSERT INTO orders SELECT n, 'x' FROM generate_series(1, 5000) n",
        "CREATE TABLE items (id int PRIMARY KEY)",
        "CREATE SCHEMA later CREATE TABLE extra (id int PRIMARY KEY)",
    )
    pipeline.configure(
        destination={"type": "postgres", "url": target_url},
        copy=True,
        include=("public.*",),
        tables={"reconcile": "1s"},
    )
    pipeline.also(spark={"master": "local[1, 4]"})
    server = serve(str(pipeline.file), "--no-start")
    watched = visit(server)
    page = watched.page
    page.get_by_role("link", name=pipeline.name).click()
    page.get_by_role("tab", name="Operations").click()
    ask_for(page, "Prepare the source")
    expect(page.get_by_text("init: succeeded")).to_be_visible(timeout=400_000)
    with psycopg.connect(pipeline.url) as conn:
        slots = conn.execute("SELECT active FROM pg_replication_slots").fetchall()
        assert slots == [(False,)], "there is a slot, and nobody reads it yet"
    page.get_by_role("tab", name="Tables").click()
    page.get_by_role("button", name="Start").click()
    first = wait_until(lambda: running(pipeline.config), "the pipeline runs")
    assert first is not None
    with pipeline_store(pipeline.config) as store:
        wait_until(lambda: phases(store) == {"ready"}, "all tables are ready", 600)
        expect(page.get_by_text("healthy", exact=True)).to_be_visible()
        expect(page.locator("tr", has_text="public.orders")).to_contain_text("ready")

        # The server dies under load; the pipeline does not notice, and the page comes back by
        # itself.
        with rows_written(pipeline, first=5001, last=6000):
            port = int(server.base.rpartition(":")[2])
            page.evaluate("window.isOld = true")
            server.kill()
            again = serve(str(pipeline.file), port=port)
            assert wait_until(lambda: running(pipeline.config), "it still runs") == first
            page.wait_for_function("window.isOld === undefined", timeout=300_000)
            expect(page.get_by_text("healthy", exact=True)).to_be_visible()
            assert str(first.process.pid) in page.content()

        steer_tables(page, store)
        steer_a_copy(page, store, pipeline)
        retry_an_error(page, store, pipeline, target_url)
        cancel_a_verification(page, pipeline)
        verify_and_check(page)
        look_everywhere(watched, again, pipeline.name)
        page.goto(f"{again.base}/pipelines/{pipeline.name}")
        ask_for(page, "Stop")
        wait_until(lambda: not first.process.lives, "the pipeline has stopped")
        expect(page.get_by_text("stopped", exact=True)).to_be_visible()
    with psycopg.connect(target_url) as conn:
        assert conn.execute("SELECT count(*) FROM orders").fetchone() == (6000,)
    watched.expect_clean()


@contextmanager
def rows_written(pipeline: PipelineUnderTest, *, first: int, last: int) -> Iterator[None]:
    """All of these orders are written, one a transaction: some of them beside the block."""

    def write() -> None:
        with psycopg.connect(pipeline.url, autocommit=True) as conn:
            for number in range(first, last + 1):
                conn.execute("INSERT INTO orders VALUES (%s, 'y')", [number])
                time.sleep(0.01)

    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(write)
        yield
        written.result()


def steer_tables(page: Page, store: PostgresStore) -> None:
    """Each button on tables, and what came of it in the store."""
    store.open()
    orders, items = store.find_table("public", "orders"), store.find_table("public", "items")
    assert orders is not None
    assert items is not None
    since = store.get_state_since(orders)
    choose(page, "public.orders")
    page.get_by_role("button", name="Copy anew").click()
    page.get_by_role("dialog").get_by_role("button", name="Copy anew").click()

    def copied_anew() -> bool:
        store.load_table_states()
        return phases(store) == {"ready"} and store.get_state_since(orders) != since

    wait_until(copied_anew, "the table was copied anew", 400)

    # There is no copy to pause, resume or cancel, and no error to retry: that is said.
    for button in ("Pause", "Resume", "Retry"):
        page.goto(page.url)
        choose(page, "public.items")
        page.get_by_role("button", name=button, exact=True).click()
        expect(page.get_by_text("nothing was changed").first).to_be_visible()

    page.goto(page.url)
    page.get_by_role("button", name="Add table").click()
    page.get_by_label("Table", exact=True).fill("later.extra")
    page.get_by_role("dialog").get_by_role("button", name="Add", exact=True).click()

    def followed() -> bool:
        store.load_table_schemas()
        return store.find_table("later", "extra") is not None and phases(store) == {"ready"}

    wait_until(followed, "the added table is followed", 400)
    page.goto(page.url)
    choose(page, "later.extra")
    page.get_by_role("button", name="Remove", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Remove")).to_be_disabled()
    dialog.get_by_label("Name").fill("later.extra")
    dialog.get_by_role("button", name="Remove").click()

    def left() -> bool:
        store.load_table_schemas()
        return store.find_table("later", "extra") is None

    wait_until(left, "the removed table has left", 400)

    page.goto(page.url)
    choose(page, "public.items")
    page.get_by_role("button", name="Roll back").click()
    page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    expect(page.get_by_text("ready -> ").first).to_be_visible()
    wait_until(lambda: phases(store) == {"ready"}, "the step was taken again", 400)


def press(page: Page, table: str, button: str, *, asks: bool = False) -> None:
    page.goto(page.url)
    choose(page, table)
    page.get_by_role("button", name=button, exact=True).click()
    if asks:
        page.get_by_role("dialog").get_by_role("button", name=button).click()


def steer_a_copy(page: Page, store: PostgresStore, pipeline: PipelineUnderTest) -> None:
    """A copy that waits for a lock is paused, resumed and given up."""
    orders = store.find_table("public", "orders")
    assert orders is not None

    def copies() -> bool:
        store.load_table_states()
        state = store.get_table_state(orders)
        return state is not None and state.phase in ("init", "data_sync")

    with psycopg.connect(pipeline.url) as conn:
        conn.execute("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
        press(page, "public.orders", "Copy anew", asks=True)
        wait_until(copies, "the copy waits", 400)
        press(page, "public.orders", "Pause")
        wait_until(lambda: store.load_wishes() == {orders: "paused"}, "it is paused")
        expect(page.get_by_text("paused", exact=True)).to_be_visible()
        press(page, "public.orders", "Resume")
        wait_until(lambda: store.load_wishes() == {}, "it goes on")
        press(page, "public.orders", "Cancel copy", asks=True)
        wait_until(lambda: store.load_wishes() == {orders: "cancelled"}, "it is given up")
    expect(page.get_by_text("cancelled", exact=True)).to_be_visible()
    press(page, "public.orders", "Copy anew", asks=True)
    wait_until(
        lambda: store.load_wishes() == {} and phases(store) == {"ready"}, "it was copied anew", 400
    )


def retry_an_error(
    page: Page, store: PostgresStore, pipeline: PipelineUnderTest, target_url: str
) -> None:
    """A table that stopped at a row which its target refuses goes on once that was mended."""
    refuse = "ALTER TABLE orders ADD CONSTRAINT short CHECK (length(note) < 5) NOT VALID"
    with psycopg.connect(target_url, autocommit=True) as conn:
        conn.execute(refuse.encode())
        pipeline.execute("UPDATE orders SET note = 'much longer' WHERE id = 6000")
        wait_until(lambda: "errored" in phases(store), "the row is refused", 400)
        expect(page.locator("tr", has_text="public.orders")).to_contain_text("errored")
        expect(page.locator("tr", has_text="public.orders")).to_contain_text("short")
        conn.execute("ALTER TABLE orders DROP CONSTRAINT short")
        press(page, "public.orders", "Retry")
        arrived = "SELECT note FROM orders WHERE id = 6000"
        wait_until(
            lambda: conn.execute(arrived).fetchone() == ("much longer",), "the row came", 400
        )
        wait_until(lambda: is_ready(store), "the table goes on", 400)


def cancel_a_verification(page: Page, pipeline: PipelineUnderTest) -> None:
    """One that waits for a lock is given up, and its sessions go."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE '%verify%'"
        " AND datname = current_database()"
    )
    with psycopg.connect(pipeline.url, autocommit=True) as looks:

        def sessions() -> int:
            found = looks.execute(waiting).fetchone()
            return 0 if found is None else int(found[0])

        with psycopg.connect(pipeline.url) as conn:
            conn.execute("LOCK TABLE items IN ACCESS EXCLUSIVE MODE")
            page.get_by_role("tab", name="Verify").click()
            page.get_by_label("Sessions on each side").fill("1")
            page.get_by_role("button", name="Verify now").click()
            wait_until(lambda: sessions() > 0, "it has begun", 400)
            page.get_by_role("button", name="Cancel", exact=True).click()
            expect(page.get_by_text(re.compile("cancelled"))).to_be_visible(timeout=400_000)
        wait_until(lambda: sessions() == 0, "its sessions are gone", 400)


def verify_and_check(page: Page) -> None:
    page.get_by_role("tab", name="Verify").click()
    page.get_by_role("button", name="Verify now").click()
    expect(page.get_by_text(re.compile("^Equal: 2 tables, 6,000 rows"))).to_be_visible(
        timeout=400_000
    )
    page.get_by_role("tab", name="Checks").click()
    page.get_by_role("button", name="Check now").click()
    expect(page.get_by_text("All checks passed")).to_be_visible(timeout=400_000)


def look_everywhere(watched: Watched, server: ServeProcess, name: str) -> None:
    """Every view in light, dark and on a phone: shown, accessible, not wider than the screen."""
    page = watched.page
    for mode in ("light", "dark"):
        for tab, text in TABS:
            page.set_viewport_size({"width": 1280, "height": 900})
            page.goto(f"{server.base}/pipelines/{name}?tab={tab}&mode={mode}")
            if text:
                expect(page.get_by_text(text).first).to_be_visible()
            # The mode comes with the connection, and colours take a moment to change.
            page.wait_for_selector(f"body.body--{mode}")
            page.wait_for_timeout(500)
            expect_accessible(page, f"{tab} {mode}")
            watched.shot(f"{tab}-{mode}")
            page.set_viewport_size({"width": 390, "height": 844})
            page.wait_for_timeout(300)
            width = page.evaluate("document.documentElement.scrollWidth")
            assert width <= 390, f"{tab} is {width} wide"
            expect_accessible(page, f"{tab} {mode} on a phone")
            watched.shot(f"{tab}-{mode}-phone")
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto(f"{server.base}/?mode={mode}")
        expect(page.get_by_role("link", name=name)).to_be_visible()
        page.wait_for_selector(f"body.body--{mode}")
        page.wait_for_timeout(500)
        expect_accessible(page, f"overview {mode}")
        watched.shot(f"overview-{mode}")
