"""A broker that asks for TLS, a password and rights: what a pipeline needs, and what it says."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from penstock.destination.kafka.destination import KafkaDestination
from penstock.destination.kafka.options import KafkaOptions
from penstock.destination.registry import make_destination
from penstock.model.errors import DestinationError, DestinationUnavailable
from tests.fix_pipeline import PipelineUnderTest
from tests.kafka_messages import read_topics
from tests.kafka_server import USERS, KafkaServer
from tests.loopback_server import free_ports
from tests.pipelines import pipeline_on


def client(server: KafkaServer, user: str, **others: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": user,
        "sasl.password": USERS[user],
        "ssl.ca.location": str(server.certificate),
        **{name.replace("_", "."): value for name, value in others.items()},
    }


def destination(server: KafkaServer, user: str, **others: str) -> KafkaDestination:
    options = KafkaOptions(brokers=server.secured_brokers, client=client(server, user, **others))
    return KafkaDestination(options, f"t_{uuid.uuid4().hex[:12]}")


def grant(
    server: KafkaServer, user: str, kind: ResourceType, prefix: str, *operations: str
) -> None:
    admin = AdminClient({"bootstrap.servers": server.brokers})
    made = admin.create_acls(
        [
            AclBinding(
                kind, prefix, ResourcePatternType.PREFIXED, f"User:{user}", "*",
                AclOperation[operation], AclPermissionType.ALLOW,
            )
            for operation in operations
        ]
    )  # fmt: skip
    for future in made.values():
        future.result()


@pytest.mark.parametrize("transactional", [False, True])
def test_the_documented_rights_are_enough(
    transactional: bool,
    pipeline: PipelineUnderTest,
    kafka_server: KafkaServer,
    spark: SparkSession,
) -> None:
    grant(kafka_server, "granted", ResourceType.TOPIC, pipeline.name, "WRITE", "DESCRIBE", "CREATE")
    if transactional:
        positions = f"_penstock.{pipeline.name}.positions"
        grant(
            kafka_server, "granted", ResourceType.TOPIC, positions,
            "WRITE", "DESCRIBE", "CREATE", "READ",
        )  # fmt: skip
        grant(
            kafka_server, "granted", ResourceType.TRANSACTIONAL_ID, positions, "WRITE", "DESCRIBE"
        )
    pipeline.configure(
        destination={
            "type": "kafka",
            "brokers": kafka_server.secured_brokers,
            "transactional": transactional,
            "client": client(kafka_server, "granted"),
        },
        copy=True,
    )
    pipeline.execute("CREATE TABLE items (id int PRIMARY KEY)")
    pipeline.execute("INSERT INTO items SELECT generate_series(1, 3)")
    config = pipeline.config
    made = make_destination(config.destination_type, config.destination_options, config.name)
    assert made.check() == []
    for _ in range(2):
        run = pipeline_on(spark, config, pipeline.file)
        run.run(lambda: False, until_caught_up=True)
        pipeline.execute("INSERT INTO items SELECT max(id) + 1 FROM items")
    assert made.check() == []
    topic = f"{pipeline.name}.public.items"
    assert len(read_topics(kafka_server.brokers, lambda name: name == topic)) == 4


def test_a_wrong_password(kafka_server: KafkaServer) -> None:
    with pytest.raises(DestinationUnavailable) as caught:
        destination(kafka_server, "granted", sasl_password="hunter2").check()
    text = str(caught.value)
    assert "Authentication failed" in text
    assert "hunter2" not in text
    assert "password" in (caught.value.remedy or "")


def test_a_certificate_that_is_not_trusted(kafka_server: KafkaServer, tmp_path: Path) -> None:
    with KafkaServer(secured=True) as other:
        others = str(other.certificate)
        with pytest.raises(DestinationUnavailable) as caught:
            destination(kafka_server, "granted", ssl_ca_location=others).check()
    assert "certificate" in str(caught.value)
    assert "TLS" in (caught.value.remedy or "")


def test_nobody_listens() -> None:
    (port,) = free_ports(1)
    with pytest.raises(DestinationUnavailable, match="refused"):
        KafkaDestination(KafkaOptions(brokers=f"127.0.0.1:{port}"), "shop").check()


def test_a_user_that_may_not_create_topics(kafka_server: KafkaServer) -> None:
    with pytest.raises(DestinationError, match=r"creating topic .*uthoriz") as caught:
        destination(kafka_server, "stranger").check()
    assert "grant" in (caught.value.remedy or "")


def test_a_user_that_may_not_write(kafka_server: KafkaServer) -> None:
    made = destination(kafka_server, "stranger")
    admin = AdminClient({"bootstrap.servers": kafka_server.brokers})
    topics = [f"{made.pipeline}.schema", f"{made.pipeline}.messages"]
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in topics]).values():
        future.result()
    grant(kafka_server, "stranger", ResourceType.TOPIC, made.pipeline, "DESCRIBE")
    with pytest.raises(DestinationError, match="may not write to topic"):
        made.check()
    grant(kafka_server, "stranger", ResourceType.TOPIC, made.pipeline, "WRITE")
    assert made.check() == []
