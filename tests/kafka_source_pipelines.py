"""Two pipelines in a row: a database into topics, and these topics into another database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.changelog.changelog import ChangeLog
from penstock.config import load_deliveries
from penstock.config.models import PipelineConfig
from tests.crash.row_texts import expect_same_rows
from tests.documented import destination_example, source_example
from tests.fix_pipeline import PipelineUnderTest
from tests.kafka_server import KafkaServer
from tests.pipelines import pipeline_on
from tests.threads_engine import Threads

TABLES = (
    """CREATE TABLE items (id bigint PRIMARY KEY, name text, price numeric(10,2), doc json,
       tags text[], at timestamptz, big text)""",
    "ALTER TABLE items ALTER big SET STORAGE EXTERNAL",
    """INSERT INTO items SELECT n, 'old ' || n, n / 7.0, '{"a":  1.0, "n": 12345678901234567890}',
       ARRAY['x', NULL, 'y"z'], '2026-01-02 03:04:05.678+00', repeat(md5(n::text), 100)
       FROM generate_series(1, 200) n""",
    "CREATE TABLE places (a int, b text, note text, PRIMARY KEY (a, b))",
    "INSERT INTO places SELECT n % 5, 'p' || n, NULL FROM generate_series(1, 50) n",
)


class TopicsInBetween:
    """``first`` writes the topics; ``file`` is the pipeline that reads them into ``target``."""

    def __init__(
        self,
        first: PipelineUnderTest,
        kafka: KafkaServer,
        target: str,
        partitions: int = 3,
        **options: Any,
    ) -> None:
        self.first = first
        self.kafka = kafka
        self.target = target
        self.name = f"{first.name[:20]}_back"
        self.file = first.folder / "back.yaml"
        first.configure(
            include=("public.*",),
            destination={
                **destination_example("kafka"),
                "brokers": kafka.brokers,
                "announce": True,
                "lanes": {"by": "key", "count": 2},
                "topics": {"partitions": partitions},
                **options,
            },
            copy=True,
        )
        self.configure()

    def configure(self, **source: Any) -> None:
        example = source_example("kafka")
        content: dict[str, Any] = {
            "name": self.name,
            "source": {
                **example,
                "brokers": self.kafka.brokers,
                "topics": [rf"^{self.first.name}\.public\..*"],
                "schema_topic": f"{self.first.name}.schema",
                **source,
            },
            "store": {"url": self.target},
            "destination": {"type": "postgres", "url": self.target},
            "change_log": {"path": str(self.log_path)},
            "metrics": {"listen": "127.0.0.1:0"},
        }
        if source.get("format") == "debezium":
            del content["source"]["schema_topic"]
        self.file.write_text(yaml.safe_dump(content))

    @property
    def log_path(self) -> Path:
        return self.first.folder / "back_log"

    @property
    def log(self) -> ChangeLog:
        return ChangeLog(str(self.log_path))

    @property
    def config(self) -> PipelineConfig:
        return load_deliveries(self.file)[0]

    def write(self, tasks: Threads) -> None:
        """Let the topics have what the first database has."""
        first = pipeline_on(tasks, self.first.config, self.first.file)
        first.run(lambda: False, until_caught_up=True)

    def read(self, tasks: Threads) -> None:
        """Let the second database have what the topics have."""
        pipeline_on(tasks, self.config, self.file).run(lambda: False, until_caught_up=True)

    def expect_same(self, *tables: str) -> int:
        return expect_same_rows(self.first.url, self.target, tables or ("items", "places"))

    def execute(self, *statements: str) -> None:
        self.first.execute(*statements)

    def execute_there(self, statement: str) -> None:
        with psycopg.connect(self.target, autocommit=True) as conn:
            conn.execute(statement.encode())

    def topic(self, table: str) -> str:
        return f"{self.first.name}.public.{table}"

    def produce(self, topic: str, value: bytes | None, key: bytes | None = None) -> None:
        """Put a message there that no pipeline wrote."""
        producer = Producer({"bootstrap.servers": self.kafka.brokers})
        producer.produce(topic, value, key)
        assert producer.flush(30) == 0

    def delete(self, *topics: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.kafka.brokers})
        for future in admin.delete_topics(list(topics)).values():
            future.result()
        while set(topics) & admin.list_topics(timeout=10).topics.keys():
            pass

    def recreate(self, topic: str, partitions: int = 3) -> None:
        self.delete(topic)
        admin = AdminClient({"bootstrap.servers": self.kafka.brokers})
        for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
            future.result()
