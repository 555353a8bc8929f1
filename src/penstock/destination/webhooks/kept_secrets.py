"""Secrets of subscriptions as the database keeps them: sealed, or a name in the environment."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from pydantic import SecretStr

from penstock.destination.webhooks.signing import key_of, new_secret
from penstock.model.errors import ConfigError

Entry = dict[str, Any]
"""``sealed`` or ``env``, and ``until`` (seconds since 1970) for one that is on its way out."""


class KeptSecrets:
    """Seals with the first key of the pipeline file, and opens with any of them."""

    def __init__(self, key: SecretStr | None) -> None:
        self._keys = [] if key is None else [k.strip() for k in key.get_secret_value().split(",")]

    def made(self, wanted: str | None) -> tuple[Entry, str | None]:
        """The entry of a new secret, and the secret where it was made here and is to be told."""
        if wanted is not None and wanted.startswith("env:"):
            return {"env": wanted.removeprefix("env:")}, None
        secret = new_secret() if wanted is None else wanted
        return {"sealed": self._box().encrypt(secret.encode()).decode()}, (
            secret if wanted is None else None
        )

    def rotated(self, entries: Sequence[Entry], new: Entry, keep: float) -> list[Entry]:
        """The new one first; the one before it is valid for ``keep`` more seconds."""
        now = time.time()
        return [new, *({**entry, "until": now + keep} for entry in entries[:1] if keep > 0)]

    def keys(self, entries: Sequence[Entry]) -> list[bytes]:
        """What to sign with now. Raises ConfigError where the first cannot be had."""
        now = time.time()
        valid = [entry for entry in entries if entry.get("until", now + 1) > now]
        return [key_of(self._text(entry)) for entry in valid]

    def _text(self, entry: Entry) -> str:
        if "env" in entry:
            name = entry["env"]
            secret = os.environ.get(name, "")
            try:
                key_of(secret)
            except ValueError:
                raise ConfigError(
                    f"the environment variable {name} "
                    + ("is not set" if not secret else "holds no secret such as whsec_…"),
                    remedy="set it for the process that delivers, and start that again",
                ) from None
            return secret
        from cryptography.fernet import InvalidToken

        try:
            opened: bytes = self._box().decrypt(entry["sealed"].encode())
        except InvalidToken:
            raise ConfigError(
                "the subscription's secret was sealed with another key than "
                "destination.secret_key has",
                remedy="add the old key behind the new one, with a comma between, or rotate the "
                "subscription's secret with `penstock webhooks rotate`",
            ) from None
        return opened.decode()

    def _box(self) -> Any:
        if not self._keys:
            raise ConfigError(
                "there is no destination.secret_key to seal a secret with",
                remedy="print one with `penstock webhooks key`, and name it in the "
                "pipeline file; or name a secret of the environment: env:PENSTOCK_WEBHOOK_…",
            )
        from cryptography.fernet import Fernet, MultiFernet

        return MultiFernet([Fernet(key) for key in self._keys])
