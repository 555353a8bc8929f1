"""A Debezium consumer reads our Kafka topics unchanged.

The consumer is Spark's from_json with the schema that a real Debezium engine put into its messages.
A whole pipeline sends what the engine was given, and the consumer sees the same rows in our
messages as in the engine's. The golden messages are those of test_debezium_golden.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark users write it)
from pyspark.sql import types as t

from tests.fix_pipeline import PipelineUnderTest
from tests.golden.debezium.scenarios import DATABASE, SCENARIOS, SERVER, Scenario
from tests.integration.test_debezium_golden import OPTIONS, REPLACED
from tests.integration.test_kafka import catch_up
from tests.kafka_messages import place, read_topics
from tests.kafka_server import KafkaServer

Json = Any

_PRIMITIVES = {
    "int8": t.ByteType(),
    "int16": t.ShortType(),
    "int32": t.IntegerType(),
    "int64": t.LongType(),
    "float": t.FloatType(),
    "float32": t.FloatType(),
    "double": t.DoubleType(),
    "float64": t.DoubleType(),
    "boolean": t.BooleanType(),
    "string": t.StringType(),
    "bytes": t.BinaryType(),
}


@dataclass(frozen=True)
class Message:
    """``topic`` without its first part; ``value`` is None for a tombstone."""

    topic: str
    key: str | None
    value: str | None


@pytest.mark.parametrize(
    ("name", "schemas_of"),
    [
        # Messages without a schema: the consumer brings it.
        ("row_changes", "row_changes_schemas"),
        pytest.param("row_changes_schemas", "row_changes_schemas", marks=pytest.mark.release),
        pytest.param("schemas_plain", "schemas_plain", marks=pytest.mark.release),
        pytest.param("schemas_connect", "schemas_connect", marks=pytest.mark.release),
    ],
)
def test_a_consumer_of_debezium_reads_the_same_from_our_topics(
    name: str,
    schemas_of: str,
    pipeline: PipelineUnderTest,
    kafka_server: KafkaServer,
    spark: SparkSession,
) -> None:
    scenario = _scenario(name)
    ours = _sent(pipeline, kafka_server, spark, scenario)
    theirs = [
        Message(_table(line["topic"]), _text(line["key"]), _text(line["value"]))
        for line in _golden(scenario)
    ]
    assert [(m.topic, m.value is None) for m in ours] == [
        (m.topic, m.value is None) for m in theirs
    ]
    schemas = _schemas(_scenario(schemas_of), within=name == schemas_of)
    for topic, (key, value) in schemas.items():
        both = [
            _read(spark, [m for m in side if m.topic == topic], key, value)
            for side in (ours, theirs)
        ]
        assert both[0] == both[1]
        # Rows of nulls would be equal, too.
        assert any(any((row["after"] or {}).values()) for _, row in both[0] if row)


def _scenario(name: str) -> Scenario:
    (found,) = (scenario for scenario in SCENARIOS if scenario.name == name)
    return found


def _table(topic: str | None) -> str:
    assert topic is not None
    return topic.split(".", 1)[1]


def _text(value: Json) -> str | None:
    return None if value is None else json.dumps(value)


def _golden(scenario: Scenario) -> list[Json]:
    return [json.loads(line) for line in scenario.messages.read_text().splitlines()]


def _sent(
    pipeline: PipelineUnderTest, kafka: KafkaServer, spark: SparkSession, scenario: Scenario
) -> list[Message]:
    """What a pipeline sends of the scenario's SQL, in the order of the changes."""
    chosen = {OPTIONS[k]: v for k, v in scenario.settings.items() if k in OPTIONS}
    destination = {
        "type": "kafka",
        "brokers": kafka.brokers,
        "format": "debezium",
        "debezium": {"server": SERVER, "database": DATABASE, **chosen},
    }
    pipeline.configure(destination=destination, copy=False)
    before, streamed = scenario.statements()
    pipeline.execute(*before)
    catch_up(pipeline, spark)
    with psycopg.connect(pipeline.url, autocommit=True) as conn:
        for statement in streamed:
            conn.execute(statement.encode())
    catch_up(pipeline, spark)
    found = read_topics(kafka.brokers, lambda topic: topic.startswith(f"{pipeline.name}.public."))
    return [
        Message(_table(m.topic()), _decoded(m.key()), _decoded(m.value()))
        for m in sorted(found, key=place)
    ]


def _decoded(text: bytes | str | None) -> str | None:
    return text.decode() if isinstance(text, bytes) else text


# -- the consumer ------------------------------------------------------------------------------


def _schemas(scenario: Scenario, *, within: bool) -> dict[str, tuple[t.StructType, t.StructType]]:
    """Of each topic what its keys and its values are, as the engine's own messages say it;
    ``within`` messages that hold their schemas, too.
    """
    found = {}
    for line in _golden(scenario):
        if line["value"] is not None:
            key, value = (_message_type(line[part]["schema"], within) for part in ("key", "value"))
            found[_table(line["topic"])] = (key, value)
    return found


def _message_type(schema: Json, within: bool) -> t.StructType:
    payload = _spark_type(schema)
    assert isinstance(payload, t.StructType)
    return t.StructType([t.StructField("payload", payload)]) if within else payload


def _spark_type(schema: Json) -> t.DataType:
    """A schema of Kafka Connect as a type of Spark."""
    if schema["type"] == "struct":
        fields = [t.StructField(f["field"], _spark_type(f)) for f in schema["fields"]]
        return t.StructType(fields)
    if schema["type"] == "array":
        return t.ArrayType(_spark_type(schema["items"]))
    return _PRIMITIVES[schema["type"]]


def _read(
    spark: SparkSession, messages: Sequence[Message], key: t.StructType, value: t.StructType
) -> list[tuple[Json, Json]]:
    """Keys and values as Spark reads them, without what differs by run."""
    frame = spark.createDataFrame([(m.key, m.value) for m in messages], "key string, value string")
    # FAILFAST: what does not fit the schema is an error, not a null.
    parsed = frame.select(
        *(
            F.from_json(name, schema, {"mode": "FAILFAST"}).alias(name)
            for name, schema in (("key", key), ("value", value))
        )
    )
    rows = [row.asDict(recursive=True) for row in parsed.collect()]
    return [(_payload(row["key"]), _comparable(_payload(row["value"]))) for row in rows]


def _payload(row: Json) -> Json:
    return row["payload"] if row is not None and "payload" in row else row


def _comparable(row: Json) -> Json:
    if row is None:
        return None
    source = {name: None if name in REPLACED else value for name, value in row["source"].items()}
    return {**{k: v for k, v in row.items() if not k.startswith("ts_")}, "source": source}
