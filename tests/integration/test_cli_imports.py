"""What commands that only look load, against a real database."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from penstock.changelog.changelog import LogIdentity
from penstock.store import pipeline_store
from tests.fix_pipeline import PipelineUnderTest
from tests.heavy_modules import SHOW_HEAVY


@pytest.mark.parametrize("kind", ["discard", "files", "kafka", "postgres"])
def test_status_and_tables_list(pipeline: PipelineUnderTest, target_url: str, kind: str) -> None:
    options: dict[str, dict[str, Any]] = {
        "discard": {},
        "files": {"path": str(pipeline.folder / "out")},
        "kafka": {"brokers": "localhost:9092"},
        "postgres": {"url": target_url},
    }
    pipeline.execute("CREATE TABLE items (id int PRIMARY KEY)")
    pipeline.configure(destination={"type": kind, **options[kind]})
    pipeline.subscribe()
    pipeline.log.claim_identity(LogIdentity("1", 1, pipeline.name, "slot"))
    pipeline.log.set_capture_report({"state": "stopped"})
    with pipeline_store(pipeline.config) as store:
        store.open()
    for words in (["status"], ["tables", "list"]):
        code = (
            "from penstock.cli.main import main\ntry:\n"
            f"    main({[*words, str(pipeline.file)]!r})\n"
            f"except SystemExit as end:\n    assert end.code == 0, end.code\n{SHOW_HEAVY}"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1]) == []
        assert "unknown" not in done.stdout
