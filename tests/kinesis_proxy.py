"""A proxy in front of moto's server, through which calls and single records fail as told."""

from __future__ import annotations

import json
import random
import sys
import threading
from collections import Counter
from contextlib import suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

_PUT = "Kinesis_20131202.PutRecords"
_THROTTLED = "ProvisionedThroughputExceededException"
_JSON = "application/x-amz-json-1.1"


class Faults(NamedTuple):
    """Shares from 0 to 1, of PutRecords only."""

    records: float = 0.0
    """Of records that fail while others of the same call arrive."""
    calls: float = 0.0
    """Of calls that are throttled as a whole."""
    answers: float = 0.0
    """Of answers that are lost, the records being there."""
    connections: float = 0.0
    """Of calls whose connection breaks before anything is sent on."""


class FaultyProxy:
    """Listens on a free port of 127.0.0.1 until ``close``."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._faults = Faults()
        self._random = random.Random(0)
        # moto gives two records that come at once the same sequence number, and keeps one.
        self._one_at_a_time = threading.Lock()
        self.counts: Counter[str] = Counter()
        """What happened: calls, records, failed, throttled, lost, broken, doubled (calls with two
        records of one partition key)."""
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # An answer is two writes; without this the second waits 40 ms for the first.
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = {name: value for name, value in self.headers.items() if name != "Host"}
                with proxy._one_at_a_time:
                    answer = proxy._answer(self.path, headers, body)
                if answer is None:
                    self.close_connection = True
                    return
                status, kind, content = answer
                with suppress(OSError):  # the caller may be dead
                    self.send_response(status)
                    self.send_header("Content-Type", kind)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.05])
        self._thread.start()

    def set(self, faults: Faults, seed: int = 0) -> None:
        """From now on."""
        with self._one_at_a_time:
            self._faults = faults
            self._random = random.Random(seed)
            self.counts.clear()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _happens(self, share: float) -> bool:
        return self._random.random() < share

    def _answer(
        self, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, str, bytes] | None:
        """None where the connection breaks."""
        if headers.get("X-Amz-Target") != _PUT:
            return self._forward(path, headers, body)
        self.counts["calls"] += 1
        if self._happens(self._faults.connections):
            self.counts["broken"] += 1
            return None
        if self._happens(self._faults.calls):
            self.counts["throttled"] += 1
            error = {"__type": _THROTTLED, "message": "slow down"}
            return 400, _JSON, json.dumps(error).encode()
        answer = self._put(path, headers, json.loads(body))
        if self._happens(self._faults.answers):
            self.counts["lost"] += 1
            return None
        return answer

    def _put(
        self, path: str, headers: dict[str, str], call: dict[str, Any]
    ) -> tuple[int, str, bytes]:
        """Sends on the records that do not fail, and tells of all of them."""
        records = call["Records"]
        keys = {record["PartitionKey"] for record in records}
        self.counts["doubled"] += len(keys) < len(records)
        self.counts["records"] += len(records)
        failing = [self._happens(self._faults.records) for _ in records]
        self.counts["failed"] += sum(failing)
        passing = [r for r, fails in zip(records, failing, strict=True) if not fails]
        if not any(failing):
            return self._forward(path, headers, json.dumps(call).encode())
        done: list[dict[str, Any]] = []
        if passing:
            part = json.dumps({**call, "Records": passing}).encode()
            status, kind, content = self._forward(path, headers, part)
            if status != 200:
                return status, kind, content
            done = json.loads(content)["Records"]
        arrived = iter(done)
        told = [
            {"ErrorCode": _THROTTLED, "ErrorMessage": "slow down"} if fails else next(arrived)
            for fails in failing
        ]
        answer = {"FailedRecordCount": sum(failing), "Records": told}
        return 200, _JSON, json.dumps(answer).encode()

    def _forward(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, str, bytes]:
        server = HTTPConnection("127.0.0.1", self._server_port, timeout=60)
        try:
            server.request("POST", path, body, {**headers, "Content-Length": str(len(body))})
            answer = server.getresponse()
            return answer.status, answer.getheader("Content-Type") or _JSON, answer.read()
        finally:
            server.close()


class _Server(ThreadingHTTPServer):
    # Clients keep their connections; the threads that wait on them end with the process.
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A caller that was killed is what the tests are about.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)
