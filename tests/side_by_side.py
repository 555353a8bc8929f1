"""Which tests run in one process when pytest-xdist runs several side by side.

Tests without a group go to whichever process is free. What is expensive to start is started once
by those who need it: a Spark session, a broker, a Kinesis. Crash tests are a group as well: each is
a pipeline with a JVM of its own under load, and two of them would fill the machine.
"""

from __future__ import annotations

import pytest

_GROUPS = {"spark": "spark", "kafka_server": "kafka", "kinesis_server": "kinesis"}
"""By what tests ask for. The first that fits counts: a broker beside a session is cheaper than a
second session.
"""
CRASH = "crash"


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the marks in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        asked = getattr(item, "fixturenames", ())
        group = next((group for name, group in _GROUPS.items() if name in asked), None)
        if group is None and item.path.parent.name == "crash" and item.get_closest_marker("slow"):
            group = CRASH
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))
