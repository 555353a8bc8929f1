"""The `webhooks` destination's part of the pipeline file.

Nothing here loads Arrow or an HTTP client: every command reads a pipeline file.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from penstock.config.connection_url import ConnectionUrl
from penstock.config.metrics_config import AddressText, ListenAddress
from penstock.config.models import StorageOption
from penstock.config.quantities import Duration, Size
from penstock.destination.contract import DestinationOptions
from penstock.destination.encode.debezium.options import DebeziumOptions
from penstock.destination.encode.penstock_options import PenstockOptions
from penstock.destination.families.queue.finders import IdentityName
from penstock.destination.families.queue.options import LaneBy
from penstock.objects.bucket import is_bucket

_SHORTEST_TOKEN = 16


def _network(value: str) -> str:
    try:
        ipaddress.ip_network(value)
    except ValueError:
        raise PydanticCustomError(
            "network", "Input should be a network such as 10.1.0.0/16 or fd00:1::/64"
        ) from None
    return value


def _place(value: str) -> str:
    if "://" in value and not is_bucket(value):
        raise PydanticCustomError(
            "place",
            "Input should be a folder that driver and executors share, or a place in an object "
            "store such as s3://bucket/prefix",
        )
    return value


def _key(value: SecretStr) -> SecretStr:
    for key in value.get_secret_value().split(","):
        try:
            length = len(base64.urlsafe_b64decode(key.strip()))
        except (binascii.Error, ValueError):
            length = 0
        if length != 32:
            raise PydanticCustomError(
                "secret_key",
                "Input should be a key as `penstock webhooks key` prints it; after a change the "
                "new one, a comma and the old one",
            )
    return value


def _token(value: SecretStr) -> SecretStr:
    if len(value.get_secret_value()) < _SHORTEST_TOKEN:
        raise PydanticCustomError("token", "Input should be a secret of 16 characters or more")
    return value


class ApiOptions(DestinationOptions):
    """Where subscriptions are managed over HTTP; ``token`` is what callers have to know."""

    token: Annotated[SecretStr, AfterValidator(_token)]
    listen: AddressText = ListenAddress("127.0.0.1", 8720)


class RetryOptions(DestinationOptions):
    """Pauses double from ``first`` to ``longest``; after ``give_up`` the subscription is paused."""

    first: Duration = 1.0
    longest: Duration = 900.0
    give_up: Duration = 86400.0


class BacklogOptions(DestinationOptions):
    """How much is kept for subscriptions that are behind, and for how long."""

    max_bytes: Size = 10 * 2**30
    max_age: Duration = 7 * 86400.0


class WebhooksOptions(DestinationOptions):
    """``url`` is a Postgres database for subscriptions and positions. ``path`` is where the outbox
    is: a folder, or a place in an object store with the options of its client. ``deliver``: by
    `penstock run`, or by `penstock webhooks serve`.
    """

    url: ConnectionUrl
    path: Annotated[str, Field(min_length=1), AfterValidator(_place)]
    path_options: dict[str, StorageOption] = Field(default_factory=dict)
    deliver: Literal["run", "serve"] = "run"
    api: ApiOptions | None = None
    secret_key: Annotated[SecretStr, AfterValidator(_key)] | None = None
    allow: tuple[Annotated[str, AfterValidator(_network)], ...] = ()
    http: bool = False
    timeout: Duration = 15.0
    max_body: Size = 2**20
    retry: RetryOptions = RetryOptions()
    backlog: BacklogOptions = BacklogOptions()
    order: LaneBy = "key"
    penstock: PenstockOptions = PenstockOptions()
    debezium: DebeziumOptions = DebeziumOptions()
    identity: IdentityName | None = None

    @property
    def revealed_path_options(self) -> dict[str, str]:
        """The options of the store as they are. Never log them."""
        return {name: value.get_secret_value() for name, value in self.path_options.items()}

    @model_validator(mode="after")
    def _options_have_a_store(self) -> WebhooksOptions:
        if self.path_options and not is_bucket(self.path):
            raise PydanticCustomError(
                "path_options", "path_options are those of an object store, and path is a folder"
            )
        return self

    def of_format(self, name: str) -> dict[str, Any]:
        """What the formats of all queues take, for one of them."""
        return {
            "format": name,
            "penstock": self.penstock,
            # A tombstone tells a log that compacts; here it would be a request without content.
            "debezium": self.debezium.model_copy(update={"tombstones": False}),
            "identity": self.identity,
        }
