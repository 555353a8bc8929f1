"""Requests to a search server that does not answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from penstock.destination.search.client import SearchClient
from penstock.destination.search.options import SearchOptions
from penstock.model.errors import DestinationUnavailable


class Silent:
    """Leaves the first ``count`` requests without an answer."""

    def __init__(self, count: int) -> None:
        self.asked = 0
        self.count = count
        self.over = threading.Event()

    @contextmanager
    def serving(self) -> Iterator[str]:
        silent = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                silent.asked += 1
                if silent.asked <= silent.count:
                    silent.over.wait(60)
                    return
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_port}"
            finally:
                self.over.set()
                server.shutdown()
                thread.join()


def client(url: str) -> SearchClient:
    return SearchClient(SearchOptions.model_validate({"url": url, "timeout": "200ms"}))


def test_a_request_that_nobody_answered_is_made_again() -> None:
    silent = Silent(1)
    with silent.serving() as url:
        assert client(url).call("GET", "x", doing="asking").is_done
    assert silent.asked == 2


def test_a_server_that_never_answers_is_away() -> None:
    silent = Silent(100)
    with silent.serving() as url, pytest.raises(DestinationUnavailable, match="asking"):
        client(url).call("GET", "x", doing="asking")
    assert silent.asked == 2
