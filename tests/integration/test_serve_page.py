"""The page of `penstock serve` in a real Chromium."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from penstock.config import load_deliveries
from penstock.destination.webhooks.subscription import WebhookSubscription
from penstock.model.table_definition import TableDefinition
from penstock.model.table_state import Init
from penstock.operations.commands import COMMANDS
from penstock.operations.webhook_subscriptions import opened_subscriptions
from penstock.serve.observe.series import COLUMNS, SeriesFile
from penstock.serve.page.pipeline_page import TABS as TABS_OF_ALL
from penstock.serve.safety.tokens import Tokens
from penstock.serve.state_folder import StateFolder
from penstock.store import PostgresStore
from tests.fix_browser import Serve
from tests.fix_cli import CommandLine
from tests.fix_pipeline import wait_until
from tests.fix_serve import HOSTILE, ORDERS, put
from tests.on_the_page import Visit, ask_for, choose, expect_accessible

_SHOWS_FOCUS = "it => getComputedStyle(it).outlineStyle === 'solid'"


def test_a_page_shows_and_steers(
    penstock: CommandLine, recorded: PostgresStore, serve: Serve, visit: Visit
) -> None:
    """The short test: what a person sees and does, on a store without a pipeline."""
    server = serve(str(penstock.file), "--no-start")
    watched = visit(server)
    page = watched.page
    name = recorded.pipeline
    page.get_by_role("link", name=name).click()
    expect(page.get_by_text(f'public."{HOSTILE}"')).to_be_visible()
    choose(page, "public.orders")
    page.get_by_role("button", name="Pause").click()
    wait_until(lambda: recorded.load_wishes() == {ORDERS: "paused"}, "the copy is paused")
    expect(page.get_by_text("paused", exact=True)).to_be_visible()
    page.get_by_label("Search tables").fill("items")
    expect(page.locator("tr", has_text="public.orders")).to_have_count(0)
    expect(page.get_by_text("shop.items")).to_be_visible()
    assert page.evaluate("document.images.length") == 0
    watched.expect_clean()
    assert "hunter2" not in page.content()
    # What cannot be undone takes the name.
    page.goto(f"{server.base}/pipelines/{name}?tab=configuration")
    page.get_by_role("button", name="Destroy the pipeline").click()
    dialog = page.get_by_role("dialog")
    confirm = dialog.get_by_role("button", name="Destroy")
    dialog.get_by_label("Name").fill(name[:-1])
    expect(confirm).to_be_disabled()
    dialog.get_by_label("Name").fill(name)
    confirm.click()
    wait_until(lambda: not recorded.exists(), "the pipeline is destroyed")


def test_by_keyboard(
    penstock: CommandLine, recorded: PostgresStore, serve: Serve, visit: Visit
) -> None:
    """From the overview to a table that is copied anew, without a mouse; Escape changes nothing."""
    page = visit(serve(str(penstock.file), "--no-start")).page

    def tab_to(wanted: Locator) -> None:
        """Press Tab until it is reached, and see that this can be seen."""
        expect(wanted).to_be_visible(timeout=60_000)
        for _ in range(80):
            page.keyboard.press("Tab")
            if wanted.evaluate("it => it === document.activeElement"):
                assert wanted.evaluate(_SHOWS_FOCUS), f"nobody sees that {wanted} has the focus"
                return
        pytest.fail(f"Tab never leads to {wanted}")

    tab_to(page.get_by_role("link", name=recorded.pipeline))
    page.keyboard.press("Enter")
    tab_to(page.get_by_role("checkbox", name="Choose public.orders"))
    page.keyboard.press("Space")
    page.evaluate("document.activeElement.blur()")
    copy_anew, dialog = page.get_by_role("button", name="Copy anew"), page.get_by_role("dialog")
    tab_to(copy_anew)
    page.keyboard.press("Enter")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert recorded.load_wishes() == {}
    tab_to(copy_anew)
    page.keyboard.press("Enter")
    # A dialog that has opened takes the focus and keeps it; one that is opening does not yet.
    expect(page.locator("[role=dialog]:focus-within")).to_be_visible()
    tab_to(dialog.get_by_role("button", name="Copy anew"))
    page.keyboard.press("Enter")
    wait_until(lambda: recorded.load_wishes() == {ORDERS: "resync"}, "the table is copied anew")


def test_what_is_shown_of_many_tables(
    penstock: CommandLine, recorded: PostgresStore, serve: Serve, visit: Visit
) -> None:
    """Pages, states, light and dark; and the form that strangers see."""
    for oid in range(20_000, 20_070):
        recorded.store_table_schema(TableDefinition(oid, "many", f"t{oid}", "d", ()), 1)
        put(recorded, oid, Init())
    server = serve(str(penstock.file), "--no-start")
    page = visit(server).page
    page.goto(f"{server.base}/pipelines/{recorded.pipeline}")
    expect(page.get_by_text("73 tables")).to_be_visible()
    expect(page.locator("tr", has_text="many.t20000")).to_be_visible()
    page.get_by_role("button", name="2", exact=True).click()
    expect(page.locator("tr", has_text="many.t20069")).to_be_visible()
    expect(page.locator("tr", has_text="many.t20000")).to_have_count(0)
    page.get_by_label("State").click()
    page.get_by_role("option", name="errored").click()
    expect(page.get_by_text("1 tables")).to_be_visible()
    expect(page.locator("tr", has_text=HOSTILE)).to_be_visible()

    page.get_by_role("tab", name="Schema").click()
    # While one tab leaves and the other comes, both have a field of that name.
    expect(page.locator("tr", has_text=HOSTILE)).to_have_count(0)
    expect(page.get_by_role("combobox", name="Table")).to_be_visible()
    page.get_by_label("Search tables").fill("t20069")
    expect(page.get_by_text("1 tables")).to_be_visible()
    expect(page.get_by_text("Version 1, from 0/1 on")).to_be_visible()

    contrast = page.get_by_role("button", name="Switch between light and dark")
    for mode in ("light", "dark"):
        contrast.click()
        page.wait_for_selector(f"body.body--{mode}")

    page.context.clear_cookies()
    page.goto(f"{server.base}/signin")
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 844})
        expect_accessible(page, f"sign-in, {width} wide")


def test_charts_of_another_span(
    penstock: CommandLine, recorded: PostgresStore, serve: Serve, visit: Visit, tmp_path: Path
) -> None:
    kept = SeriesFile(StateFolder(tmp_path / "served").series(recorded.pipeline, ""))
    for ago in (300, 299):
        kept.add([time.time() - 60 * ago, *(float(ago) for _ in COLUMNS)])
    server = serve(str(penstock.file), "--no-start")
    page = visit(server).page
    page.goto(f"{server.base}/pipelines/{recorded.pipeline}?tab=charts")
    expect(page.get_by_text("There are no figures yet")).to_be_visible()
    page.get_by_role("button", name="6 h").click()
    expect(page.get_by_text("There are no figures yet")).to_be_hidden()


def test_a_page_ends_with_its_session(
    penstock: CommandLine, recorded: PostgresStore, serve: Serve, visit: Visit, tmp_path: Path
) -> None:
    """A token that is revoked shows nothing any more, on a page that is open, too."""
    tokens = Tokens(StateFolder(tmp_path / "served").tokens)
    text = tokens.create("olga", "operate")
    server = serve(str(penstock.file), "--no-start")
    page = visit(server).page
    page.context.clear_cookies()
    page.goto(f"{server.base}/signin")
    page.get_by_label("Token").fill(text)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name=recorded.pipeline).click()
    expect(page.locator("tr", has_text="public.orders")).to_be_visible()
    tokens.revoke(tokens.all()[0].id)
    page.wait_for_url("**/signin")
    expect(page.get_by_label("Token")).to_be_visible()


def test_what_the_command_line_has_the_page_has(
    penstock: CommandLine, recorded: PostgresStore, serve: Serve, visit: Visit, tmp_path: Path
) -> None:
    """Every command of the table is there to be pressed; receivers and rules are looked after."""
    penstock.file.write_text(
        f"name: {recorded.pipeline}\nsource: {{url: '${{SHOP_URL}}'}}\n"
        f"destination: {{type: webhooks, url: '${{SHOP_URL}}', path: {tmp_path}/outbox,\n"
        f"  secret_key: {'a' * 43}=}}\n"
        "transform: {rules: [{table: public.orders, columns: {note: redact}, mode: relaxed}]}\n"
    )
    views = load_deliveries(penstock.file)
    with opened_subscriptions(views, penstock.file) as (_, subscriptions):
        wanted = WebhookSubscription(url="https://127.0.0.1:1/hook")
        name = subscriptions.add(wanted, {"secret": "env:PENSTOCK_WEBHOOK_X"})
    server = serve(str(penstock.file), "--no-start")
    watched = visit(server)
    page = watched.page
    for tab in TABS_OF_ALL:
        wanted_there = [command.page[1] for command in COMMANDS if command.page[0] == tab]
        page.goto(f"{server.base}/pipelines/{recorded.pipeline}?tab={tab}")
        for text in wanted_there:
            found = page.get_by_role("button", name=text, exact=True)
            found = found.or_(page.get_by_label(text)).or_(page.get_by_text(text, exact=True))
            expect(found.first).to_be_visible()
        if tab in ("webhooks", "transform", "operations"):
            expect_accessible(page, tab)

    def state() -> str | None:
        with opened_subscriptions(views, penstock.file) as (_, subscriptions):
            found = subscriptions.all()
        return found[0].to_json()["state"] if found else None

    page.goto(f"{server.base}/pipelines/{recorded.pipeline}?tab=webhooks")
    choose(page, name)
    page.get_by_role("button", name="Pause", exact=True).click()
    wait_until(lambda: state() == "paused", "the receiver is paused")
    expect(page.locator("tr", has_text=name)).to_contain_text("paused")
    page.get_by_role("button", name="Resume", exact=True).click()
    wait_until(lambda: state() == "active", "the receiver goes on")
    page.get_by_role("button", name="Send a test").click()
    expect(page.get_by_text(f"{name}: ").first).to_be_visible()
    ask_for(page, "Remove")
    wait_until(lambda: state() is None, "the receiver is forgotten")
    page.get_by_role("tab", name="Transform").click()
    page.get_by_role("button", name="Check rules").click()
    expect(page.get_by_role("status").first).to_be_visible()
    page.get_by_role("button", name="Accept rules").click()
    page.get_by_role("dialog").get_by_role("button", name="Accept").click()
    expect(page.get_by_text(re.compile("Accepted for|They had not changed"))).to_be_visible()
    audit = (tmp_path / "served" / "audit.log").read_text()
    done = [json.loads(line) for line in audit.splitlines()]
    ended = {(each["action"], each["outcome"]) for each in done if each["outcome"] != "begun"}
    assert ended >= {
        *((f"webhooks {action}", "done") for action in ("pause", "resume", "remove")),
        ("webhooks test", "failed"),  # its secret's variable is not set
        ("transform accept", "done"),
    }
    watched.expect_clean()
