"""Fifty pipelines, one with ten thousand tables: how long answers take, and how much memory.

Times are measured and written to .cache/serve_scale.json, never asserted: others run beside it. Two
yardsticks of the same run tell a slow server from a busy machine: the cheapest request that there
is, and the processor time of server and browser.
"""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg.types.json import Jsonb

from penstock.config import load_pipeline
from penstock.model.table_definition import ColumnDefinition, TableDefinition, TypeName
from penstock.serve.safety.tokens import Tokens
from penstock.serve.state_folder import StateFolder
from penstock.serve.supervise.jobs import ENDED
from penstock.store import pipeline_store
from tests.fix_browser import Serve, ServeProcess, Watched
from tests.fix_pipeline import wait_until

pytestmark = [pytest.mark.release, pytest.mark.slow]

PIPELINES, TABLES = 50, 10_000
# Of the others, this many have some tables, too.
OTHERS, TABLES_OF_OTHERS = 9, 200
JOBS = 20
REQUESTS = 300
VISITS = 5
MOST_MEMORY = 300e6
RESULTS = Path(__file__).resolve().parents[2] / ".cache" / "serve_scale.json"


def fill(database: str, pipeline: str, tables: int) -> None:
    columns = tuple(
        ColumnDefinition(n, f"column_{n}", TypeName("pg_catalog", "text")) for n in range(1, 9)
    )
    with psycopg.connect(database) as conn, conn.cursor() as cursor:
        with cursor.copy(
            "COPY penstock.table_state (pipeline, table_oid, step, state) FROM STDIN"
        ) as copy:
            for oid in range(20_000, 20_000 + tables):
                copy.write_row([pipeline, oid, 1, '{"phase": "ready"}'])
        definitions = [
            TableDefinition(20_000 + n, "public", f"table_{n:05}", "d", columns)
            for n in range(tables)
        ]
        cursor.executemany(
            "INSERT INTO penstock.table_schema (pipeline, table_oid, lsn, definition)"
            " VALUES (%s, %s::oid, '0/1', %s)",
            [(pipeline, table.oid, Jsonb(table.to_json())) for table in definitions],
        )


def leave_jobs(folder: Path) -> None:
    """Operations that have ended, as many as are kept, each with the report of a large database."""
    table = {"equal": True, "source_rows": 1, "not_compared": "", "skipped": "", "differences": []}
    report = {
        "equal": True,
        "rows": TABLES,
        "lsn": "0/1",
        "constraints": [],
        "tables": [{"source": f"public.table_{n:05}", **table} for n in range(TABLES)],
    }
    for number in range(JOBS):
        place = folder / f"{number:032x}"
        place.mkdir()
        record = {"pipeline": "p00", "kind": "verify", "started_by": "x", "process": {}}
        at = f"2026-01-01T00:00:{number:02}+00:00"
        (place / "job.json").write_text(json.dumps({**record, "began_at": at}))
        (place / "out").write_text(json.dumps(report))
        (place / ENDED).write_text('{"exit_code": 0}')


@pytest.fixture
def files(database: str, tmp_path: Path) -> list[Path]:
    folder = tmp_path / "pipelines"
    folder.mkdir()
    made = []
    for number in range(PIPELINES):
        file = folder / f"p{number:02}.yaml"
        file.write_text(
            f"name: p{number:02}\nsource: {{url: '{database}'}}\ndestination: {{type: discard}}\n"
        )
        made.append(file)
    for number, file in enumerate(made[: 1 + OTHERS]):
        with pipeline_store(load_pipeline(file)) as store:
            store.open()
        fill(database, f"p{number:02}", TABLES_OF_OTHERS if number else TABLES)
    return made


@pytest.fixture
def played(files: list[Path]) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fake_runs", *map(str, files)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    yield
    process.terminate()
    process.wait(60)
    process.stdout.close()


def cpu_seconds(processes: list[psutil.Process]) -> float:
    found = 0.0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            found += sum(process.cpu_times()[:2])
    return found


