"""Which tests run in one process when pytest-xdist runs several side by side.

Tests without a group go to whichever process is free. What is expensive to start is started once
by those who need it: a Spark session, a broker, a Kinesis.
"""

from __future__ import annotations

import pytest

SPARK = "spark"
KAFKA = "kafka"
KINESIS = "kinesis"


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the marks in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group(SPARK))
