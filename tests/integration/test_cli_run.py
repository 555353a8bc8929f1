"""`penstock run` as a process: what it prints, how it stops, what it leaves."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping

import psutil
import psycopg
import pytest

from penstock.destination.files.committed_files import list_files
from tests.crash.penstock_run import WITHOUT_SPARK
from tests.fix_pipeline import PipelineUnderTest, wait_until


@pytest.fixture
def shop(pipeline: PipelineUnderTest) -> PipelineUnderTest:
    pipeline.execute("CREATE TABLE items (id int PRIMARY KEY, name text)")
    return pipeline


def start(
    shop: PipelineUnderTest, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", "run", str(shop.file), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
    )


def test_until_caught_up_to_stdout(shop: PipelineUnderTest) -> None:
    shop.configure(destination={"type": "stdout"})
    shop.also(metrics={"listen": False, "report": {"format": "text"}})
    shop.subscribe()
    with psycopg.connect(shop.url, autocommit=True) as conn:
        conn.execute("INSERT INTO items VALUES (1, 'a'), (2, NULL)")
        conn.execute("UPDATE items SET name = 'ü' WHERE id = 2")
        conn.execute("DELETE FROM items WHERE id = 1")
    process = start(shop, "--until-caught-up", environment=WITHOUT_SPARK)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    # Changes alone are on standard output, so that another program can read it.
    lines = [json.loads(line) for line in out.splitlines()]
    assert [(line["op"], line["schema"], line["table"], line["new"]) for line in lines] == [
        ("insert", "public", "items", {"id": 1, "name": "a"}),
        ("insert", "public", "items", {"id": 2, "name": None}),
        ("update", "public", "items", {"id": 2, "name": "ü"}),
        ("delete", "public", "items", None),
    ]
    assert "the destination holds" in err
    assert "4 changes delivered" in err
    assert "metrics at" not in err
    assert "Traceback" not in err


def test_sigterm_stops_everything_in_order(shop: PipelineUnderTest) -> None:
    out = shop.folder / "out"
    shop.configure(destination={"type": "files", "path": str(out), "format": "ndjson"})
    shop.also(metrics={"listen": 0, "report": {"format": "json"}})
    # It makes publication and slot by itself.
    process = start(shop)
    try:
        wait_until(
            lambda: (
                process.poll() is not None
                or (shop.log.capture_report() or {}).get("state") == "streaming"
            ),
            "capture streams",
            timeout=120,
        )
        shop.execute("INSERT INTO items VALUES (1, 'a')")
        wait_until(
            lambda: process.poll() is not None or list_files(out, shop.name, "public.items"),
            "the change is delivered",
            timeout=120,
        )
        assert process.poll() is None
        family = psutil.Process(process.pid).children(recursive=True)
        names = {child.name() for child in family}
        assert any("java" in name for name in names)
        assert (shop.log.capture_report() or {})["pid"] in {child.pid for child in family}

        process.send_signal(signal.SIGTERM)
        written, err = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode == 0, err
    assert "stopped; the destination holds" in err
    assert re.search(r"metrics at http://127\.0\.0\.1:\d+/metrics", err)
    reports = [json.loads(line) for line in written.splitlines()]
    assert reports[-1]["totals"]["delivered"] == reports[-1]["totals"]["received"] == 1
    gone, alive = psutil.wait_procs(family, timeout=120)
    assert not alive
    assert len(gone) == len(family)
    assert not shop.slot().active
    assert (shop.log.capture_report() or {})["state"] == "stopped"


def test_a_wrong_source_is_a_message_and_not_a_traceback(shop: PipelineUnderTest) -> None:
    shop.url = shop.url.rpartition("/")[0] + "/no_such_database"
    shop.configure()
    process = start(shop)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "the server has no such database" in err
    assert "What to do" in err
    assert "Traceback" not in out + err
