"""A proxy in front of a search server, through which requests and single documents fail as told."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self

_JSON = "application/json"
_ERROR = {"type": "rejected_execution_exception", "reason": "rejected execution of bulk"}


class Faults(NamedTuple):
    """Shares from 0 to 1."""

    documents: float = 0.0
    """Of documents of a bulk request that are rejected while others are written."""
    requests: float = 0.0
    """Of requests that are rejected as a whole, of whatever kind."""
    answers: float = 0.0
    """Of answers that are lost, what was asked for being done."""
    connections: float = 0.0
    """Of requests whose connection breaks before anything is sent on."""
    largest: int = 0
    """A request with more bytes is too large; 0: none is."""


class SearchProxy:
    """Listens on a free port of 127.0.0.1. Inside ``with`` it runs."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._faults = Faults()
        self._random = random.Random(0)
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        """What happened: requests, rejected, lost, broken, too_large, documents."""
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def handle(self) -> None:
                with suppress(ConnectionError):  # the caller was killed
                    super().handle()

            def _pass(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                kind = self.headers.get("Content-Type") or _JSON
                answer = proxy._answer(self.command, self.path, kind, body)
                if answer is None:
                    self.close_connection = True
                    return
                status, content = answer
                with suppress(OSError):  # the caller may be dead
                    self.send_response(status)
                    self.send_header("Content-Type", _JSON)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_DELETE = _pass  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.05])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def set(self, faults: Faults, seed: int = 0) -> None:
        """From now on."""
        with self._lock:
            self._faults = faults
            self._random = random.Random(seed)
            self.counts.clear()

    def _happens(self, share: float, name: str) -> bool:
        with self._lock:
            happens = self._random.random() < share
            self.counts[name] += happens
            return happens

    def _answer(self, method: str, path: str, kind: str, body: bytes) -> tuple[int, bytes] | None:
        """None where the connection breaks."""
        faults = self._faults
        self._happens(1.0, "requests")
        if self._happens(faults.connections, "broken"):
            return None
        if faults.largest and len(body) > faults.largest:
            self._happens(1.0, "too_large")
            return 413, b"too large"
        if self._happens(faults.requests, "rejected"):
            return 429, json.dumps({"error": _ERROR, "status": 429}).encode()
        is_bulk = "/_bulk" in path and faults.documents > 0
        answer = (self._bulk if is_bulk else self._forward)(method, path, kind, body)
        return None if self._happens(faults.answers, "lost") else answer

    def _bulk(self, method: str, path: str, kind: str, body: bytes) -> tuple[int, bytes] | None:
        """Sends on the documents that are not rejected, and tells of all of them."""
        lines = iter(body.splitlines(keepends=True))
        entries = [line if b'"delete"' in line[:10] else line + next(lines) for line in lines]
        fails = [self._happens(self._faults.documents, "documents") for _ in entries]
        kept = [entry for entry, is_out in zip(entries, fails, strict=True) if not is_out]
        told: dict[str, Any] = {"errors": True, "items": []}
        if kept:
            answer = self._forward(method, path, kind, b"".join(kept))
            if answer is None or answer[0] != 200:
                return answer
            told = json.loads(answer[1])
        arrived = iter(told["items"])
        items = [
            {"index": {"status": 429, "error": _ERROR}} if is_out else next(arrived)
            for is_out in fails
        ]
        return 200, json.dumps({**told, "items": items}).encode()

    def _forward(self, method: str, path: str, kind: str, body: bytes) -> tuple[int, bytes] | None:
        connection = HTTPConnection("127.0.0.1", self._server_port)
        try:
            connection.request(method, path, body, {"Content-Type": kind})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, HTTPException):
            # The server is away.
            return None
        finally:
            connection.close()
