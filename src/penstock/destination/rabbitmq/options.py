"""The `rabbitmq` destination's part of the pipeline file."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from penstock.config.quantities import Duration, Size
from penstock.destination.contract import DestinationOptions
from penstock.destination.families.queue.names import NameRule
from penstock.destination.families.queue.options import FormatOptions, LaneOptions, OversizeOption
from penstock.model.errors import DestinationError

EXCHANGES = NameRule("rabbitmq", "exchange", 255)
LONGEST_KEY = 255
"""Bytes of a routing key, and of every other short text of the protocol."""

# What has a meaning in a binding, and would make two words of one name.
_NOT_IN_WORDS = re.compile(r"[.*#\s]")
_PLACES = ("pipeline", "schema", "table", "op")
_PORTS = {"amqp": 5672, "amqps": 5671}


def _several(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
        is_known = parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_known = False
    if not is_known:
        raise PydanticCustomError(
            "url", "Input should be a URL such as amqp://user:password@host:5672/vhost, or amqps:"
        )
    return value


def _routing_key(value: str) -> str:
    try:
        value.format(**dict.fromkeys(_PLACES, "x"))
    except (LookupError, AttributeError, TypeError, ValueError):
        raise PydanticCustomError(
            "routing_key",
            "Input should be a routing key, in which {places} stand for what they say",
            {"places": "{pipeline}, {schema}, {table} and {op}"},
        ) from None
    return value


RoutingKey = Annotated[str, AfterValidator(_routing_key)]


class TlsOptions(DestinationOptions):
    """``ca`` is whom to trust beside the system's own; ``certificate`` and ``key`` are ours, where
    the server asks for one. All are paths of PEM files, on executors too.
    """

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    @model_validator(mode="after")
    def _key_has_a_certificate(self) -> Self:
        if self.key is not None and self.certificate is None:
            raise PydanticCustomError("tls", "`key` is of a `certificate`, which is missing")
        return self


class BrokerAddress(DestinationOptions):
    """One of the servers."""

    host: str
    port: int
    vhost: str
    user: str = Field(repr=False)
    password: str = Field(repr=False)
    is_encrypted: bool


class RabbitOptions(FormatOptions):
    """Where messages go, and how."""

    # repr=False: passwords are among them.
    url: Annotated[
        list[Annotated[str, AfterValidator(_url)]], BeforeValidator(_several), Field(min_length=1)
    ] = Field(repr=False)
    password: str | None = Field(default=None, repr=False)
    tls: TlsOptions = TlsOptions()
    exchange: Annotated[str, EXCHANGES.of_pipeline] = "{pipeline}"
    exchange_type: str = Field(default="topic", min_length=1, max_length=LONGEST_KEY)
    declare: bool = False
    routing_key: RoutingKey = "{schema}.{table}.{op}"
    message_routing_key: RoutingKey = "{pipeline}.{op}"
    unroutable: Literal["error", "count"] = "error"
    persistent: bool = True
    headers: Literal["all", "none"] = "all"
    lanes: LaneOptions = LaneOptions()
    max_unconfirmed: int = Field(default=2000, ge=1, le=65_000)
    buffer_bytes: Size = 16 * 2**20
    max_message_bytes: Size = 16 * 10**6
    oversize: OversizeOption = "error"
    delivery_timeout: Duration = 60.0

    @property
    def addresses(self) -> list[BrokerAddress]:
        """Tried in this order."""
        return [self._address(url) for url in self.url]

    def _address(self, url: str) -> BrokerAddress:
        parts = urlsplit(url)
        given = unquote(parts.password) if parts.password is not None else "guest"
        return BrokerAddress(
            host=parts.hostname or "",
            port=parts.port or _PORTS[parts.scheme],
            vhost=unquote(parts.path.removeprefix("/")) or "/",
            user=unquote(parts.username) if parts.username else "guest",
            password=given if self.password is None else self.password,
            is_encrypted=parts.scheme == "amqps",
        )


def routing_key(pattern: str, pipeline: str, schema: str, table: str, op: str) -> str:
    """The routing key that a pattern means. Names keep their letters; a dot, a space, ``*`` and
    ``#`` in them become ``_``, so that each is one word.
    """
    words = zip(_PLACES, (pipeline, schema, table, op), strict=True)
    key = pattern.format(**{place: _NOT_IN_WORDS.sub("_", word) for place, word in words})
    if len(key.encode()) > LONGEST_KEY:
        raise DestinationError(
            f"destination rabbitmq: {pattern!r} gives a routing key of {len(key.encode())} bytes "
            f"for table {schema}.{table}; {LONGEST_KEY} are allowed",
            remedy="set destination.routing_key to a pattern that gives shorter ones",
        )
    return key
