"""One request to a receiver, and what its answer means."""

from __future__ import annotations

import asyncio
import email.utils
import io
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

import aiohttp

from penstock.destination.webhooks.guard import AddressGuard, AddressRefused
from penstock.destination.webhooks.options import WebhooksOptions
from penstock.destination.webhooks.signing import signed_headers

# Enough of an answer for a person to see what is wrong.
_MOST_ANSWER = 4096
_SHOWN_ANSWER = 200
_DNS_SECONDS = 30
_LARGE = 2**19
# Answers with 4xx that say: later.
_LATER = frozenset({408, 425, 429})
_CONTENT = {"cloudevents": "application/cloudevents+json; charset=utf-8"}
_JSON = "application/json; charset=utf-8"

Verdict = Literal["delivered", "later", "away", "refused", "gone"]
"""later: the receiver answered, but did not take it now. away: it did not answer."""


@dataclass(frozen=True)
class EndpointAnswer:
    """``wait`` is how many seconds the receiver asked for."""

    verdict: Verdict
    why: str = ""
    wait: float = 0.0


@dataclass(frozen=True)
class Request:
    """What is sent, to where, and signed with what."""

    url: str
    format: str
    message_id: str
    body: bytes
    keys: Sequence[bytes]


class Requests:
    """Sends requests from one event loop: to addresses that may be sent to, without redirects, and
    with a limit on what is read of an answer.
    """

    def __init__(self, options: WebhooksOptions) -> None:
        self._options = options
        connector = aiohttp.TCPConnector(
            # Each subscription has a limit of its own: a common one would let some hold up others.
            limit=0,
            limit_per_host=0,
            ttl_dns_cache=_DNS_SECONDS,
            socket_factory=AddressGuard(options.allow).socket,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=options.timeout),
            trust_env=False,
            auto_decompress=False,
            headers={"User-Agent": "penstock"},
        )

    async def send(self, request: Request) -> EndpointAnswer:
        if urlsplit(request.url).scheme != "https" and not self._options.http:
            return EndpointAnswer("refused", "the URL is not https, and destination.http is false")
        if len(request.body) > self._options.max_body:
            return EndpointAnswer(
                "refused",
                f"the event has {len(request.body):,} bytes, and destination.max_body is "
                f"{self._options.max_body:,}",
            )
        signed = signed_headers(request.message_id, int(time.time()), request.body, request.keys)
        headers = {
            "Content-Type": _CONTENT.get(request.format, _JSON),
            "Idempotency-Key": request.message_id,
            **signed,
        }
        body = request.body
        try:
            async with self._session.post(
                # A large one goes piece by piece, so that others get their turn.
                request.url,
                data=body if len(body) < _LARGE else io.BytesIO(body),
                headers=headers,
                allow_redirects=False,
            ) as response:
                text = await response.content.read(_MOST_ANSWER)
                return _meaning(response, text)
        except TimeoutError:
            return EndpointAnswer("away", f"no answer within {self._options.timeout:g} s")
        except aiohttp.ClientConnectorError as error:
            refused = _refused(error)
            if refused is not None:
                return EndpointAnswer("refused", refused)
            return EndpointAnswer(
                "away", f"no connection: {error.os_error.strerror or error.os_error}"
            )
        except aiohttp.InvalidURL:
            return EndpointAnswer("refused", "the URL cannot be used")
        except (aiohttp.ClientError, OSError, ValueError, asyncio.IncompleteReadError) as error:
            return EndpointAnswer("away", f"no proper answer: {type(error).__name__} {error}"[:300])

    async def close(self) -> None:
        await self._session.close()


def _refused(error: BaseException) -> str | None:
    """Why the guard made no socket, where it was that."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, AddressRefused):
            return found.strerror
        if isinstance(found, aiohttp.ClientConnectorError) and isinstance(
            found.os_error, AddressRefused
        ):
            return found.os_error.strerror
        found = found.__cause__ or found.__context__
    return None


def _meaning(response: aiohttp.ClientResponse, text: bytes) -> EndpointAnswer:
    status = response.status
    if 200 <= status < 300:
        return EndpointAnswer("delivered")
    shown = " ".join(text[:_SHOWN_ANSWER].decode("utf-8", "replace").split())
    why = f"the receiver answered {status}" + (
        f": {shown}" if shown.isprintable() and shown else ""
    )
    if status == 410:
        return EndpointAnswer("gone", why)
    if status >= 500 or status in _LATER:
        return EndpointAnswer("later", why, _retry_after(response.headers.get("Retry-After", "")))
    if 300 <= status < 400:
        why = f"the receiver answered {status}; redirects are not followed"
    return EndpointAnswer("refused", why)


def _retry_after(text: str) -> float:
    """Seconds, from a number or a date."""
    if text.strip().isdecimal():
        return float(text.strip()[:9])
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return 0.0
