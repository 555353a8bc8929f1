"""Stands in front of everything that the server answers: the API, the page and its WebSocket.

NiceGUI's own sockets take every Host and Origin; nothing gets that far from elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import parse_qs

from penstock.serve.safety.audit import Audit
from penstock.serve.safety.exchange import (
    MOST_BODY,
    App,
    Gone,
    GuardedRequest,
    Receive,
    Replayed,
    Scope,
    Sealed,
    Send,
    TooLarge,
    answer,
    read_body,
)
from penstock.serve.safety.failures import Failures
from penstock.serve.safety.identity import Identity, Role
from penstock.serve.safety.origins import Origins
from penstock.serve.safety.sessions import SESSION_SECONDS, OneTimeToken, Sessions
from penstock.serve.safety.sign_in import sign_in_page
from penstock.serve.safety.tokens import Tokens

IDENTITY = "penstock.identity"
"""Where the identity is in a request's scope."""

_MOST_TARGET = 8 * 2**10
_SAFE = ("GET", "HEAD", "OPTIONS")
_OPEN = ("/v1/health",)


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
        request = GuardedRequest(scope)
        try:
            self._check_form(request)
            self._check_place(request)
            if request.path == "/signin" and scope["type"] == "http":
                await self._sign_in(request, receive, self._sealed(send, request))
                return
            scope[IDENTITY] = self._admit(request)
        except _Refused as refusal:
            await self._refuse(request, refusal, send)
            return
        except TooLarge:
            await self._refuse(request, _too_large(), send)
            return
        except Gone:
            return
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
            return
        try:
            body = await read_body(receive)
        except TooLarge:
            await self._refuse(request, _too_large(), send)
            return
        except Gone:
            # Nobody waits for an answer, and half a request is none.
            self._note(request, "gone before the whole request had come")
            return

        def noted(reason: str) -> None:
            self._note(request, reason)

        await self._app(scope, Replayed(body, receive), self._sealed(send, request, noted))

    # -- the checks --------------------------------------------------------------------------------

    def _check_form(self, request: GuardedRequest) -> None:
        if request.target_length > _MOST_TARGET:
            raise _Refused(HTTPStatus.REQUEST_URI_TOO_LONG, "The address is too long.")
        length = request.header("content-length")
        if length and (not length.isdigit() or int(length) > MOST_BODY):
            raise _too_large()

    def _check_place(self, request: GuardedRequest) -> None:
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

    def _admit(self, request: GuardedRequest) -> Identity | None:
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

    def _identify(self, request: GuardedRequest) -> Identity:
        """Who it is. Raises _Refused for nobody."""
        trust = self._trust
        if trust.proxy_header and (user := request.header(trust.proxy_header)):
            return Identity(user[:64], trust.proxy_role, until=trust.sessions.end())
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
        """Whether a session may go on: it may have ended, or its token may have been revoked. Pages
        ask before whatever they show or do, since they outlive requests.
        """
        if not self._trust.sessions.lasts(identity):
            return False
        return not identity.token or self._trust.tokens.still_valid(identity)

    def _expect_patience(self, request: GuardedRequest) -> None:
        if wait := self._failures.wait_seconds(request.peer):
            raise _Refused(
                HTTPStatus.TOO_MANY_REQUESTS,
                "Too many wrong tokens came from this address.",
                f"Try again in {wait} seconds.",
                **{"retry-after": str(wait)},
            )

    # -- signing in --------------------------------------------------------------------------------

    async def _sign_in(self, request: GuardedRequest, receive: Receive, send: Send) -> None:
        """GET with the one-time token of the printed URL, or POST with a bearer token."""
        if request.method == "GET":
            text = parse_qs(request.query).get("token", [""])[0]
            if not text:
                await answer(send, HTTPStatus.OK, sign_in_page())
                return
            identity = self._by_one_time(request, text)
        elif request.method == "POST":
            if not request.headers("origin"):
                raise _Refused(HTTPStatus.FORBIDDEN, "The form was not sent by this server's page.")
            self._expect_patience(request)
            form = parse_qs((await read_body(receive)).decode(errors="replace"))
            identity = self._trust.tokens.identify(form.get("token", [""])[0].strip())
        else:
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, "Only GET and POST are known here.")
        if identity is None:
            self._failures.add(request.peer)
            self._audit.refused(request.peer, request.method, request.path, "wrong token")
            await answer(send, HTTPStatus.UNAUTHORIZED, sign_in_page(failed=True))
            return
        self._audit.command(identity.name, identity.role, request.peer, "sign in", outcome="done")
        secure = "; Secure" if self._trust.secure_cookie else ""
        cookie = (
            f"{self._trust.cookie}={self._trust.sessions.cookie(identity)}; Path=/; HttpOnly; "
            f"SameSite=Strict; Max-Age={SESSION_SECONDS}{secure}"
        )
        headers = {"location": "/", "set-cookie": cookie}
        await answer(send, HTTPStatus.SEE_OTHER, b"", headers)

    def _by_one_time(self, request: GuardedRequest, text: str) -> Identity | None:
        self._expect_patience(request)
        one_time = self._trust.one_time
        used = one_time is not None and one_time.use(text)
        return Identity("local", "operate") if used else None

    # -- refusals ----------------------------------------------------------------------------------

    def _sealed(
        self, send: Send, request: GuardedRequest, noted: Callable[[str], None] | None = None
    ) -> Sealed:
        return Sealed(send, request, encrypted=self._trust.secure_cookie, noted=noted)

    def _note(self, request: GuardedRequest, reason: str) -> None:
        who = request.scope.get(IDENTITY)
        name = who.name if isinstance(who, Identity) else ""
        self._audit.refused(request.peer, request.method, request.path, reason, name)

    async def _refuse(self, request: GuardedRequest, refusal: _Refused, send: Send) -> None:
        self._note(request, f"{refusal.status.value} {refusal.detail}")
        if request.is_websocket:
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = dict(refusal.headers)
        if refusal.status is HTTPStatus.UNAUTHORIZED:
            if request.is_navigation and not request.is_api:
                await answer(
                    self._sealed(send, request), HTTPStatus.SEE_OTHER, b"", {"location": "/signin"}
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
        await answer(self._sealed(send, request), refusal.status, body, headers)


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
