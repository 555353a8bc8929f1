"""Names that others chose, where a person reads them: they act on no terminal, are no markup, and
write no lines that look like ours.
"""

from __future__ import annotations

import io
import json
import logging

import pytest
from rich.console import Console

from penstock.cli import copy_bars, terminal, verify
from penstock.cli.logs import shown_logs
from penstock.model.shown_text import shown_line, shown_lines, shown_text
from penstock.pipeline.copy.copy_progress import CopyView
from penstock.source.capture.say import say as capture_says
from penstock.verify.report import TableComparison, VerifyReport

NAME = "[/x]\x1b[2J\r\u202etest\nError: pipeline shop: all is lost"
SHOWN = "[/x]\\u001b[2J\\u000d\\u202etest"


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What commands print there."""
    out = io.StringIO()
    made = Console(file=out, force_terminal=True, color_system=None, width=200, highlight=False)
    for module in (copy_bars, verify):
        monkeypatch.setattr(module, "console", lambda **_: made, raising=False)
    monkeypatch.setattr(copy_bars, "Console", lambda **_: made)
    monkeypatch.setattr(verify, "say", terminal.say)
    return out


def test_what_a_terminal_would_act_on_is_an_escape() -> None:
    assert shown_text(NAME) == f"{SHOWN}\nError: pipeline shop: all is lost"
    assert shown_line(NAME) == f"{SHOWN}\\nError: pipeline shop: all is lost"
    assert shown_lines(NAME) == f"{SHOWN}\n    Error: pipeline shop: all is lost"
    assert json.loads(shown_text(json.dumps(NAME, ensure_ascii=False))) == NAME
    assert shown_line("größe „ü“ 漢字 👩‍👩‍👧") == "größe „ü“ 漢字 👩‍👩‍👧"


def test_lines_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    with shown_logs("shop", lines.append):
        logging.getLogger("penstock.cli.run").info("table %s is ready", NAME)
    capture_says(NAME)
    lines += capsys.readouterr().err.splitlines()
    assert "\n".join(lines).splitlines() == [
        f"pipeline shop: table {SHOWN}",
        "    Error: pipeline shop: all is lost is ready",
        f"capture: {SHOWN}",
        "    Error: pipeline shop: all is lost",
    ]


def test_errors_and_lines_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.show_error(f"table {NAME}", "")
    terminal.say(f"table {NAME}")
    printed = capsys.readouterr()
    assert printed.err.splitlines() == [
        f"Error: table {SHOWN}",
        "    Error: pipeline shop: all is lost",
    ]
    assert printed.out.splitlines()[0] == f"table {SHOWN}"


def test_bars_of_copies(on_terminal: io.StringIO) -> None:
    with copy_bars.CopyBars() as bars:
        bars([CopyView(NAME, "data_sync", 1, 2, 10, 100, 200, 1.0)])
    assert f"{SHOWN}\\nError" in on_terminal.getvalue()


def test_tables_of_verify(on_terminal: io.StringIO) -> None:
    report = VerifyReport("shop", 1, False, (TableComparison(NAME, NAME),), ())
    verify.show_report(report)
    assert SHOWN in on_terminal.getvalue()
