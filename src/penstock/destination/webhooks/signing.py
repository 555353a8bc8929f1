"""Signatures and secrets as Standard Webhooks has them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence

PREFIX = "whsec_"
_SHORTEST, _LONGEST = 24, 64


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def key_of(secret: str) -> bytes:
    """The bytes to sign with. Raises ValueError where it is no secret of the standard."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if not secret.startswith(PREFIX) or not _SHORTEST <= len(key) <= _LONGEST:
        raise ValueError("not a secret of Standard Webhooks")
    return key


def signed_headers(
    message_id: str, timestamp: int, body: bytes, keys: Sequence[bytes]
) -> dict[str, str]:
    """The three headers of the standard: one signature a key, so that receivers know either."""
    content = f"{message_id}.{timestamp}.".encode() + body
    signatures = (
        "v1," + base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode() for key in keys
    )
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signatures),
    }
