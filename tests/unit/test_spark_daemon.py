"""What a Python worker of Spark pays after each task."""

from __future__ import annotations

import gc
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest

from penstock.spark.daemon import answering_at_once, freezing_modules


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


_LEFT_BY_TASKS = """
import socket
import sys

import numpy as np

from penstock.spark import daemon

sizes, soon, much = sys.argv[1].split(","), sys.argv[2] == "soon", int(sys.argv[3])
daemon._IDLE_SECONDS = 0.0
daemon._MUCH_BYTES = much
# Less than what the C library takes from the system by itself, and gives back when it is freed.
PIECE = 96_000
kept, found = [], []


def task(_connection, pieces):
    taken = [np.ones(PIECE // 8) for _ in range(pieces)]
    found.append(daemon.resident_bytes())
    # What lies between what is kept stays with the C library.
    kept.extend(taken[::50])
    return pieces


run = daemon.giving_back(task)
one, other = socket.socketpair()
if soon:
    other.send(b"the next task")
for size in map(int, sizes):
    assert run(one, size) == size
run(one, 0)
peak, after = found[-2:]
print(peak - after > 400 * PIECE)
"""


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
    sizes: Sequence[int], soon: bool, much: int, is_given_back: bool
) -> None:
    """In a process of its own: what other tests freed would be taken first."""
    arguments = [",".join(map(str, sizes)), "soon" if soon else "later", str(much)]
    found = subprocess.run(
        [sys.executable, "-c", _LEFT_BY_TASKS, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == [str(is_given_back)]


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
