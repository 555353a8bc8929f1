"""Destinations with secrets in their part of the pipeline file, for each kind that takes one."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.clickhouse_server import ClickHouseServer
from tests.kafka_server import KafkaServer
from tests.kinesis_server import KinesisServer
from tests.objects_server import SECRET, ObjectServer
from tests.opensearch_server import OpenSearchServer
from tests.rabbitmq_server import USERS, RabbitServer
from tests.redshift_stand_in import ROLE, RedshiftStandIn
from tests.webhook_shop import KEY

PLANTED = "pl4nted-dest1nation"
SECRETS = (PLANTED, USERS["penstock"], SECRET, KEY)
"""Some servers ask for a password of their own; the others take any."""


@dataclass
class Given:
    """``destination`` is a part of the pipeline file, ``environment`` what it takes its secrets
    from. ``objects`` holds the change log, too, with the options ``log_options``.
    """

    destination: dict[str, Any]
    environment: dict[str, str] = field(default_factory=dict)
    objects: ObjectServer | None = None
    log_options: dict[str, str] = field(default_factory=dict)


@dataclass
class Surroundings:
    """What a test has: fixtures, a folder, and ``stack`` for what is closed at its end."""

    request: pytest.FixtureRequest
    folder: Path
    stack: ExitStack

    def target(self) -> str:
        return with_password(self.request.getfixturevalue("target_url"), PLANTED)

    def objects(self) -> ObjectServer:
        server: ObjectServer = self.request.getfixturevalue("object_server")
        return server


def with_password(url: str, password: str) -> str:
    """The test servers ask for none, so that any will do."""
    return re.sub(r"//([^:@/]*)(:[^@/]*)?@", rf"//\1:{password}@", url)


def _postgres(around: Surroundings) -> Given:
    return Given({"url": "${SECRET_TARGET}"}, {"SECRET_TARGET": around.target()})


def _kafka(around: Surroundings) -> Given:
    server: KafkaServer = around.request.getfixturevalue("kafka_server")
    # Not asked for on the plain listener, and sent to tasks all the same.
    client = {"sasl.password": "${SECRET_KAFKA}", "sasl.username": "somebody"}
    return Given({"brokers": server.brokers, "client": client}, {"SECRET_KAFKA": PLANTED})


def _kinesis(around: Surroundings) -> Given:
    server: KinesisServer = around.request.getfixturevalue("kinesis_server")
    keys = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": PLANTED}
    return Given(dict(server.destination), keys)


def _rabbitmq(around: Surroundings) -> Given:
    server: RabbitServer = around.request.getfixturevalue("rabbit_server")
    more = {"password": "${SECRET_RABBIT}", "declare": True, "unroutable": "count"}
    return Given({**server.destination, **more}, {"SECRET_RABBIT": USERS["penstock"]})


def _webhooks(around: Surroundings) -> Given:
    return Given(
        {
            "url": "${SECRET_TARGET}",
            "path": str(around.folder / "outbox"),
            "secret_key": "${SECRET_KEY}",
            "api": {"token": "${SECRET_TOKEN}", "listen": "127.0.0.1:0"},
        },
        {"SECRET_TARGET": around.target(), "SECRET_KEY": KEY, "SECRET_TOKEN": PLANTED},
    )


def _search(around: Surroundings) -> Given:
    server: OpenSearchServer = around.request.getfixturevalue("opensearch_server")
    user = {"user": "somebody", "password": "${SECRET_SEARCH}", "replicas": 0}
    return Given({"url": server.url, **user}, {"SECRET_SEARCH": PLANTED})


def _clickhouse(around: Surroundings) -> Given:
    server: ClickHouseServer = around.request.getfixturevalue("clickhouse_server")
    return Given(
        {"url": server.url, "password": "${SECRET_CLICKHOUSE}"}, {"SECRET_CLICKHOUSE": PLANTED}
    )


def _ducklake(around: Surroundings) -> Given:
    server = around.objects()
    options = _hidden(server.direct_options)
    place = {"data_path": server.place(), "data_options": options}
    secrets = {"SECRET_TARGET": around.target(), "SECRET_STAGE": SECRET}
    return Given({"catalog": "${SECRET_TARGET}", **place}, secrets)


def _iceberg(around: Surroundings) -> Given:
    server = around.objects()
    options = _hidden(server.direct_options)
    return Given(
        {
            "catalog": "${SECRET_TARGET}",
            "warehouse": server.place(),
            "stage": server.place(),
            "stage_options": options,
            "properties": {
                f"s3.{name.replace('_', '-')}": value for name, value in options.items()
            },
        },
        {"SECRET_TARGET": around.target(), "SECRET_STAGE": SECRET},
    )


def _redshift(around: Surroundings) -> Given:
    server = around.objects()
    target = around.request.getfixturevalue("target_url")
    stand_in = RedshiftStandIn(target, server.direct_options)
    around.stack.callback(stand_in.close)
    place = conninfo_to_dict(stand_in.url)
    url = (
        f"postgresql://{place['user']}:{PLANTED}@{place['host']}:{place['port']}/{place['dbname']}"
    )
    return Given(
        {
            "url": "${SECRET_TARGET}",
            "stage": server.place(),
            "stage_options": _hidden(server.direct_options),
            "iam_role": ROLE,
        },
        {"SECRET_TARGET": url, "SECRET_STAGE": SECRET},
    )


def _files(around: Surroundings) -> Given:
    """In a bucket, where the change log is, too."""
    server = around.objects()
    options = _hidden(server.direct_options)
    return Given(
        {"path": server.place(), "options": options}, {"SECRET_STAGE": SECRET}, server, options
    )


def _stdout(_around: Surroundings) -> Given:
    return Given({})


def _hidden(options: dict[str, str]) -> dict[str, str]:
    return {**options, "secret_access_key": "${SECRET_STAGE}"}


KINDS: dict[str, Callable[[Surroundings], Given]] = {
    "postgres": _postgres,
    "kafka": _kafka,
    "kinesis": _kinesis,
    "rabbitmq": _rabbitmq,
    "webhooks": _webhooks,
    "search": _search,
    "clickhouse": _clickhouse,
    "ducklake": _ducklake,
    "iceberg": _iceberg,
    "redshift": _redshift,
    "files": _files,
    "stdout": _stdout,
}
WITHOUT = {
    "delta": "takes none but those of its object store: test_delta_objects.py",
    "discard": "takes no secret",
    "memory": "takes no secret",
    "memory-tables": "takes no secret",
    "memory-versioned": "takes no secret",
    "snowflake": "its stand-in is a module of the test's own process",
    "bigquery": "takes no secret but the path of a file; its stand-in's client is a test's own",
}
"""Why the others are not looked at."""
