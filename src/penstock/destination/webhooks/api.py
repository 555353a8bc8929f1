"""The HTTP API for subscriptions. Whoever calls it has to know the token."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from penstock.destination.webhooks import managing
from penstock.destination.webhooks.database import Database
from penstock.destination.webhooks.delivery.request import Requests
from penstock.destination.webhooks.openapi import description
from penstock.destination.webhooks.options import ApiOptions, WebhooksOptions
from penstock.destination.webhooks.subscriptions import NotFound, Subscriptions
from penstock.model.errors import (
    ConfigError,
    DestinationUnavailable,
    PenstockError,
)

_MOST_BODY = 64 * 1024
_PATH = "/v1/subscriptions"
_OPEN = "/openapi.json"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Api:
    """Answers from the loop that it was started in."""

    def __init__(self, options: WebhooksOptions, database: Database, requests: Requests) -> None:
        self._options = options
        self._subscriptions = Subscriptions(database)
        self._requests = requests
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self, api: ApiOptions) -> None:
        """Raises ConfigError where the address cannot be had."""
        app = web.Application(client_max_size=_MOST_BODY, middlewares=[self._answered(api)])
        app.add_routes(
            [
                web.get(_OPEN, self._openapi),
                web.get(_PATH, self._list),
                web.post(_PATH, self._add),
                web.get(f"{_PATH}/{{id}}", self._show),
                web.delete(f"{_PATH}/{{id}}", self._remove),
                web.post(f"{_PATH}/{{id}}/pause", self._pause),
                web.post(f"{_PATH}/{{id}}/resume", self._resume),
                web.post(f"{_PATH}/{{id}}/test", self._test),
                web.post(f"{_PATH}/{{id}}/rotate", self._rotate),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, api.listen.host, api.listen.port)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise ConfigError(
                f"destination.api.listen: {api.listen} cannot be listened on: "
                f"{error.strerror or error}",
                remedy="choose another port (0 takes one that is free)",
            ) from None
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def _answered(self, api: ApiOptions) -> Any:
        expected = f"Bearer {api.token.get_secret_value()}".encode()

        @web.middleware
        async def answered(request: web.Request, handler: Handler) -> web.StreamResponse:
            given = request.headers.get("Authorization", "").encode(errors="surrogateescape")
            if request.path != _OPEN and not hmac.compare_digest(given, expected):
                return _error(401, "the token is missing or wrong", "send Authorization: Bearer …")
            try:
                return await handler(request)
            except web.HTTPException as error:
                return _error(error.status, error.reason, "see /openapi.json")
            except NotFound as error:
                return _error(404, error.message, error.remedy)
            except ConfigError as error:
                return _error(422, error.message, error.remedy)
            except DestinationUnavailable as error:
                return _error(503, error.message, error.remedy)
            except PenstockError as error:
                return _error(409, error.message, error.remedy)

        return answered

    async def _openapi(self, _request: web.Request) -> web.Response:
        return web.json_response(description())

    async def _list(self, _request: web.Request) -> web.Response:
        found = await asyncio.to_thread(self._subscriptions.all)
        return web.json_response({"subscriptions": [kept.to_json() for kept in found]})

    async def _show(self, request: web.Request) -> web.Response:
        kept = await asyncio.to_thread(self._subscriptions.one, request.match_info["id"])
        return web.json_response(kept.to_json())

    async def _add(self, request: web.Request) -> web.Response:
        value = await _json(request)
        kept, secret = await managing.add(self._options, self._subscriptions, self._requests, value)
        told = {} if secret is None else {"secret": secret}
        return web.json_response({**kept.to_json(), **told}, status=201)

    async def _remove(self, request: web.Request) -> web.Response:
        await asyncio.to_thread(self._subscriptions.remove, request.match_info["id"])
        return web.Response(status=204)

    async def _pause(self, request: web.Request) -> web.Response:
        kept = await asyncio.to_thread(self._subscriptions.pause, request.match_info["id"])
        return web.json_response(kept.to_json())

    async def _resume(self, request: web.Request) -> web.Response:
        value = await _json(request, {"skip"})
        kept = await asyncio.to_thread(
            lambda: self._subscriptions.resume(
                request.match_info["id"], skip=value.get("skip") is True
            )
        )
        return web.json_response(kept.to_json())

    async def _test(self, request: web.Request) -> web.Response:
        kept = await asyncio.to_thread(self._subscriptions.one, request.match_info["id"])
        answer = await managing.test(self._options, self._requests, kept)
        return web.json_response({"delivered": answer.verdict == "delivered", "why": answer.why})

    async def _rotate(self, request: web.Request) -> web.Response:
        value = await _json(request, {"secret", "keep_seconds"})
        keep = value.get("keep_seconds", managing.KEEP_OLD_SECRET)
        if not isinstance(keep, int | float) or isinstance(keep, bool) or not 0 <= keep <= 10**8:
            raise ConfigError("keep_seconds: should be a number of seconds, at least 0")
        kept = await asyncio.to_thread(self._subscriptions.one, request.match_info["id"])
        kept, secret = await asyncio.to_thread(
            lambda: managing.rotate(
                self._options, self._subscriptions, kept, value.get("secret"), keep
            )
        )
        told = {} if secret is None else {"secret": secret}
        return web.json_response({**kept.to_json(), **told})


async def _json(request: web.Request, names: set[str] | None = None) -> dict[str, Any]:
    """The object in a request's body. With ``names`` it may be missing, and has no other keys."""
    text = await request.read()
    if names is not None and not text:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ConfigError("the body is not JSON") from None
    if not isinstance(value, dict) or (names is not None and set(value) - names):
        allowed = "" if names is None else f" with {' and '.join(sorted(names))} at most"
        raise ConfigError(f"the body should be a JSON object{allowed}")
    return value


def _error(status: int, message: str, remedy: str) -> web.Response:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return web.json_response({"error": message, "remedy": remedy}, status=status, headers=headers)
