"""A receiver of webhooks for tests: real sockets on loopback, signatures verified by the library of
the standard.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web
from standardwebhooks import Webhook


@dataclass(frozen=True)
class Received:
    path: str
    id: str
    body: str
    headers: dict[str, str]
    at: float = field(default_factory=time.time)


@dataclass(frozen=True)
class Reply:
    """``hang``: seconds until it comes."""

    status: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    hang: float = 0.0
    body: bytes = b""


Decide = Callable[[Received], Reply]


class Receiver:
    """Listens from ``with`` on. ``secrets`` by path: what is wrongly signed is refused with 401."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.received: list[Received] = []
        """What was answered with 2xx, in the order of its arrival."""
        self.attempts: Counter[str] = Counter()
        """Requests by path, whatever was answered."""
        self.secrets: dict[str, str] = {}
        self.decide: dict[str, Decide] = {}
        self.wrongly_signed: list[str] = []
        self.most_at_once: Counter[str] = Counter()
        self._at_once: Counter[str] = Counter()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Receiver:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def by_path(self) -> dict[str, list[Received]]:
        found: defaultdict[str, list[Received]] = defaultdict(list)
        for each in list(self.received):
            found[each.path].append(each)
        return found

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/{rest:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port, backlog=2048)
        await site.start()
        self.port = runner.addresses[0][1]
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.Response:
        body = (await request.read()).decode()
        path = request.path
        headers = {name.lower(): value for name, value in request.headers.items()}
        got = Received(path, headers.get("webhook-id", ""), body, headers)
        self.attempts[path] += 1
        self._at_once[path] += 1
        self.most_at_once[path] = max(self.most_at_once[path], self._at_once[path])
        try:
            return await self._answer(got)
        finally:
            self._at_once[path] -= 1

    async def _answer(self, got: Received) -> web.Response:
        if got.path in self.secrets:
            try:
                Webhook(self.secrets[got.path]).verify(got.body, got.headers)
            except Exception as error:
                self.wrongly_signed.append(f"{got.path}: {error}")
                return web.Response(status=401)
        reply = self.decide.get(got.path, _take)(got)
        if reply.hang:
            await asyncio.sleep(reply.hang)
        if 200 <= reply.status < 300:
            self.received.append(got)
        return web.Response(status=reply.status, headers=reply.headers, body=reply.body)


def _take(_got: Received) -> Reply:
    return Reply()


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Raises where the condition does not come to hold."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
