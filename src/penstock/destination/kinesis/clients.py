"""Clients of Kinesis, which executors keep between tasks: making one takes longer than a batch."""

from __future__ import annotations

from typing import Any

from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from penstock.destination.kinesis.failures import failure
from penstock.destination.kinesis.options import KinesisOptions
from penstock.model.errors import DestinationError

_CONNECT_SECONDS = 10
_READ_SECONDS = 20


def admin_client(options: KinesisOptions) -> Any:
    """For calls that may be made twice, by botocore itself as well."""
    return _client(options, Config(retries={"mode": "standard", "total_max_attempts": 8}))


_kept: dict[str, Any] = {}


def kept_client(options: KinesisOptions) -> Any:
    """This process's client for sending records."""
    name = options.model_dump_json()
    if name not in _kept:
        # Whoever keeps the order decides what is sent again, and when.
        once = Config(retries={"total_max_attempts": 1}, parameter_validation=False)
        _kept[name] = _client(options, once)
    return _kept[name]


def forget_client(options: KinesisOptions) -> None:
    """The next one is made anew, with the credentials that are found then."""
    client = _kept.pop(options.model_dump_json(), None)
    if client is not None:
        client.close()


def _client(options: KinesisOptions, config: Config) -> Any:
    timeouts = Config(connect_timeout=_CONNECT_SECONDS, read_timeout=_READ_SECONDS)
    try:
        return Session().client(
            "kinesis",
            region_name=options.region,
            endpoint_url=options.endpoint_url,
            config=timeouts.merge(config),
        )
    except BotoCoreError as error:
        raise failure(error, "making a client") from None
    except ValueError as error:
        raise DestinationError(
            f"destination kinesis: {error}", remedy="see destination.endpoint_url"
        ) from None
