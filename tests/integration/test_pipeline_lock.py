"""One run of a pipeline at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from penstock.model.errors import SourceError
from penstock.source.postgres.connect import connect
from penstock.source.postgres.pipeline_lock import PipelineLock

NAME = "shop"
Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def conn(database: str) -> Iterator[Connection]:
    with connect(database) as connection:
        yield connection


def test_a_second_holder_is_refused_and_told_who(conn: Connection, database: str) -> None:
    with connect(database, application_name="first run") as first:
        with PipelineLock(first, NAME):
            with (
                pytest.raises(SourceError) as caught,
                PipelineLock(conn, NAME),
            ):
                pytest.fail("two holders of one lock")
            assert f"backend {first.info.backend_pid} " in caught.value.message
            assert "application first run" in caught.value.message
            assert "127.0.0.1" in caught.value.message
            with PipelineLock(conn, "another"), PipelineLock(conn, NAME, what="other"):
                pass
        with PipelineLock(conn, NAME):
            pass


def test_it_goes_with_its_connection(conn: Connection, database: str) -> None:
    with connect(database) as first, PipelineLock(first, NAME):
        conn.execute("SELECT pg_terminate_backend(%s, 30000)", [first.info.backend_pid])
        with PipelineLock(conn, NAME):
            pass
