"""The command line, run in the tests' own process."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from penstock.cli.main import main


class CommandLine:
    """Runs `penstock …` on one pipeline file, and gives exit code, stdout and stderr."""

    def __init__(self, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.file = file
        self._capsys = capsys

    def __call__(self, *command: str, tables: tuple[str, ...] = ()) -> tuple[int, str, str]:
        options = [word for word in command if word.startswith("--")]
        words = [word for word in command if not word.startswith("--")]
        with pytest.raises(SystemExit) as caught:
            main([*words, str(self.file), *tables, *options])
        captured = self._capsys.readouterr()
        assert "hunter2" not in captured.out + captured.err
        assert isinstance(caught.value.code, int)
        return caught.value.code, captured.out, captured.err


@pytest.fixture
def penstock(
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> CommandLine:
    # The server trusts everybody, so a password is sent nowhere; but it must be shown nowhere.
    monkeypatch.setenv("SHOP_URL", database.replace("postgres@", "postgres:hunter2@", 1))
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"name: t_{uuid.uuid4().hex[:12]}\n"
        "source: {url: '${SHOP_URL}'}\n"
        "destination: {type: discard}\n"
    )
    return CommandLine(file, capsys)
