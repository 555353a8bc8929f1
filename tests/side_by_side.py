"""Which tests run in one process when pytest-xdist runs several side by side.

Tests without a group go to whichever process is free. What is expensive to start is started once
by those who need it: a Spark session, a broker, a Kinesis. Crash tests are a group as well: each is
a pipeline with a JVM of its own under load, and two of them would fill the machine.
"""

from __future__ import annotations

import pytest

SPARK = "spark"
KAFKA = "kafka"
KINESIS = "kinesis"
CRASH = "crash"


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the marks in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group(SPARK))
        elif item.path.parent.name == "crash" and item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.xdist_group(CRASH))
