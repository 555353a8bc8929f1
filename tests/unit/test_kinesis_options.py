"""The kinesis destination's options, streams and failures, without a server."""

from __future__ import annotations

import re
from typing import Any

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)
from pydantic import ValidationError

from penstock.destination.kinesis.clients import admin_client
from penstock.destination.kinesis.failures import failure
from penstock.destination.kinesis.options import STREAMS, KinesisOptions
from penstock.destination.kinesis.sender import Routes
from penstock.model.errors import DestinationError, DestinationUnavailable
from penstock.testing.change_builder import ChangeBuilder
from tests.unit.test_queue_events import encoder, some_changes


def options(**given: Any) -> KinesisOptions:
    return KinesisOptions.model_validate(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"stream": "{database}"}, "Input should be a stream's name, in which {pipeline}"),
        ({"other_stream": "{pipeline}.{table}"}, "it is of no single table"),
        ({"lanes": {"by": "column"}}, "Input should be 'schema', 'table', 'key' or 'transaction'"),
        ({"streams": {"shards": 0}}, "greater than or equal to 1"),
        ({"oversize": "drop"}, "Input should be 'error'"),
    ],
)
def test_wrong_options(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        options(**given)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("localhost:4566", "https://localhost:4566"),
        ("https://vpce.example", "https://vpce.example"),
        ("http://localhost:4566", "http://localhost:4566"),
    ],
)
def test_an_endpoint_is_encrypted_unless_told(given: str, url: str) -> None:
    assert options(endpoint_url=given).endpoint_url == url


def test_names_of_streams() -> None:
    assert STREAMS.name("{pipeline}.{table}", "shop", "public", "größe 1") == "shop.gr__e_1"
    with pytest.raises(DestinationError, match="1 to 128 characters") as error:
        STREAMS.name("{table}", "shop", "public", "t" * 129)
    assert "destination.stream" in error.value.remedy


def test_where_events_go() -> None:
    events = encoder().events(some_changes(ChangeBuilder()))
    (one,) = Routes(options(), "shop").by_stream(events)
    assert one[0] == "shop"
    assert one[1] is events
    split = dict(Routes(options(stream="{table}", other_stream="rest"), "shop").by_stream(events))
    assert {name: len(found) for name, found in split.items()} == {
        "items": 61, "loose": 31, "notes": 30, "rest": 1,
    }  # fmt: skip
    assert set(split["notes"].column("table").to_pylist()) == {"notes"}


@pytest.mark.parametrize(
    ("error", "kind", "remedy"),
    [
        ("AccessDeniedException", DestinationError, "grant"),
        ("ResourceNotFoundException", DestinationError, "destination.streams.create"),
        ("ExpiredTokenException", DestinationError, "credentials"),
        ("KMSDisabledException", DestinationError, "KMS"),
        (NoCredentialsError(), DestinationError, "credentials"),
        ("ProvisionedThroughputExceededException", DestinationUnavailable, "shards"),
        ("KMSThrottlingException", DestinationUnavailable, ""),
        ("InternalFailure", DestinationUnavailable, ""),
        (EndpointConnectionError(endpoint_url="x"), DestinationUnavailable, "endpoint"),
        (ReadTimeoutError(endpoint_url="x"), DestinationUnavailable, "endpoint"),
    ],
    ids=str,
)
def test_what_lasts_and_what_passes(
    error: str | BotoCoreError, kind: type[DestinationError], remedy: str
) -> None:
    met = client_error(error) if isinstance(error, str) else error
    found = failure(met, "sending")
    assert type(found) is kind
    assert "sending failed" in found.message
    assert remedy in found.remedy


def client_error(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "PutRecords")


def test_an_endpoint_that_is_none() -> None:
    with pytest.raises(DestinationError, match="not a url") as error:
        admin_client(options(region="eu-central-1", endpoint_url="https://not a url"))
    assert "endpoint_url" in error.value.remedy
