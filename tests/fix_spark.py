"""One Spark session for all tests of a run: starting one takes longer than most tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from penstock.config.models import SparkConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_configure(config: pytest.Config) -> None:
    # PySpark leaves its connections to the JVM to the garbage collector, whenever that comes.
    config.addinivalue_line("filterwarnings", "ignore:unclosed <socket.socket:ResourceWarning")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session as `penstock run` makes it. The 4 lets a lost task be tried again."""
    from penstock.spark.session import end_session, make_session

    session = make_session("tests", SparkConfig(master="local[2, 4]"))
    yield session
    end_session(session)
