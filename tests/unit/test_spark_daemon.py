"""What a Python worker of Spark pays after each task."""

from __future__ import annotations

import gc
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from penstock.spark import daemon
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


class Tasks:
    """Each takes so many pieces and frees nearly all: the C library keeps what lies between."""

    def __init__(self) -> None:
        self._kept: list[object] = []
        self.peak = 0

    def __call__(self, _connection: socket.socket, pieces: int) -> int:
        taken = [np.ones(_PIECE // 8) for _ in range(pieces)]
        self.peak = resident_bytes()
        self._kept += taken[::50]
        return pieces


# Less than what the C library takes from the system by itself, and gives back when it is freed.
_PIECE = 96_000


@pytest.mark.parametrize(
    ("sizes", "soon", "much", "is_given_back"),
    [
        ([800], False, 2**40, True),
        (range(100, 801, 100), False, 2**40, True),
        ([800], True, 2**40, False),
        ([800], True, 2**25, True),
    ],
    ids=["idle", "idle, after little each time", "busy", "much"],
)
def test_what_tasks_leave_is_given_back(
    sizes: Sequence[int],
    soon: bool,
    much: int,
    is_given_back: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(daemon, "_IDLE_SECONDS", 0.0)
    monkeypatch.setattr(daemon, "_MUCH_BYTES", much)
    tasks = Tasks()
    run = giving_back(tasks)
    one, other = socket.socketpair()
    with one, other:
        if soon:
            other.send(b"the next task")
        for size in sizes:
            assert run(one, size) == size
        peak = tasks.peak
        run(one, 0)
    assert (peak - tasks.peak > 400 * _PIECE) is is_given_back


_TWICE = """
import resource
import numpy as np
from penstock.spark.daemon import keep_freed_memory

keep_freed_memory()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(2_500_000)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_what_was_freed_is_there_for_the_next_one() -> None:
    """In a process of its own, which is left with it."""
    found = subprocess.run(
        [sys.executable, "-c", _TWICE], capture_output=True, text=True, check=True
    )
    first, second = map(int, found.stdout.split())
    assert second < first / 2, "its pages came from the system again"


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
