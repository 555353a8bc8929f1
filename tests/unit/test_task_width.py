"""Into how many tasks a job is cut, by the settings of the session."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.spark.task_width import TaskWidth


class _Conf(dict[str, str]):
    def contains(self, key: str) -> bool:
        return key in self


DYNAMIC = {"spark.dynamicAllocation.enabled": "true"}
MOST = {**DYNAMIC, "spark.dynamicAllocation.maxExecutors": "6"}


@pytest.mark.parametrize(
    ("settings", "width"),
    [
        ({}, 2),
        ({"spark.dynamicAllocation.enabled": "false"}, 2),
        (DYNAMIC, 8),
        (MOST, 6),
        ({**MOST, "spark.executor.cores": "4"}, 24),
        ({**MOST, "spark.default.parallelism": "2"}, 2),
    ],
)
def test_it_is_what_executors_may_become(settings: dict[str, str], width: int) -> None:
    context: Any = SimpleNamespace(defaultParallelism=2, getConf=lambda: _Conf(settings))
    assert TaskWidth(context).now() == width
