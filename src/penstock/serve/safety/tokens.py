"""Bearer tokens: made once, shown once, kept as hashes."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from penstock.model.errors import ConfigError
from penstock.serve.safety.identity import ROLES, Identity, Role
from penstock.serve.state_folder import read_json, write_json

_PREFIX = "pst"
_SECRET_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")


@dataclass(frozen=True)
class StoredToken:
    """``digest`` is the SHA-256 of a secret of 256 random bits: no slower hash makes it safer."""

    id: str
    name: str
    role: Role
    digest: str
    created_at: str


class Tokens:
    """The tokens in a file. Read again when the file changes, so that commands beside the server
    take effect at once. May be used by any thread.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._known: dict[str, StoredToken] = {}

    def all(self) -> Sequence[StoredToken]:
        with self._lock:
            return sorted(self._load().values(), key=lambda token: token.created_at)

    def create(self, name: str, role: Role) -> str:
        """A new token: the text is given once, and never again. Raises ConfigError."""
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{name!r} is not a name for a token.",
                remedy="Use up to 64 letters, digits and any of _ . @ -",
            )
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        token = StoredToken(
            secrets.token_hex(6),
            name,
            role,
            _digest(secret),
            datetime.now(UTC).isoformat(timespec="seconds"),
        )
        with self._lock:
            self._write({**self._load(), token.id: token})
        return f"{_PREFIX}_{token.id}_{secret}"

    def revoke(self, token_id: str) -> StoredToken | None:
        """Forget a token; None where there is none of that id."""
        with self._lock:
            known = dict(self._load())
            token = known.pop(token_id, None)
            if token is not None:
                self._write(known)
            return token

    def identify(self, text: str) -> Identity | None:
        """Who the token belongs to. It takes as long for a wrong id as for a wrong secret."""
        _, _, rest = text.partition("_")
        token_id, _, secret = rest.partition("_")
        with self._lock:
            token = self._load().get(token_id)
        digest = token.digest if token is not None else _digest("")
        same = hmac.compare_digest(_digest(secret), digest)
        return Identity(token.name, token.role, token.id) if token and secret and same else None

    def still_valid(self, identity: Identity) -> bool:
        """Whether the token that somebody signed in with is there, with the role that it had."""
        with self._lock:
            token = self._load().get(identity.token)
        return token is not None and token.role == identity.role

    def _load(self) -> dict[str, StoredToken]:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            self._stamp, self._known = None, {}
            return self._known
        stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        if stamp != self._stamp:
            value = read_json(self._path)
            try:
                tokens = [StoredToken(**entry) for entry in value]
                if any(token.role not in ROLES for token in tokens):
                    raise ValueError("role")
            except (TypeError, ValueError):
                # Whoever cannot be read has no access: better than the access of yesterday.
                tokens = []
            self._stamp, self._known = stamp, {token.id: token for token in tokens}
        return self._known

    def _write(self, tokens: dict[str, StoredToken]) -> None:
        write_json(self._path, [asdict(token) for token in tokens.values()])
        self._stamp = None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
