"""URLs of servers that are asked by HTTP, in the pipeline file."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError


def server_url(example: str) -> AfterValidator:
    """Refuses what is no URL of a server, or names a user, with an example of one that is."""

    def checked(value: str) -> str:
        parts = urlsplit(value)
        try:
            found = parts.hostname if parts.port is None or parts.port else None
        except ValueError:
            found = None
        if parts.scheme not in ("http", "https") or not found or parts.query or parts.fragment:
            raise PydanticCustomError(
                "url", "Input should be a URL such as {example}", {"example": example}
            )
        if parts.username or parts.password:
            raise PydanticCustomError(
                "url", "the user goes to destination.user, the password to destination.password"
            )
        return value.rstrip("/")

    return AfterValidator(checked)
