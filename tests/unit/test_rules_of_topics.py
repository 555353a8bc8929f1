"""Rules of a pipeline that reads topics: nobody looks at its store in the place of a source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.config import load_pipeline
from penstock.spark import preflight


@pytest.fixture
def file(tmp_path: Path) -> Path:
    content: dict[str, Any] = {
        "name": "shop",
        "source": {
            "type": "kafka",
            "brokers": "localhost:1",
            "topics": ["shop.*"],
            "schema_topic": "shop",
        },
        "store": {"url": "postgresql://localhost:1/store"},
        "change_log": {"path": str(tmp_path / "log")},
        "destination": {"type": "stdout"},
        "transform": {"key": "0123456789abcdef" * 3, "rules": [{"table": "*.*", "keep": ["*"]}]},
    }
    path = tmp_path / "shop.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.mark.parametrize("command", ["check", "preview", "suggest"])
def test_commands_about_a_catalogue_say_that_there_is_none(file: Path, command: str) -> None:
    ended = CliRunner().invoke(app, ["transform", command, str(file)])
    assert ended.exit_code
    assert f"`penstock transform {command}` is for a Postgres source" in str(ended.exception)


def test_the_check_of_all_says_when_rules_are_checked(file: Path) -> None:
    (found,) = preflight._rules(load_pipeline(file))
    assert (found.status, found.name) == ("warning", "transform")
    assert "checked at every start" in found.detail
