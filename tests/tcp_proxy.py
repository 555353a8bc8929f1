"""A network that fails: a proxy on loopback whose connections a test cuts, silences or refuses."""

from __future__ import annotations

import selectors
import socket
import struct
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

_READ_BYTES = 256 * 1024


class TcpProxy:
    """Listens on a free port of 127.0.0.1 and passes bytes to and from ``target_port``.

    One thread does it all. What was read and could not be passed on yet is kept and keeps its
    order, and while there is any, no more is read from that side: a slow reader slows the writer,
    as it does without a proxy.
    """

    def __init__(self, target_port: int) -> None:
        self._target = ("127.0.0.1", target_port)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = socket.socketpair()
        self._lock = threading.Lock()
        self._pairs: list[_Pair] = []
        self._silent_until = 0.0
        self._refusing = False
        self._closed = False
        self.accepted = 0
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="tcp proxy", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def connections(self) -> int:
        """How many are open now."""
        with self._lock:
            return len(self._pairs)

    def cut(self) -> int:
        """Reset every connection, at both ends; how many there were. New ones are taken."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
            for pair in pairs:
                self._drop(pair)
        return len(pairs)

    def silence(self, seconds: float) -> None:
        """Pass nothing on for that long; all connections stay open, and new ones are taken."""
        with self._lock:
            self._silent_until = time.monotonic() + seconds
        self._wake()

    def swallow(self) -> None:
        """Pass on nothing more of the connections that are open, though both ends stay connected
        for good: what a machine on the way leaves that has lost its memory. New ones are silent
        until ``accept``.
        """
        with self._lock:
            for pair in self._pairs:
                for each in pair.sockets:
                    with suppress(KeyError, ValueError):
                        self._selector.unregister(each)
            self._silent_until = float("inf")
        self._wake()

    def refuse(self) -> None:
        """Reset every connection, and each that comes, until ``accept``."""
        self._refusing = True
        self.cut()

    def accept(self) -> None:
        """Take connections again, and pass on at once what a silence held back."""
        self._refusing = False
        with self._lock:
            self._silent_until = 0.0
        self._wake()

    def close(self) -> None:
        self._closed = True
        self._wake()
        self._thread.join()
        self.cut()
        self._selector.close()
        for each in (self._listener, self._wake_read, self._wake_write):
            each.close()

    def _wake(self) -> None:
        self._wake_write.send(b"x")

    def _run(self) -> None:
        while not self._closed:
            silence = self._silent_until - time.monotonic()
            if silence > 0:
                # Nobody's bytes are read meanwhile; only what a test says is heard.
                with selectors.DefaultSelector() as only_us:
                    only_us.register(self._wake_read, selectors.EVENT_READ)
                    if only_us.select(min(silence, 60)):
                        self._wake_read.recv(4096)
                continue
            for key, _events in self._selector.select(1.0):
                with self._lock:
                    # Looked at under the lock: nothing passes once silence() has returned.
                    if key.fileobj is self._wake_read or self._silent_until <= time.monotonic():
                        self._serve(key)

    def _serve(self, key: selectors.SelectorKey) -> None:
        if key.fileobj is self._wake_read:
            self._wake_read.recv(4096)
        elif key.fileobj is self._listener:
            with suppress(OSError):
                self._take(self._listener.accept()[0])
        elif key.data in self._pairs:
            pair: _Pair = key.data
            try:
                ended = not pair.move(self._selector)
            except OSError:
                ended = True
            if ended:
                self._pairs.remove(pair)
                self._drop(pair, reset=False)

    def _take(self, client: socket.socket) -> None:
        self.accepted += 1
        if self._refusing:
            _close(client, reset=True)
            return
        try:
            server = socket.create_connection(self._target, timeout=5)
        except OSError:
            # Nothing listens there: the client sees a connection that ends at once.
            _close(client, reset=True)
            return
        pair = _Pair(client, server)
        self._pairs.append(pair)
        pair.register(self._selector)

    def _drop(self, pair: _Pair, *, reset: bool = True) -> None:
        for each in pair.sockets:
            with suppress(KeyError, ValueError):
                self._selector.unregister(each)
            _close(each, reset=reset)


class _Pair:
    """Two sockets, and for each what waits to be written to it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.sockets = (client, server)
        self._waiting = [b"", b""]
        # A side that has said its last word; the other one may still speak.
        self._ended = [False, False]
        for each in self.sockets:
            each.setblocking(False)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def register(self, selector: selectors.BaseSelector) -> None:
        for each in self.sockets:
            selector.register(each, selectors.EVENT_READ, self)

    def move(self, selector: selectors.BaseSelector) -> bool:
        """Pass on what can be passed on without waiting; False once both sides have ended."""
        for source in (0, 1):
            self._pass_on(source)
        for each in (0, 1):
            self._watch(selector, each)
        return not all(self._ended) or any(self._waiting)

    def _pass_on(self, source: int) -> None:
        target = 1 - source
        if not self._waiting[target] and not self._ended[source]:
            try:
                data = self.sockets[source].recv(_READ_BYTES)
            except BlockingIOError:
                return
            self._ended[source] = not data
            self._waiting[target] = data
        if self._waiting[target]:
            with suppress(BlockingIOError):
                sent = self.sockets[target].send(self._waiting[target])
                self._waiting[target] = self._waiting[target][sent:]
        if self._ended[source] and not self._waiting[target]:
            with suppress(OSError):
                self.sockets[target].shutdown(socket.SHUT_WR)

    def _watch(self, selector: selectors.BaseSelector, each: int) -> None:
        """Wait for bytes of this side where there is room for them, and for room at this side."""
        events = 0
        if not self._waiting[1 - each] and not self._ended[each]:
            events |= selectors.EVENT_READ
        if self._waiting[each]:
            events |= selectors.EVENT_WRITE
        here = self.sockets[each]
        registered = here in selector.get_map()
        if events and registered:
            selector.modify(here, events, self)
        elif events:
            selector.register(here, events, self)
        elif registered:
            selector.unregister(here)


def _close(each: socket.socket, *, reset: bool) -> None:
    with suppress(OSError):
        if reset:
            # Without lingering, close sends RST and drops what was not sent.
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        each.close()
