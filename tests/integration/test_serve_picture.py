"""The picture in README.md: docs/page.png is what this test leaves in .cache/screenshots."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from penstock.config import load_pipeline
from penstock.model.table_definition import ColumnDefinition, TableDefinition, TypeName
from penstock.model.table_state import DataSync, Errored, Init, Ready
from penstock.source.copy_plan import Chunk, CopyPlan
from penstock.store import PostgresStore, pipeline_store
from tests.fix_browser import Serve, ServeProcess, Watched

pytestmark = [pytest.mark.release, pytest.mark.slow]

NAMES = ("customers", "order_items", "orders", "payments", "products", "stock")
REFUSED = Errored("value too long for type character varying(3)", "Widen the column, then retry.")


def fill(store: PostgresStore) -> None:
    """Tables in different states; one is being copied."""
    column = ColumnDefinition(1, "id", TypeName("pg_catalog", "bigint"))
    for oid, name in enumerate(NAMES, start=16_400):
        store.store_table_schema(TableDefinition(oid, "public", name, "d", (column,)), 0x1000)
        store.update_table_state(oid, Init())
        if name == "order_items":
            store.update_table_state(oid, DataSync())
            chunks = tuple(
                Chunk(oid, n, oid, "public", name, 1, n, n + 1, 8_000_000) for n in range(20)
            )
            store.start_copy(oid, CopyPlan(oid, ("id",), None, chunks), 0x2000)
            store.chunks_done({(oid, n): (120_000, 8_000_000) for n in range(13)})
        else:
            store.update_table_state(oid, Ready())
        if name == "payments":
            store.update_table_state(oid, REFUSED)


@pytest.fixture
def shop(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Its run is played: the picture needs figures, not rows."""
    monkeypatch.setenv("SHOP_URL", database)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "own"))
    file = tmp_path / "shop.yaml"
    file.write_text(
        "name: shop\nsource: {url: '${SHOP_URL}'}\ndestination: {type: discard}\n"
        "change_log: {path: 's3://warehouse-log/shop'}\n"
    )
    with pipeline_store(load_pipeline(file)) as store:
        store.open()
        fill(store)
    played = subprocess.Popen(
        [sys.executable, "-m", "tests.fake_runs", str(file)], stdout=subprocess.PIPE
    )
    assert played.stdout is not None
    assert played.stdout.readline() == b"ready\n"
    yield file
    played.terminate()
    played.wait(60)
    played.stdout.close()


def test_the_picture(shop: Path, serve: Serve, visit: Callable[[ServeProcess], Watched]) -> None:
    watched = visit(serve(str(shop), "--no-start"))
    page = watched.page
    page.set_viewport_size({"width": 1100, "height": 800})
    page.goto(f"{watched.base}/pipelines/shop?mode=light")
    expect(page.get_by_text("healthy", exact=True)).to_be_visible(timeout=120_000)
    expect(page.locator(".ps-rate").first).to_contain_text("/s", timeout=120_000)
    expect(page.locator("tr", has_text="public.stock")).to_be_visible(timeout=120_000)
    watched.shot("page")
    watched.expect_clean()
