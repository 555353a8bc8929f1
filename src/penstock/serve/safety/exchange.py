"""One request as the guard sees it, and its answer on the way out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote, urlsplit

from penstock.serve.safety.origins import is_loopback

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MOST_BODY = 2**20
# Paths that are not there, bodies that say nothing, methods that nobody has.
_STRANGE = (400, 404, 405, 422)
_HEADERS = {
    b"content-security-policy": b"default-src 'self'; script-src 'self' 'unsafe-inline' "
    b"'unsafe-eval'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' "
    b"data:; connect-src 'self'; object-src 'none'; base-uri 'self'; form-action 'self'; "
    b"frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    # Without any referrer, browsers send the sign-in form with the origin null.
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
}


class TooLarge(Exception):
    """The body has more than MOST_BODY bytes."""


class Gone(Exception):
    """The connection ended before the request did."""


class GuardedRequest:
    """What the guard asks of a request's scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.is_websocket = scope["type"] == "websocket"
        self.method: str = scope.get("method", "GET")
        self.path: str = scope["path"]
        self.query: str = scope.get("query_string", b"").decode("latin-1")
        client = scope.get("client")
        self.peer: str = client[0] if client else ""
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]

    def believe_proxy(self) -> None:
        """Take the address that the proxy itself added, the last one, for the client's: whoever
        guesses behind a proxy is not everybody behind it. The others are what the client says.
        """
        said = ",".join(self.headers("x-forwarded-for")).rpartition(",")[2].strip()
        try:
            self.peer = str(ip_address(said))
        except ValueError:
            # The proxy says nothing of its clients: they are one.
            return
        self.scope["client"] = (self.peer, 0)

    @property
    def host_name(self) -> str:
        with suppress(ValueError):
            return urlsplit(f"//{self.header('host')}").hostname or ""
        return ""

    @property
    def target_length(self) -> int:
        return len(self.query) + len(quote(self.path))

    @property
    def is_api(self) -> bool:
        return self.path.startswith("/v1") or self.path == "/openapi.json"

    @property
    def is_navigation(self) -> bool:
        """A person who opens a page, by a link or by hand."""
        return self.method == "GET" and "text/html" in self.header("accept")

    def headers(self, name: str) -> list[str]:
        key = name.lower().encode("latin-1")
        return [value.decode("latin-1") for found, value in self._headers if found.lower() == key]

    def header(self, name: str) -> str:
        found = self.headers(name)
        return found[0] if found else ""

    def cookie(self, name: str) -> str:
        try:
            found = SimpleCookie("; ".join(self.headers("cookie"))).get(name)
        except CookieError:
            return ""
        return found.value if found is not None else ""


class Replayed:
    """Gives a body that was read, then whatever comes."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


class Sealed:
    """Adds the headers that every answer has, and tells ``noted`` of answers to requests that
    nobody should have sent.
    """

    def __init__(
        self,
        send: Send,
        request: GuardedRequest,
        *,
        encrypted: bool,
        noted: Callable[[str], None] | None = None,
    ) -> None:
        self._send = send
        self._request = request
        self._encrypted = encrypted
        self._noted = noted

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if self._noted is not None and message["status"] in _STRANGE:
                self._noted(f"{message['status']} {HTTPStatus(message['status']).phrase}")
            given = {name.lower() for name, _ in message.get("headers", [])}
            added = [(n, v) for n, v in _HEADERS.items() if n not in given]
            if self._request.is_api and b"cache-control" not in given:
                added.append((b"cache-control", b"no-store"))
            # A browser keeps it for all ports of the name: nobody's own machine gets it.
            if self._encrypted and not is_loopback(self._request.host_name):
                added.append((b"strict-transport-security", b"max-age=31536000"))
            message = {**message, "headers": [*message.get("headers", []), *added]}
        await self._send(message)


async def read_body(receive: Receive) -> bytes:
    """The whole body. Raises TooLarge for one that is too large, whatever it said of its size, and
    Gone where its end never came: half a request is none.
    """
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MOST_BODY:
            raise TooLarge
        if not message.get("more_body"):
            return b"".join(parts)


async def answer(
    send: Send, status: HTTPStatus, body: bytes, headers: dict[str, str] | None = None
) -> None:
    given = {"content-type": "text/html; charset=utf-8", "cache-control": "no-store"}
    given |= {"content-length": str(len(body)), **(headers or {})}
    await send(
        {
            "type": "http.response.start",
            "status": status.value,
            "headers": [(n.encode("latin-1"), v.encode("latin-1")) for n, v in given.items()],
        }
    )
    await send({"type": "http.response.body", "body": body})
