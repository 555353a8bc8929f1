"""What tests do on the page of `penstock serve`."""

from __future__ import annotations

from collections.abc import Callable

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from penstock.store import PostgresStore
from tests.fix_browser import ServeProcess, Watched

Visit = Callable[[ServeProcess], Watched]

# Conditions are waited for, however busy the machine is.
expect.set_options(timeout=120_000)


def choose(page: Page, table: str) -> None:
    row = page.locator("tr", has_text=table)
    row.get_by_role("checkbox").click()


def ask_for(page: Page, button: str) -> None:
    """Press it, and press it again where it is asked for once more."""
    page.get_by_role("button", name=button, exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name=button, exact=True).click()


def expect_accessible(page: Page, what: str) -> None:
    found = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa"]})
    serious = [
        f"{violation['id']}: {node['html'][:150]}"
        for violation in found.response["violations"]
        for node in violation["nodes"][:3]
    ]
    assert serious == [], f"{what}: {serious}"


def phases(store: PostgresStore) -> set[str]:
    if not store.exists():
        return set()
    store.load_table_states()
    return {state.phase for state in store.get_table_states().values()}


def is_ready(store: PostgresStore) -> bool:
    return phases(store) == {"ready"}
