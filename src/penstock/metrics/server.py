"""/metrics for Prometheus, /summary for `penstock serve`, /health and /ready for whoever watches
over the process.
"""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Protocol, Self

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from penstock.config.metrics_config import ListenAddress
from penstock.metrics.health import Answer
from penstock.model.errors import ConfigError

_REQUEST_SECONDS = 10.0


class Shown(Protocol):
    """What is to be seen of a run."""

    def exposition(self) -> bytes: ...

    def summary(self) -> dict[str, Any]: ...

    def is_healthy(self) -> Answer: ...

    def is_ready(self) -> Answer: ...


class MetricsServer:
    """Listens from the moment it is made, and answers while it is entered."""

    def __init__(self, metrics: Shown, address: ListenAddress) -> None:
        """Raises ConfigError where the address cannot be had."""
        try:
            self._server = _Server(metrics, address)
        except OSError as error:
            raise ConfigError(
                f"metrics.listen: {address} cannot be listened on: {error.strerror or error}",
                remedy="choose another port (0 takes one that is free), or turn it off with "
                "metrics: {listen: false}",
            ) from None
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="penstock-metrics", daemon=True
        )

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{ListenAddress(str(host), int(port))}"

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
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A client that hangs keeps nobody waiting at the end.
    block_on_close = False

    def __init__(self, metrics: Shown, address: ListenAddress) -> None:
        self.metrics = metrics
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        super().__init__((address.host, address.port), _Handler)

    def server_bind(self) -> None:
        # Without the look-up of our own name that HTTPServer makes, which may take seconds.
        super(ThreadingHTTPServer, self).server_bind()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _REQUEST_SECONDS

    def do_GET(self) -> None:
        path, metrics = self.path.partition("?")[0], self.server.metrics
        if path == "/metrics":
            self._send(200, CONTENT_TYPE_PLAIN_0_0_4, metrics.exposition())
        elif path == "/summary":
            self._answer(Answer(True, metrics.summary()))
        elif path == "/health":
            self._answer(metrics.is_healthy())
        elif path == "/ready":
            self._answer(metrics.is_ready())
        else:
            self._send(404, "text/plain", b"/metrics, /summary, /health and /ready are here\n")

    def _answer(self, answer: Answer) -> None:
        body = json.dumps(answer.body).encode() + b"\n"
        self._send(200 if answer.ok else 503, "application/json", body)

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Who asks how often is not for the pipeline's output."""