def test_many_tables_and_pipelines(
    files: list[Path],
    played: None,
    tmp_path: Path,
    serve: Serve,
    visit: Callable[[ServeProcess], Watched],
) -> None:
    token = Tokens(StateFolder(tmp_path / "served").tokens).create("scale", "read")
    leave_jobs(StateFolder(tmp_path / "served").jobs)
    server = serve(str(files[0].parent), "--no-start")
    asking = http.client.HTTPConnection(server.base.removeprefix("http://"))

    def ask(path: str) -> tuple[float, dict[str, object]]:
        began = time.perf_counter()
        asking.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        answer = asking.getresponse()
        body = json.loads(answer.read())
        assert answer.status == 200, body
        return time.perf_counter() - began, body

    def all_run() -> bool:
        found = ask("/v1/pipelines")[1]["pipelines"]
        assert isinstance(found, list)
        return sum(entry["delivered_per_second"] is not None for entry in found) == PIPELINES

    wait_until(all_run, "all pipelines are seen to run")
    times: dict[str, list[float]] = {}
    served = psutil.Process(server.process.pid)
    spent = cpu_seconds([served])
    for number in range(REQUESTS):
        for what, path in (
            ("health", "/v1/health"),
            ("pipelines", "/v1/pipelines"),
            ("tables", "/v1/pipelines/p00/tables?limit=100"),
            ("search", f"/v1/pipelines/p00/tables?search=table_{number:03}"),
            ("metrics", "/v1/pipelines/p00/metrics"),
            ("status", f"/v1/pipelines/p{number % 10:02}"),
            ("jobs", "/v1/pipelines/p00/jobs"),
            ("schema", f"/v1/pipelines/p00/schema-history?table=public.table_{number:05}"),
        ):
            times.setdefault(what, []).append(ask(path)[0])
    api_spent = cpu_seconds([served]) - spent
    asking.close()
    watched = visit(server)
    browsers = [
        process
        for process in psutil.Process().children(recursive=True)
        if "chrom" in process.name()
    ]
    shown: dict[str, list[dict[str, float]]] = {}
    for _ in range(VISITS):
        for what, path, text in (
            ("sign-in", "/signin", "Penstock"),
            ("overview", "/", "p49"),
            ("tables", "/pipelines/p00", "public.table_00000"),
            ("schema", "/pipelines/p00?tab=schema", "Version 1, from 0/1 on"),
            ("verify", "/pipelines/p00?tab=verify", "public.table_00000"),
            ("operations", "/pipelines/p00?tab=operations", "verify: succeeded"),
        ):
            at_server, at_browser = cpu_seconds([served]), cpu_seconds(browsers)
            began = time.perf_counter()
            watched.page.goto(f"{server.base}{path}")
            watched.page.get_by_text(text, exact=what != "sign-in").first.wait_for()
            shown.setdefault(what, []).append(
                {
                    "seconds": time.perf_counter() - began,
                    "server_cpu": cpu_seconds([served]) - at_server,
                    "browser_cpu": cpu_seconds(browsers) - at_browser,
                }
            )
    memory = served.memory_info().rss
    result = {
        "load_average": psutil.getloadavg()[0],
        "api_p50_ms": {k: round(1e3 * statistics.median(v), 1) for k, v in times.items()},
        "api_p99_ms": {
            k: round(1e3 * statistics.quantiles(v, n=100)[98], 1) for k, v in times.items()
        },
        "server_cpu_ms_a_request": round(1e3 * api_spent / sum(map(len, times.values())), 2),
        "page": {
            what: {
                key: [round(visit[key], 2) for visit in visits]
                for key in ("seconds", "server_cpu", "browser_cpu")
            }
            for what, visits in shown.items()
        },
        "memory_mb": round(memory / 1e6, 1),
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=1))
    print(json.dumps(result))
    assert memory < MOST_MEMORY
    watched.expect_clean()
