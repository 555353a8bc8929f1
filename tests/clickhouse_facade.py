"""The engine of ClickHouse (chdb, in this process) behind as much of its HTTP interface as the real
client clickhouse-connect needs. Run as ``python -m tests.clickhouse_facade FOLDER PORT``.

What is real: the SQL, the tables and their merges, types, formats, deduplication, errors with their
codes. What is not: users and rights, replicas, queries side by side (one at a time here), and how a
body reaches ``input()``: it becomes a file that ``file()`` reads.
"""

from __future__ import annotations

import re
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from chdb.session import Session

_OF_HTTP = frozenset(
    {
        *("query", "database", "default_format", "session_id", "query_id", "wait_end_of_query"),
        *(
            "client_protocol_version",
            "enable_http_compression",
            "http_headers_progress_interval_ms",
        ),
        *("send_progress_in_http_headers", "cancel_http_readonly_queries_on_client_close"),
        *("session_timeout", "session_check", "compress", "decompress", "buffer_size", "role"),
    }
)
_INPUT = re.compile(r"\binput\('((?:[^'\\]|\\.)*)'\)", re.DOTALL)
_FORMAT = re.compile(r"\s*FORMAT\s+(\w+)\s*$")
_CODE = re.compile(r"Code: (\d+)")


class Engine:
    """One query at a time: an engine in a process has one session."""

    def __init__(self, folder: Path) -> None:
        self._session: Any = Session(str(folder))  # type: ignore[no-untyped-call]
        self._lock = threading.Lock()
        self._set: dict[str, str] = {}

    def run(self, query: str, body: bytes, settings: dict[str, str]) -> bytes:
        with self._lock, tempfile.NamedTemporaryFile() as file:
            for name, value in settings.items():
                if self._set.get(name) != value:
                    self._session.query(f"SET {name} = '{value}'")
                    self._set[name] = value
            if body:
                file.write(body)
                file.flush()
                query = _from_file(query, file.name)
            found: bytes = self._session.query(query, "TabSeparated").bytes()
            return found


def _from_file(query: str, path: str) -> str:
    """A query whose data came with it, as one that reads them from a file."""
    kind = _FORMAT.search(query)
    if kind is None:
        raise ValueError("Code: 73. DB::Exception: the facade wants a FORMAT for a body")
    head = query[: kind.start()]
    if _INPUT.search(head):
        return _INPUT.sub(lambda found: f"file('{path}', '{kind[1]}', '{found[1]}')", head)
    return f"{head} FROM INFILE '{path}' FORMAT {kind[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    engine: Engine

    def do_GET(self) -> None:
        if urlsplit(self.path).path == "/ping":
            self._answer(200, b"Ok.\n")
            return
        self.do_POST()

    def do_POST(self) -> None:
        asked = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        body = self._body()
        query = asked.get("query", "")
        if not query:
            query, body = body.decode(), b""
        settings = {name: value for name, value in asked.items() if name not in _OF_HTTP}
        try:
            self._answer(200, self.engine.run(query, body, settings))
        except Exception as error:
            code = _CODE.search(str(error))
            number = code[1] if code else "1001"
            self._answer(500, str(error).encode(), {"X-ClickHouse-Exception-Code": number})

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *about: Any) -> None:
        """Nothing: the tests read what is asked from elsewhere."""


def main() -> None:
    Handler.engine = Engine(Path(sys.argv[1]))
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()


if __name__ == "__main__":
    main()
