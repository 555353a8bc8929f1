"""What a server and an open page cost a pipeline under load: its latency without and with them.

The load is that of w3 (docs/benchmarks.md). Without, with a server, with a server and a page, in
turns, on one run of the pipeline. Times are measured and written to .cache/serve_beside_load.json,
never asserted: others run beside it. The browser is on the same machine, which a person's is not.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest

from penstock.embedded.postgres import EmbeddedPostgres
from penstock.operations.run_record import running
from tests.fix_browser import Serve
from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.on_the_page import Visit

pytestmark = [pytest.mark.release, pytest.mark.slow]

RATE, CLIENTS = 1000, 8
SECONDS = int(os.environ.get("PENSTOCK_LOAD_SECONDS", "12"))
LEAD_IN = 3.0
ROUNDS = int(os.environ.get("PENSTOCK_LOAD_ROUNDS", "5"))
LOOK_SECONDS = 0.005
RESULTS = Path(__file__).resolve().parents[2] / ".cache" / "serve_beside_load.json"


@pytest.fixture
def under_way(pipeline: PipelineUnderTest, target_url: str) -> Iterator[None]:
    """`penstock run` in a terminal, at its own pace and not at that of tests."""
    pipeline.execute("CREATE TABLE item (id bigserial PRIMARY KEY, at timestamptz, note text)")
    pipeline.configure(
        destination={"type": "postgres", "url": target_url}, copy=True, include=("public.*",)
    )
    environment = {**os.environ, "PENSTOCK_CADENCE": "1"}
    command = [sys.executable, "-m", "penstock", "run", str(pipeline.file)]
    with (pipeline.folder / "run.txt").open("w") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env=environment)
    yield
    process.terminate()
    process.wait(120)


class Arrivals:
    """When the destination was first seen to hold how much."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._ending = threading.Event()
        self._seen: list[tuple[int, float]] = [(0, 0.0)]
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Arrivals:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _look(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as conn:
            while not self._ending.wait(LOOK_SECONDS):
                row = conn.execute("SELECT max(id) FROM item").fetchone()
                if row is not None and row[0] is not None and row[0] > self._seen[-1][0]:
                    self._seen.append((row[0], time.time()))

    @property
    def last(self) -> int:
        return self._seen[-1][0]

    def of(self, number: int) -> float:
        return self._seen[bisect_left(self._seen, (number, 0.0))][1]


def test_what_a_server_and_a_page_cost(
    pipeline: PipelineUnderTest,
    under_way: None,
    target_url: str,
    pg_server: EmbeddedPostgres,
    serve: Serve,
    visit: Visit,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PENSTOCK_CADENCE", "1")
    wait_until(lambda: running(pipeline.config), "the pipeline runs", 300)
    pipeline.execute("INSERT INTO item (at) VALUES (now())")

    def arrived() -> bool:
        with psycopg.connect(target_url) as conn:
            there = conn.execute("SELECT to_regclass('item')").fetchone()
            return there != (None,) and conn.execute("SELECT id FROM item").fetchone() is not None

    wait_until(arrived, "it delivers", 600)

    @contextmanager
    def alone() -> Iterator[list[psutil.Process]]:
        yield []

    @contextmanager
    def served() -> Iterator[list[psutil.Process]]:
        server = serve(str(pipeline.file), "--no-start")
        yield [psutil.Process(server.process.pid)]
        server.stop()

    @contextmanager
    def looked_at() -> Iterator[list[psutil.Process]]:
        server = serve(str(pipeline.file), "--no-start")
        watched = visit(server)
        watched.page.goto(f"{server.base}/pipelines/{pipeline.name}")
        watched.page.locator("tr", has_text="public.item").wait_for()
        yield [psutil.Process(server.process.pid)]
        watched.page.close()
        server.stop()

    ways: dict[str, Callable[[], AbstractContextManager[list[psutil.Process]]]] = {
        "alone": alone,
        "served": served,
        "served, a page open": looked_at,
    }
    found: dict[str, list[dict[str, float]]] = {}
    with Arrivals(target_url) as arrivals:
        load(pipeline, pg_server, arrivals, 5)
        for _ in range(ROUNDS):
            for name, way in ways.items():
                with way() as servers:
                    spent, began = cpu_seconds(servers), time.monotonic()
                    measured = load(pipeline, pg_server, arrivals, SECONDS)
                    # Beside the latency, which a busy machine hides: what the server itself takes.
                    took = cpu_seconds(servers) - spent
                    measured["server_share_of_a_core"] = took / (time.monotonic() - began)
                    found.setdefault(name, []).append(measured)
    result = {
        name: {
            key: round(statistics.median(each[key] for each in rounds), 3)
            for key in ("p50_ms", "p99_ms", "load_average", "server_share_of_a_core")
        }
        for name, rounds in found.items()
    }
    for name in found:
        for key in ("p50_ms", "p99_ms"):
            result[name][f"{key}_ratio"] = round(result[name][key] / result["alone"][key], 3)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"medians": result, "rounds": found}, indent=1))
    print(json.dumps(result))


def cpu_seconds(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def load(
    pipeline: PipelineUnderTest, server: EmbeddedPostgres, arrivals: Arrivals, seconds: int
) -> dict[str, float]:
    """Write for so long, wait until all has arrived; how long that took for each row."""
    script = pipeline.folder / "load.sql"
    script.write_text(
        "INSERT INTO item (at, note) VALUES (clock_timestamp(), 'a row of some length');"
    )
    with psycopg.connect(pipeline.url) as conn:
        before = conn.execute("SELECT max(id) FROM item").fetchone()
    subprocess.run(
        [
            str(server.bin_dir / "pgbench"), "--no-vacuum", "--protocol=prepared",
            f"--client={CLIENTS}", "--jobs=1", f"--rate={RATE}", f"--time={seconds}",
            f"--file={script}", pipeline.url,
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    with psycopg.connect(pipeline.url) as conn:
        rows = conn.execute(
            "SELECT id, extract(epoch FROM at)::float8 FROM item WHERE id > %s ORDER BY id", before
        ).fetchall()
    wait_until(lambda: arrivals.last >= rows[-1][0], "all has arrived", 300)
    settled = [(n, at) for n, at in rows if at > rows[0][1] + min(LEAD_IN, seconds / 2)]
    took = sorted(1e3 * (arrivals.of(number) - at) for number, at in settled)
    return {
        "p50_ms": took[len(took) // 2],
        "p99_ms": took[len(took) * 99 // 100],
        "load_average": psutil.getloadavg()[0],
    }
