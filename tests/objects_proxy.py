"""A proxy in front of an object store, which counts requests and lets them fail as told."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

Kind = Literal["PUT", "GET", "HEAD", "DELETE", "LIST"]
PAID: tuple[Kind, ...] = ("PUT", "LIST")
"""What costs twelve times as much as the others; DELETE is free."""


@dataclass(frozen=True)
class Fault:
    """What becomes of one request: it is answered with ``status`` and not passed on; or it is
    passed on and its ``answer_lost``; or it is ``late``: its sender sees a connection that breaks,
    and it is passed on when ``ObjectProxy.deliver_late`` says so.
    """

    status: int = 0
    answer_lost: bool = False
    late: bool = False


Decide = Callable[[Kind, str], Fault | None]
"""By the kind of a request and the path of its object."""


class ObjectProxy:
    """Listens on a free port of 127.0.0.1 until ``close``."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._decide: Decide = lambda _kind, _path: None
        self._lock = threading.Lock()
        self._late: list[tuple[str, str, dict[str, str], bytes]] = []
        self.counts: Counter[str] = Counter()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # An answer is two writes; without this the second waits 40 ms for the first.
            disable_nagle_algorithm = True

            def _any(self) -> None:
                proxy._serve(self)

            do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _any  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.05])
        self._thread.start()

    def set(self, decide: Decide | None = None) -> None:
        """From now on; without ``decide`` nothing fails."""
        self._decide = decide or (lambda _kind, _path: None)

    @property
    def paid(self) -> int:
        """How many of the requests so far cost the full price."""
        return sum(self.counts[kind] for kind in PAID)

    def deliver_late(self) -> list[int]:
        """Let the requests arrive that were late; what the store said to each."""
        with self._lock:
            late, self._late = self._late, []
        return [self._passed_on(*request)[0] for request in late]

    @property
    def late(self) -> int:
        """How many are on their way."""
        with self._lock:
            return len(self._late)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        kind = _kind(handler.command, handler.path)
        request = (handler.command, handler.path, dict(handler.headers.items()), body)
        with self._lock:
            self.counts[kind] += 1
        fault = self._decide(kind, unquote(urlsplit(handler.path).path)) or Fault()
        if fault.late:
            with self._lock:
                self._late.append(request)
        if fault.late or fault.answer_lost:
            if fault.answer_lost:
                self._passed_on(*request)
            handler.close_connection = True
            return
        if fault.status:
            none: dict[str, str] = {}
            status, headers, content = fault.status, none, _error(fault.status)
        else:
            try:
                status, headers, content = self._passed_on(*request)
            except (OSError, HTTPException):
                # The store is gone.
                handler.close_connection = True
                return
        with suppress(OSError):  # the caller may be dead
            handler.send_response(status)
            for name, value in headers.items():
                handler.send_header(name, value)
            if handler.command != "HEAD":
                handler.send_header("Content-Length", str(len(content)))
            handler.end_headers()
            if handler.command != "HEAD":
                handler.wfile.write(content)

    def _passed_on(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """As it came, its Host included, which is signed."""
        connection = HTTPConnection("127.0.0.1", self._server_port, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            content = answer.read()
            dropped = ("transfer-encoding", "connection")
            kept = {n: v for n, v in answer.getheaders() if n.lower() not in dropped}
            if method != "HEAD":
                kept = {n: v for n, v in kept.items() if n.lower() != "content-length"}
            return answer.status, kept, content
        finally:
            connection.close()


def _kind(method: str, path: str) -> Kind:
    if method == "GET" and "list-type" in urlsplit(path).query:
        return "LIST"
    if method == "POST":
        # The only one that is sent: several objects are deleted at once.
        return "DELETE"
    return method  # type: ignore[return-value]


def _error(status: int) -> bytes:
    code = {409: "ConditionalRequestConflict", 412: "PreconditionFailed", 429: "SlowDown"}
    name = code.get(status, "ServiceUnavailable")
    return f"<Error><Code>{name}</Code><Message>as a test wants it</Message></Error>".encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Those of readers that wait.
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away in the middle is no error of the test."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)
