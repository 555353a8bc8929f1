"""The capture of a run, as the run sees it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.changelog.changelog import ChangeLog
from penstock.model.errors import DestinationError, LogUnavailable
from penstock.pipeline.run.pipeline import Pipeline
from tests.run_context import Nobody, run_context


def test_a_report_that_cannot_be_read_at_the_end_hides_nothing(tmp_path: Path) -> None:
    """Where somebody else captures, it is in the log, which may be away by then."""

    class Away(ChangeLog):
        def capture_report(self) -> dict[str, Any] | None:
            raise LogUnavailable("the bucket does not answer")

    context = run_context("items", log=Away(str(tmp_path)))
    record = SimpleNamespace(listen=lambda _told: None, close=lambda: None)
    committer: Any = SimpleNamespace(record=record)
    nobody: Any = Nobody()
    run = Pipeline(context.config, Path("items.yaml"), nobody, captures=False)
    with pytest.raises(DestinationError, match="why it ended"), run._capture(context, committer):
        raise DestinationError("why it ended")
