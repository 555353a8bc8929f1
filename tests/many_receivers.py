"""Many receivers of webhooks on one port, in a process of its own: a sender that is measured
shares no interpreter with them. They verify no signature.

Receivers are told apart by their path, ``/NUMBER``. ``/control/revive`` lets all of them take
events from then on, ``/control/count`` says how many events were taken, and ``/control/taken``
which, when they were made, and when they came.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.http_get import http_get

_TAKEN = b"HTTP/1.1 204 No Content\r\n\r\n"
_REFUSED = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"


@dataclass(frozen=True)
class TakenEvent:
    id: str
    made_at: float
    came_at: float


class ManyReceivers:
    """The process, from outside."""

    def __init__(self, port: int) -> None:
        self.port = port

    def url(self, number: int) -> str:
        return f"http://127.0.0.1:{self.port}/{number}"

    def revive(self) -> None:
        assert http_get(f"http://127.0.0.1:{self.port}/control/revive").status == 200

    def count(self) -> int:
        return int(http_get(f"http://127.0.0.1:{self.port}/control/count").text)

    def taken(self) -> list[TakenEvent]:
        text = http_get(f"http://127.0.0.1:{self.port}/control/taken").text
        return [TakenEvent(*each) for each in json.loads(text)]


@contextmanager
def many_receivers(
    port: int = 0, *, refuse: Sequence[int] = (), hang: Sequence[int] = ()
) -> Iterator[ManyReceivers]:
    """``refuse`` answer 503, and ``hang`` not at all, until they are revived."""
    dead = json.dumps({"refuse": list(refuse), "hang": list(hang)})
    command = [sys.executable, "-m", "tests.many_receivers", str(port), dead]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield ManyReceivers(int(process.stdout.readline()))
        finally:
            process.terminate()
            process.wait(30)


class _Receivers:
    def __init__(self, refuse: Sequence[int], hang: Sequence[int]) -> None:
        self._refuse = {f"/{number}" for number in refuse}
        self._hang = {f"/{number}" for number in hang}
        self._taken: list[tuple[str, float, float]] = []

    def answer(self, path: str, message_id: str, body: bytes) -> bytes | None:
        if path == "/control/revive":
            self._refuse, self._hang = set(), set()
            return _with_body("")
        if path == "/control/count":
            return _with_body(str(len(self._taken)))
        if path == "/control/taken":
            return _with_body(json.dumps(self._taken))
        if path in self._refuse:
            return _REFUSED
        if path in self._hang:
            return None
        # Not parsed: others measure how fast they are sent to.
        made = body.rpartition(b'"at":')[2].partition(b'"')[2].partition(b'"')[0]
        self._taken.append((message_id, float(made), time.time()))
        return _TAKEN


def _with_body(text: str) -> bytes:
    body = text.encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


class _Connection(asyncio.Protocol):
    def __init__(self, receivers: _Receivers) -> None:
        self._receivers = receivers
        self._held = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._held += data
        while True:
            head, found, rest = self._held.partition(b"\r\n\r\n")
            if not found:
                return
            first, *lines = head.decode("latin-1").split("\r\n")
            headers = {name.lower(): value for name, _, value in (s.partition(": ") for s in lines)}
            size = int(headers.get("content-length", "0"))
            if len(rest) < size:
                return
            body, self._held = rest[:size], rest[size:]
            path = first.split(" ")[1]
            answer = self._receivers.answer(path, headers.get("webhook-id", ""), body)
            if answer is not None:
                self._transport.write(answer)


async def _serve(port: int, receivers: _Receivers) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: _Connection(receivers), "127.0.0.1", port, backlog=4096
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), _Receivers(**json.loads(sys.argv[2]))))
