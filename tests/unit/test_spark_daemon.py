"""What a Python worker of Spark pays after each task."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest

from penstock.spark.daemon import freezing_modules


@pytest.fixture(autouse=True)
def _thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_what_a_task_imports_is_never_visited_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "this_task_only", raising=False)

    def task(code: int) -> int:
        monkeypatch.setitem(sys.modules, "this_task_only", gc)
        return code

    run = freezing_modules(task)
    assert run(3) == 3
    frozen = gc.get_freeze_count()
    assert frozen > 0
    kept = [[] for _ in range(100)]  # type: ignore[var-annotated]
    assert run(0) == 0
    # What was frozen may have gone since: others run in this process.
    assert gc.get_freeze_count() <= frozen, "the second task imported nothing"
    assert len(kept) == 100
