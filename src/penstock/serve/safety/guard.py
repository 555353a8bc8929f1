"""Stands in front of everything that the server answers: the API, the page and its WebSocket.

NiceGUI's own sockets take every Host and Origin; nothing gets that far from elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qs, quote

from penstock.serve.safety.audit import Audit
from penstock.serve.safety.failures import Failures
from penstock.serve.safety.identity import Identity, Role
from penstock.serve.safety.origins import Origins
from penstock.serve.safety.sessions import SESSION_SECONDS, OneTimeToken, Sessions
from penstock.serve.safety.sign_in import sign_in_page
from penstock.serve.safety.tokens import Tokens

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

IDENTITY = "penstock.identity"
"""Where the identity is in a request's scope."""

MOST_BODY = 2**20
_MOST_TARGET = 8 * 2**10
_SAFE = ("GET", "HEAD", "OPTIONS")
_OPEN = ("/v1/health",)
_PAGE_HEADERS = {
    b"content-security-policy": b"default-src 'self'; script-src 'self' 'unsafe-inline' "
    b"'unsafe-eval'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' "
    b"data:; connect-src 'self'; object-src 'none'; base-uri 'self'; form-action 'self'; "
    b"frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
}


@dataclass(frozen=True)
class Trusted:
    """Whom the guard believes. ``proxies`` are addresses whose header ``proxy_header`` names the
    user; what comes from elsewhere is not let in where there are any.
    """

    origins: Origins
    tokens: Tokens
    sessions: Sessions
    one_time: OneTimeToken | None
    cookie: str
    secure_cookie: bool = False
    proxies: frozenset[str] = frozenset()
    proxy_header: str = ""
    proxy_role: Role = "read"


