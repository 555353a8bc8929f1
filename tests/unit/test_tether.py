"""The process of a destination ends with the command that started it, however that ends."""

from __future__ import annotations

import socket
import subprocess
import sys

from penstock.model.errors import DestinationError
from penstock.pipeline.many.tether import Tether

# Ends in order when asked; or, where its main thread hangs, by force.
CHILD = """\
import sys, threading
from penstock.pipeline.many import tether
tether.END_SECONDS = float(sys.argv[2])
asked = threading.Event()
tie = tether.Tether(int(sys.argv[1]))
tie.hold(asked.set)
tie.say_metrics("http://127.0.0.1:1")
asked.wait()
if sys.argv[3] == "hangs":
    threading.Event().wait()
"""


def start(seconds: float, how: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(theirs.fileno()), str(seconds), how],
            pass_fds=[theirs.fileno()],
        )
    return process, ours


def test_it_ends_in_order() -> None:
    process, ours = start(600, "ends")
    with ours:
        assert ours.recv(1024) == b'{"metrics": "http://127.0.0.1:1"}\n'
        assert process.poll() is None
    # As when the other process is killed: its end of the socket is closed.
    assert process.wait(60) == 0


def test_one_that_hangs_ends_all_the_same() -> None:
    process, ours = start(0.1, "hangs")
    with ours:
        assert ours.recv(1024)
    assert process.wait(60) == 1


def test_why_it_gave_up_is_told() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        tie = Tether(theirs.detach())
        tie.say_failed(DestinationError("no room", remedy="make some"))
        assert b"no room" in ours.recv(4096)
    tie.say_failed(DestinationError("nobody listens"))  # and nothing happens
