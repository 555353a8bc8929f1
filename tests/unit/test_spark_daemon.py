"""What a Python worker of Spark pays after each task."""

from __future__ import annotations

import gc
import socket
import sys
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from penstock.spark.daemon import (
    answering_at_once,
    freezing_modules,
    giving_back,
    resident_bytes,
)


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


def test_what_a_large_task_took_is_given_back() -> None:
    taken = []

    def task() -> int:
        kept = pa.array(np.ones(8_000_000))
        taken.append(resident_bytes())
        del kept
        return 7

    before = resident_bytes()
    assert giving_back(task)() == 7
    assert taken[0] - before > 40_000_000
    assert resident_bytes() - before < 40_000_000


def test_a_task_s_socket_acknowledges_at_once() -> None:
    def task(connection: socket.socket, more: int) -> int:
        return more + connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)

    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()),
        server.accept()[0] as connection,
    ):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        assert answering_at_once(task)(connection, 1) == 2


def test_a_socket_of_another_kind_is_left_as_it_is() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert answering_at_once(lambda _connection: 3)(one) == 3
