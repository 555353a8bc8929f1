"""What somebody subscribes to, and how a subscription stands."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from penstock.config.filter_config import OPERATIONS, FilterConfig, Operation, PatternText
from penstock.model.errors import ConfigError

EventFormatName = Literal["penstock", "debezium", "cloudevents"]
State = Literal["active", "paused", "disabled"]
"""paused: its backlog is kept for it; disabled: nothing is kept for it any more."""

ENV_PREFIX = "PENSTOCK_WEBHOOK_"
_REFERENCE = re.compile(rf"env:{ENV_PREFIX}[A-Z0-9_]{{1,80}}")
_LONGEST_URL = 2000


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
        port_is_right = parts.port is None or parts.port > 0
    except ValueError:
        parts, port_is_right = urlsplit(""), False
    is_plain = value.isascii() and value.isprintable() and " " not in value and "\\" not in value
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain:
        raise PydanticCustomError("url", "Input should be a URL such as https://host/path")
    if not port_is_right or parts.username is not None or parts.fragment:
        raise PydanticCustomError(
            "url", "Input should be a URL without user, password and fragment, its port 1 to 65535"
        )
    return value


def _secret(value: str | None) -> str | None:
    if value is None or _REFERENCE.fullmatch(value):
        return value
    from penstock.destination.webhooks.signing import key_of

    try:
        key_of(value)
    except ValueError:
        raise PydanticCustomError(
            "secret",
            "Input should be whsec_ and 24 to 64 bytes in base64, or env: and the name of an "
            "environment variable that begins with {prefix}",
            {"prefix": ENV_PREFIX},
        ) from None
    return value


def _rows(value: dict[str, str]) -> dict[str, str]:
    # It checks names and conditions just as those of a pipeline file.
    try:
        FilterConfig.model_validate({"rows": value})
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise PydanticCustomError("filter", "{why}", {"why": first["msg"]}) from None
    return value


class WebhookSubscription(BaseModel):
    """What is asked for, by API and command line alike. ``filter`` has conditions by table."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: Annotated[str, Field(max_length=_LONGEST_URL), AfterValidator(_url)]
    tables: Annotated[list[PatternText], Field(min_length=1, max_length=100)] = ["*.*"]
    operations: Annotated[list[Operation], Field(min_length=1)] = list(OPERATIONS)
    filter: Annotated[dict[str, str], Field(max_length=20), AfterValidator(_rows)] = {}
    format: EventFormatName = "penstock"
    concurrency: int = Field(default=4, ge=1, le=16)
    on_refused: Literal["pause", "dead_letter"] = "pause"
    description: str = Field(default="", max_length=200)

    @model_validator(mode="after")
    def _can_be_kept(self) -> Self:
        texts = (self.description, *self.tables, *self.filter, *self.filter.values())
        if any("\x00" in text for text in texts):
            raise PydanticCustomError("nul", "The character NUL cannot be kept")
        return self

    @property
    def view(self) -> str:
        """Which events of the outbox it reads: those of its format and its conditions."""
        if not self.filter:
            return self.format
        import hashlib
        import json

        text = json.dumps(sorted(self.filter.items()))
        return f"{self.format}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


class NewSubscription(WebhookSubscription):
    """``secret`` None: one is made. ``verify``: the receiver has to answer a first event."""

    secret: Annotated[str | None, Field(max_length=200), AfterValidator(_secret)] = None
    verify: bool = True

    def without_secret(self) -> WebhookSubscription:
        return WebhookSubscription.model_validate(self.model_dump(exclude={"secret", "verify"}))


@dataclass(frozen=True)
class OutboxPlace:
    """The next event that a subscription lacks: a segment of the outbox, and a row there."""

    segment: int
    row: int = 0

    def __lt__(self, other: OutboxPlace) -> bool:
        return (self.segment, self.row) < (other.segment, other.row)


@dataclass(frozen=True)
class Kept:
    """A subscription as the database keeps it. ``generation`` rises when a person changes it."""

    id: str
    wanted: WebhookSubscription
    secrets: tuple[dict[str, Any], ...]
    state: State
    reason: str
    place: OutboxPlace
    generation: int
    delivered: int = 0
    failing_since: datetime | None = None
    last_error: str = ""
    created_at: datetime | None = None
    dead_letters: int = 0
    ends: int | None = None
    """From this segment of the outbox on nothing was encoded for it, because of ``ends_why``."""
    ends_why: str = ""
    behind: int = field(default=0)
    """Bytes of the outbox that it has not passed yet."""

    def to_json(self) -> dict[str, Any]:
        """For people and programs: without secrets."""
        return {
            "id": self.id,
            **self.wanted.model_dump(),
            "state": self.state,
            "reason": "; ".join(dict.fromkeys(filter(None, (self.reason, self.ends_why)))),
            "secrets": len(self.secrets),
            "position": {"segment": self.place.segment, "row": self.place.row},
            "behind_bytes": self.behind,
            "delivered": self.delivered,
            "dead_letters": self.dead_letters,
            "failing_since": _time(self.failing_since),
            "last_error": self.last_error,
            "created_at": _time(self.created_at),
        }


def _time(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()


def parse_subscription(value: object) -> NewSubscription:
    """Raises ConfigError with all that is wrong with it, in one line."""
    try:
        return NewSubscription.model_validate(value)
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False, include_context=False)
        said = "; ".join(
            f"{'.'.join(map(str, entry['loc'])) or 'subscription'}: {entry['msg']}"
            for entry in found[:5]
        )
        raise ConfigError(
            said, remedy="docs/destinations/webhooks.md lists what a subscription has"
        ) from None
