"""Servers of a test's own: on loopback, each client in a thread, and free ports for others."""

from __future__ import annotations

import random
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress


class LoopbackServer(ABC):
    """Serves from the moment it is made until ``close``, which ends every connection."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @abstractmethod
    def _serve(self, client: socket.socket) -> None:
        """Talk to one client until it goes."""

    def close(self) -> None:
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join()

    def _start(self, target: Callable[..., None], *args: socket.socket) -> None:
        thread = threading.Thread(target=target, args=args)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                self._start(self._serve, client)


def pass_on(source: socket.socket, target: socket.socket) -> None:
    """Send what comes from one to the other, until it ends."""
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def free_ports(count: int) -> list[int]:
    """Of 127.0.0.1, for servers of which a port has to be told.

    By chance, and below those that the system gives to clients: tests run side by side, and none of
    their connections may take a port between this look and the server's start.
    """
    probes: list[socket.socket] = []
    while len(probes) < count:
        with suppress(OSError):
            probes.append(socket.create_server(("127.0.0.1", random.randrange(20000, 32000))))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports
