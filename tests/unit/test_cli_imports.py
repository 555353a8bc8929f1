"""Commands that look, and do not move rows, load nothing heavy."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from penstock.config.load import DESTINATIONS
from tests.documented import destination_example
from tests.heavy_modules import HEAVY, SHOW_HEAVY

SHIPPED = distribution("penstock").entry_points.select(group=DESTINATIONS)
# Reference members are for tests: no command reads a file with one.
KINDS = sorted(entry.name for entry in SHIPPED if not entry.name.startswith("memory-"))


def loaded(code: str) -> list[str]:
    """Which heavy modules a new process has loaded once it has run the code."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{SHOW_HEAVY}"], capture_output=True, text=True, check=True
    )
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_list_is_of_modules_that_exist() -> None:
    assert loaded("import pyarrow") == ["numpy", "pyarrow"]


@pytest.mark.parametrize("option", ["--help", "--version", "status --help", "tables list --help"])
def test_help_and_version(option: str) -> None:
    code = (
        "from penstock.cli.main import main\n"
        f"try:\n    main({option.split()!r})\nexcept SystemExit as end:\n    assert end.code == 0"
    )
    assert loaded(code) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_pipeline_file(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WAREHOUSE_URL", "STORE_URL"):
        monkeypatch.setenv(name, "postgresql://localhost/warehouse")
    for name in ("SEARCH_PASSWORD", "CLICKHOUSE_PASSWORD"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("PENSTOCK_WEBHOOKS_KEY", base64.urlsafe_b64encode(bytes(32)).decode())
    monkeypatch.setenv("PENSTOCK_WEBHOOKS_TOKEN", "a token of some length")
    file = tmp_path / "shop.yaml"
    document = {
        "name": "shop",
        "source": {"url": "postgresql://localhost/shop"},
        "destination": destination_example(kind),
    }
    file.write_text(json.dumps(document))
    code = (
        "from pathlib import Path\nfrom penstock.config import load_pipeline\n"
        f"load_pipeline(Path({str(file)!r}))"
    )
    assert loaded(code) == []


def test_heavy_packages_are_looked_for() -> None:
    assert "pyspark" in HEAVY
    assert len(KINDS) >= 7
