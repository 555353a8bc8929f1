"""What a command shows of its log, whatever others do with Python's logging meanwhile."""

from __future__ import annotations

import logging

import pytest

from penstock.cli.logs import shown_logs


def test_an_exception_that_a_library_logs_at_the_root_is_not_for_people(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    # As in a process of its own; pytest has handlers there.
    monkeypatch.setattr(root, "handlers", [])
    lines: list[str] = []
    with shown_logs("shop", lines.append):
        try:
            raise ConnectionResetError
        except ConnectionResetError:
            logging.exception("Exception while sending command.")  # noqa: LOG015 (as py4j does)
        logging.getLogger("penstock.cli.run").info("stopped")
    assert root.handlers == []
    assert lines == ["pipeline shop: stopped"]
    assert capsys.readouterr() == ("", "")
