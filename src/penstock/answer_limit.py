"""A limit on how long somebody waits for an answer of Postgres."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg


@contextmanager
def answered_within(conn: psycopg.Connection[Any], seconds: float) -> Iterator[None]:
    """Cut the connection where the block takes longer, so that it raises OperationalError.

    For short questions alone. Where a proxy stands in between, it goes on to answer keepalives for
    a server that is gone.
    """
    with socket.socket(fileno=os.dup(conn.fileno())) as ours:
        timer = threading.Timer(seconds, _shut, [ours])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def cut(conn: psycopg.Connection[Any]) -> None:
    """Let whoever waits for an answer through the connection, in any thread, wait no longer."""
    with socket.socket(fileno=os.dup(conn.fileno())) as ours:
        _shut(ours)


def _shut(ours: socket.socket) -> None:
    with suppress(OSError):
        ours.shutdown(socket.SHUT_RDWR)
