"""Requests to a search server, over connections that a process keeps.

A dozen calls of its HTTP interface are all that is needed, and they are the same for OpenSearch and
Elasticsearch; the clients of either refuse the other one.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import quote, urlencode

from penstock.backoff import Backoff
from penstock.destination.search.exact_json import read_exactly
from penstock.destination.search.failures import BUSY, failure, unavailable
from penstock.destination.search.options import SearchOptions
from penstock.model.errors import ConfigError, DestinationUnavailable

try:
    import urllib3
    from urllib3.util import Timeout
except ImportError as error:
    raise ConfigError(
        "destination search needs a package that is not installed",
        remedy="install `penstock[search]`",
    ) from error

_CONNECT_SECONDS = 10.0
_LONG_SECONDS = 600.0
_pools: dict[str, urllib3.PoolManager] = {}


@dataclass(frozen=True)
class SearchAnswer:
    """What the server said."""

    status: int
    body: Any

    @property
    def is_done(self) -> bool:
        return 200 <= self.status < 300


@dataclass(frozen=True)
class SearchClient:
    """Pickled to the executors. Its connections belong to the process."""

    options: SearchOptions

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        doing: str,
        allowed: tuple[int, ...] = (),
        is_long: bool = False,
        is_exact: bool = False,
        query: Mapping[str, str] | None = None,
    ) -> SearchAnswer:
        """Make a request that may be made twice, and wait while the server is busy. ``body`` is
        JSON, or bytes that are; ``is_exact`` keeps the digits of numbers. Raises DestinationError
        for an answer that is neither a success nor ``allowed``, DestinationUnavailable where there
        was none in time, and none to a second request.
        """
        pauses = Backoff(first=0.1, longest=5.0)
        end = time.monotonic() + self.options.timeout
        made = 0
        while True:
            answer = None
            made += 1
            try:
                answer = self.once(
                    method, path, body, doing=doing, is_long=is_long, is_exact=is_exact, query=query
                )
            except DestinationUnavailable:
                # A single one that nobody answers takes all the time that there is.
                if made > 1 and time.monotonic() > end:
                    raise
            if answer is not None and (answer.is_done or answer.status in allowed):
                return answer
            if answer is not None and (answer.status not in BUSY or time.monotonic() > end):
                raise failure(self.options.url, doing, answer.status, answer.body)
            time.sleep(pauses.next_pause())

    def once(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        doing: str,
        is_long: bool = False,
        is_exact: bool = False,
        query: Mapping[str, str] | None = None,
    ) -> SearchAnswer:
        """Make one request. Raises DestinationUnavailable where there is no answer."""
        kind = "application/json"
        if isinstance(body, bytes | memoryview):
            kind = "application/x-ndjson"
        elif body is not None:
            body = json.dumps(body).encode()
        url = f"{self.options.url}/{path}" + (f"?{urlencode(query)}" if query else "")
        seconds = _LONG_SECONDS if is_long else self.options.timeout
        try:
            answer = self._pool.request(
                method,
                url,
                body=body,
                headers={**self._headers, "Content-Type": kind},
                timeout=Timeout(connect=_CONNECT_SECONDS, read=seconds),
                retries=False,
                redirect=False,
            )
            content = answer.data
        except urllib3.exceptions.HTTPError as error:
            message = f"destination search: {doing} at {self.options.url} failed: {error}"
            raise unavailable(message) from None
        try:
            read = read_exactly if is_exact else json.loads
            return SearchAnswer(answer.status, read(content) if content else {})
        except ValueError:
            text = content[:500].decode(errors="replace")
            return SearchAnswer(answer.status if answer.status >= 300 else 502, {"error": text})

    @cached_property
    def _headers(self) -> dict[str, str]:
        options = self.options
        if options.api_key is not None:
            return {"Authorization": f"ApiKey {options.api_key.get_secret_value()}"}
        if options.user is not None and options.password is not None:
            pair = f"{options.user}:{options.password.get_secret_value()}"
            return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        return {}

    @property
    def _pool(self) -> urllib3.PoolManager:
        name = f"{self.options.ca_file}"
        if name not in _pools:
            _pools[name] = urllib3.PoolManager(
                maxsize=64,
                block=False,
                ca_certs=None if self.options.ca_file is None else str(self.options.ca_file),
                cert_reqs="CERT_REQUIRED",
            )
        return _pools[name]


def part(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="")