class _Refused(Exception):
    def __init__(self, status: HTTPStatus, detail: str, remedy: str = "", **headers: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.remedy = remedy
        self.headers = headers


class Guard:
    """An ASGI application around another one."""

    def __init__(
        self, app: App, trust: Trusted, audit: Audit, failures: Failures | None = None
    ) -> None:
        self._app = app
        self._trust = trust
        self._audit = audit
        self._failures = failures or Failures()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        request = _Request(scope)
        try:
            self._check_form(request)
            self._check_place(request)
            if request.path == "/signin" and scope["type"] == "http":
                await self._sign_in(request, receive, _Sealed(send, request))
                return
            scope[IDENTITY] = self._admit(request)
        except _Refused as refusal:
            await self._refuse(request, refusal, send)
            return
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
            return
        try:
            body = await _read(receive)
        except _Refused as refusal:
            await self._refuse(request, refusal, send)
            return
        await self._app(scope, _Replayed(body, receive), _Sealed(send, request))

    # -- the checks --------------------------------------------------------------------------------

    def _check_form(self, request: _Request) -> None:
        if request.target_length > _MOST_TARGET:
            raise _Refused(HTTPStatus.REQUEST_URI_TOO_LONG, "The address is too long.")
        length = request.header("content-length")
        if length and (not length.isdigit() or int(length) > MOST_BODY):
            raise _too_large()

    def _check_place(self, request: _Request) -> None:
        trust = self._trust
        if trust.proxies and request.peer not in trust.proxies:
            raise _Refused(
                HTTPStatus.FORBIDDEN, "Requests are taken from the declared proxy alone."
            )
        if trust.proxies:
            request.believe_proxy()
        if len(request.headers("host")) != 1 or not trust.origins.is_host(request.header("host")):
            raise _Refused(
                HTTPStatus.MISDIRECTED_REQUEST,
                "The server does not answer to this name.",
                "Ask for it by the address that it printed, or start it with --allow-host NAME.",
            )
        origins = request.headers("origin")
        if any(not trust.origins.is_origin(origin) for origin in origins):
            raise _Refused(HTTPStatus.FORBIDDEN, "Pages of other origins may not ask.")
        if request.header("sec-fetch-site") in ("cross-site", "same-site") and (
            not request.is_navigation
        ):
            raise _Refused(HTTPStatus.FORBIDDEN, "Pages of other origins may not ask.")

    def _admit(self, request: _Request) -> Identity | None:
        if request.path in _OPEN and request.method in _SAFE:
            return None
        identity = self._identify(request)
        by_header = request.header("authorization") != ""
        changes = request.is_websocket or request.method not in _SAFE
        if changes and not by_header and not request.headers("origin"):
            raise _Refused(
                HTTPStatus.FORBIDDEN,
                "The request does not say which page it comes from.",
                "Programs send a token: Authorization: Bearer …",
            )
        if request.is_api and request.method not in _SAFE and not identity.may_operate:
            raise _Refused(
                HTTPStatus.FORBIDDEN,
                f"{identity.name} may look, not change anything.",
                "Ask for a token with the role operate.",
            )
        return identity

    def _identify(self, request: _Request) -> Identity:
        """Who it is. Raises _Refused for nobody."""
        trust = self._trust
        if trust.proxy_header and (user := request.header(trust.proxy_header)):
            return Identity(user[:64], trust.proxy_role)
        kind, _, text = request.header("authorization").partition(" ")
        cookie = request.cookie(trust.cookie)
        if not kind and cookie:
            session = trust.sessions.identify(cookie)
            if session is not None and self.still_valid(session):
                return session
        if not kind and not cookie:
            raise _unknown("There is no token with the request.")
        self._expect_patience(request)
        if kind.lower() == "bearer":
            identity = trust.tokens.identify(text.strip())
            if identity is not None:
                return identity
        if kind:
            self._failures.add(request.peer)
            raise _unknown("The token is not one of this server.")
        # A session of yesterday is no guess.
        raise _unknown("The session has ended.")

    def still_valid(self, identity: Identity) -> bool:
        """Whether a session may go on: its token may have been revoked. Pages ask before each
        command, since they outlive requests.
        """
        return not identity.token or self._trust.tokens.still_valid(identity)

    def _expect_patience(self, request: _Request) -> None:
        if wait := self._failures.wait_seconds(request.peer):
            raise _Refused(
                HTTPStatus.TOO_MANY_REQUESTS,
                "Too many wrong tokens came from this address.",
                f"Try again in {wait} seconds.",
                **{"retry-after": str(wait)},
            )

    # -- signing in --------------------------------------------------------------------------------

    async def _sign_in(self, request: _Request, receive: Receive, send: Send) -> None:
        """GET with the one-time token of the printed URL, or POST with a bearer token."""
        if request.method == "GET":
            text = parse_qs(request.query).get("token", [""])[0]
            if not text:
                await _answer(send, HTTPStatus.OK, sign_in_page())
                return
            identity = self._by_one_time(request, text)
        elif request.method == "POST":
            if not request.headers("origin"):
                raise _Refused(HTTPStatus.FORBIDDEN, "The form was not sent by this server's page.")
            self._expect_patience(request)
            form = parse_qs((await _read(receive)).decode(errors="replace"))
            identity = self._trust.tokens.identify(form.get("token", [""])[0].strip())
        else:
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, "Only GET and POST are known here.")
        if identity is None:
            self._failures.add(request.peer)
            self._audit.refused(request.peer, request.method, request.path, "wrong token")
            await _answer(send, HTTPStatus.UNAUTHORIZED, sign_in_page(failed=True))
            return
        self._audit.command(identity.name, identity.role, request.peer, "sign in", outcome="done")
        secure = "; Secure" if self._trust.secure_cookie else ""
        cookie = (
            f"{self._trust.cookie}={self._trust.sessions.cookie(identity)}; Path=/; HttpOnly; "
            f"SameSite=Strict; Max-Age={SESSION_SECONDS}{secure}"
        )
        headers = {"location": "/", "set-cookie": cookie}
        await _answer(send, HTTPStatus.SEE_OTHER, b"", headers)

    def _by_one_time(self, request: _Request, text: str) -> Identity | None:
        self._expect_patience(request)
        one_time = self._trust.one_time
        used = one_time is not None and one_time.use(text)
        return Identity("local", "operate") if used else None

    # -- refusals ----------------------------------------------------------------------------------

    async def _refuse(self, request: _Request, refusal: _Refused, send: Send) -> None:
        who = request.scope.get(IDENTITY)
        self._audit.refused(
            request.peer,
            request.method,
            request.path,
            f"{refusal.status.value} {refusal.detail}",
            who.name if isinstance(who, Identity) else "",
        )
        if request.is_websocket:
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = dict(refusal.headers)
        if refusal.status is HTTPStatus.UNAUTHORIZED:
            if request.is_navigation and not request.is_api:
                await _answer(
                    _Sealed(send, request), HTTPStatus.SEE_OTHER, b"", {"location": "/signin"}
                )
                return
            headers["www-authenticate"] = 'Bearer realm="penstock"'
        problem = {
            "type": "about:blank",
            "title": refusal.status.phrase,
            "status": refusal.status.value,
            "detail": refusal.detail,
            "remedy": refusal.remedy,
        }
        headers["content-type"] = "application/problem+json"
        body = json.dumps(problem).encode()
        await _answer(_Sealed(send, request), refusal.status, body, headers)


class _Request:
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


class _Replayed:
    """Gives a body that was read, then whatever comes."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


class _Sealed:
    """Adds the headers that every answer has."""

    def __init__(self, send: Send, request: _Request) -> None:
        self._send = send
        self._request = request

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            given = {name.lower() for name, _ in message.get("headers", [])}
            added = [(n, v) for n, v in _PAGE_HEADERS.items() if n not in given]
            if self._request.is_api and b"cache-control" not in given:
                added.append((b"cache-control", b"no-store"))
            message = {**message, "headers": [*message.get("headers", []), *added]}
        await self._send(message)


async def _read(receive: Receive) -> bytes:
    """The whole body. Raises _Refused for one that is too large, whatever it said of its size."""
    parts, size = [], 0
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MOST_BODY:
            raise _too_large()
        if not message.get("more_body"):
            return b"".join(parts)


async def _answer(
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


def _unknown(detail: str) -> _Refused:
    return _Refused(
        HTTPStatus.UNAUTHORIZED,
        detail,
        "Send Authorization: Bearer with a token of `penstock tokens create`, or sign in.",
    )


def _too_large() -> _Refused:
    return _Refused(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A body may have {MOST_BODY} bytes at most."
    )
