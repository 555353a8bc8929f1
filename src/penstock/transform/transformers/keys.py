"""One master key, and the keys that are made of it: one for each function and domain (HKDF)."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field

from penstock.model.errors import ConfigError

SHORTEST_KEY = 32
_FEWEST_DIFFERENT = 10


@dataclass(frozen=True)
class Keys:
    """The keys of one domain. ``master`` None: there is none, and whoever asks is refused."""

    master: bytes | None = field(repr=False)
    domain: str = ""

    def subkey(self, function: str, size: int) -> bytes:
        """The key of a function in this domain. Raises ConfigError where there is no master key."""
        if self.master is None:
            raise ConfigError(
                "transform.key is missing: rules that give the same value for the same input need "
                "a secret to do so",
                remedy="make one (`openssl rand -base64 32`), put it into the environment, and "
                "write `key: ${NAME_OF_THE_VARIABLE}` below transform",
            )
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        info = b"\0".join((b"penstock transform 1", function.encode(), self.domain.encode()))
        return HKDF(hashes.SHA256(), size, None, info).derive(self.master)

    def mark(self) -> str:
        """Tells one master key from another, and nothing of it."""
        if self.master is None:
            return ""
        return hmac.new(self.master, b"penstock transform mark", hashlib.sha256).hexdigest()[:16]


def master_key(text: str | None) -> bytes | None:
    """The master key as the pipeline file gives it. Raises ConfigError where it is too weak."""
    if text is None:
        return None
    if len(text) < SHORTEST_KEY or len(set(text)) < _FEWEST_DIFFERENT:
        raise ConfigError(
            f"transform.key is too weak: it has fewer than {SHORTEST_KEY} characters, or nearly "
            "all of them are the same",
            remedy="make one with `openssl rand -base64 32`",
        )
    return text.encode()
