"""Sessions of browsers: signed cookies, so that they outlive the server; and the one-time token."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from penstock.serve.safety.identity import ROLES, Identity

SESSION_SECONDS = 12 * 3600
ONE_TIME_SECONDS = 3600.0


class Sessions:
    """Gives out cookies and reads them. A cookie cannot be made without the key."""

    def __init__(self, key: bytes, clock: Callable[[], float] = time.time) -> None:
        self._key = key
        self._clock = clock

    def cookie(self, identity: Identity) -> str:
        value = [identity.name, identity.role, identity.token, self.end()]
        body = base64.urlsafe_b64encode(json.dumps(value).encode())
        return f"{body.decode()}.{self._seal(body)}"

    def identify(self, cookie: str) -> Identity | None:
        """Who the cookie was given to; None for one that is old or not ours."""
        body, _, seal = cookie.encode("latin-1", "replace").rpartition(b".")
        if not hmac.compare_digest(self._seal(body).encode(), seal):
            return None
        with suppress(ValueError, TypeError):
            name, role, token, until = json.loads(base64.urlsafe_b64decode(body))
            if role in ROLES and until > self._clock():
                return Identity(name, role, token, until)
        return None

    def end(self) -> float:
        """Of a session that begins now."""
        return self._clock() + SESSION_SECONDS

    def lasts(self, identity: Identity) -> bool:
        """Whether the session has not ended by itself."""
        return not identity.until or identity.until > self._clock()

    def _seal(self, body: bytes) -> str:
        return hmac.new(self._key, b"session:" + body, hashlib.sha256).hexdigest()


class OneTimeToken:
    """For the URL that the server prints: it signs one browser in, once, within an hour."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._until = clock() + ONE_TIME_SECONDS
        self.text = secrets.token_urlsafe(32)
        self._used = False

    def use(self, text: str) -> bool:
        """Whether it is the one, and nobody has used it yet."""
        with self._lock:
            same = hmac.compare_digest(text.encode(), self.text.encode())
            if not same or self._used or self._clock() > self._until:
                return False
            self._used = True
            return True
