"""Transactions that Debezium marks, with a real broker: whoever reads the second database never
sees a part of one.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.changelog.changelog import ChangeLog
from penstock.config import load_deliveries
from penstock.config.models import PipelineConfig
from penstock.model.errors import IdentityChanged, SourceError
from penstock.source.registry import source_checks
from tests.crash.penstock_run import WITHOUT_SPARK, PenstockRun
from tests.fix_pipeline import wait_until
from tests.kafka_server import KafkaServer
from tests.marked_messages import Change, Connector, Message
from tests.pipelines import pipeline_on
from tests.threads_engine import Threads

ACCOUNTS, PARTITIONS = 12, 3
_SUM = "SELECT sum(amount), count(*) FROM (SELECT * FROM given UNION ALL SELECT * FROM taken) each"


class Bookkeeping:
    """What is given to one account is taken from another: in each transaction the sum is zero."""

    def __init__(self, kafka: KafkaServer, folder: Path, target: str, prefix: str) -> None:
        self.connector = Connector(prefix)
        self.file = folder / "marked.yaml"
        self.target = target
        self._kafka = kafka
        self._chance = random.Random(7)
        self._number = self._beats = 0
        self._log = folder / "log"
        self._folder = folder
        self._topics = [f"{prefix}.public.{table}" for table in ("given", "taken", "beats")]
        make_topics(kafka, dict.fromkeys(self._topics, PARTITIONS) | {f"{prefix}.transaction": 1})
        self.configure(transaction_topic=f"{prefix}.transaction")

    def configure(self, **source: object) -> None:
        content = {
            "name": "marked",
            "source": {
                "type": "kafka",
                "brokers": self._kafka.brokers,
                "topics": self._topics,
                "format": "debezium",
                "group": f"of {self.connector.prefix}",
                **source,
            },
            "store": {"url": self.target},
            "destination": {"type": "postgres", "url": self.target},
            "change_log": {"path": str(self._log), "segment_age": "50ms"},
            "metrics": {"listen": "127.0.0.1:0"},
        }
        self.file.write_text(yaml.safe_dump(content))

    @property
    def config(self) -> PipelineConfig:
        return load_deliveries(self.file)[0]

    @property
    def log(self) -> ChangeLog:
        return ChangeLog(str(self._log))

    def transactions(self, count: int) -> list[Message]:
        """Each gives something to some accounts, and takes the same from others."""
        said: list[Message] = []
        for _ in range(count):
            self._number += 1
            changes: list[Change] = []
            for _ in range(self._chance.randint(1, 3)):
                amount = self._chance.randint(1, 1000)
                number = self._chance.randrange(ACCOUNTS)
                for table, each in (("given", amount), ("taken", -amount)):
                    row = {"id": number, "amount": each}
                    changes.append(Change(table, row, "u", number % PARTITIONS))
            said += self.connector.transaction(self._number, *changes)
        return said

    def send(self, messages: Sequence[Message]) -> None:
        """Partition by partition."""
        producer = Producer({"bootstrap.servers": self._kafka.brokers, "log_level": "2"})
        for place in sorted({each.place for each in messages}):
            for each in messages:
                if each.place == place:
                    producer.produce(place.topic, each.value, each.key, place.partition)
            assert producer.flush(30) == 0

    def send_slowly(self, messages: Sequence[Message]) -> None:
        """Some partitions once what stands in others was seen by the second database, if it was to
        see it: a row of no transaction has come that was sent behind them.
        """
        first = set(self._chance.sample(sorted({each.place for each in messages}), 3))
        self.send([each for each in messages if each.place in first])
        self._beats += 1
        self.send(self.connector.read(Change("beats", {"id": self._beats}, "r")))
        wait_until(self._has_beaten, "the row has come")
        self.send([each for each in messages if each.place not in first])

    def _has_beaten(self) -> bool:
        with (
            suppress(psycopg.errors.UndefinedTable),
            psycopg.connect(self.target, autocommit=True) as conn,
        ):
            found = conn.execute("SELECT FROM beats WHERE id = %s", [self._beats])
            return found.fetchone() is not None
        return False

    def read(self, tasks: Threads) -> None:
        pipeline_on(tasks, self.config, self.file).run(lambda: False, until_caught_up=True)

    def there(self) -> dict[tuple[str, int], int]:
        """The rows of the second database."""
        with (
            suppress(psycopg.errors.UndefinedTable),
            psycopg.connect(self.target, autocommit=True) as conn,
        ):
            return {
                (table, number): amount
                for table in ("given", "taken")
                for number, amount in conn.execute(
                    f"SELECT id, amount FROM {table}".encode()  # noqa: S608
                )
            }
        return {}

    def wait_for(self, messages: Sequence[Message]) -> None:
        expected = self.expected(messages)
        wait_until(lambda: self.there() == expected, "all of it is there")

    def expected(self, messages: Sequence[Message]) -> dict[tuple[str, int], int]:
        found = {}
        for each in messages:
            payload = json.loads(each.value or b"")["payload"]
            if "after" in payload:
                row = payload["after"]
                found[payload["source"]["table"], row["id"]] = row["amount"]
        return found


class Auditor:
    """Looks at the sum all the time: a transaction of which only a part is there is in it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = threading.Event()
        self.sums: set[int] = set()
        self.looks = 0

    @contextmanager
    def looking(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _run(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as conn:
            while not self._stop.wait(0.005):
                try:
                    row = conn.execute(_SUM).fetchone()
                except psycopg.errors.UndefinedTable:
                    continue
                if row is not None and row[1]:
                    self.sums.add(int(row[0]))
                    self.looks += 1


@pytest.fixture
def books(
    kafka_server: KafkaServer, tmp_path: Path, target_url: str, request: pytest.FixtureRequest
) -> Bookkeeping:
    prefix = f"books_{abs(hash((request.node.name, str(tmp_path)))):x}"
    return Bookkeeping(kafka_server, tmp_path, target_url, prefix)


def make_topics(kafka: KafkaServer, partitions: dict[str, int]) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.brokers})
    made = admin.create_topics([NewTopic(name, count, 1) for name, count in partitions.items()])
    for future in made.values():
        future.result()


def test_transactions_arrive_whole_while_capture_is_killed(books: Bookkeeping) -> None:
    sent: list[Message] = []
    auditor = Auditor(books.target)
    run = PenstockRun(books.file, environment=WITHOUT_SPARK)
    try:
        with auditor.looking():
            for _ in range(2):
                said = books.transactions(20)
                # The connector dies in the middle, and says the last of it again.
                upto = len(said) * 2 // 3
                books.send_slowly(said[:upto])
                run.kill("capture")
                books.send_slowly(said[upto - 40 :])
                sent += said
                books.wait_for(sent)
            assert run.exit_code is None
    finally:
        run.end()
    run.expect_no_bug()
    assert auditor.sums == {0}
    assert auditor.looks > 10
    assert (books.log.capture_report() or {})["malformed"] == 0


def test_a_pipeline_catches_up_and_what_is_held_is_read_again(
    books: Bookkeeping, threads: Threads
) -> None:
    topic = f"{books.connector.prefix}.transaction"
    # Less than a partition is ahead of the others.
    books.configure(transaction_topic=topic, transaction_bytes="20KiB")
    said = books.transactions(50)
    books.send(said)
    assert [r for r in source_checks(books.config) if r.status == "failed"] == []
    books.read(threads)
    assert books.there() == books.expected(said)
    # Nothing is new: nothing happens.
    books.read(threads)
    more = books.transactions(2)
    books.send(more[:-1])
    run = PenstockRun(books.file, environment=WITHOUT_SPARK)
    try:
        whole = more[: next(n for n, each in enumerate(more) if each.is_end) + 1]
        books.wait_for([*said, *whole])
        wait_until(
            lambda: "for its END" in (books.log.capture_report() or {}).get("waits", ""),
            "it says what it waits for",
        )
    finally:
        run.end()
    books.send(more[-1:])
    books.read(threads)
    assert books.there() == books.expected([*said, *more])


@pytest.mark.release
def test_one_who_gives_transactions_up_reads_on_and_does_not_begin_again(
    books: Bookkeeping, threads: Threads
) -> None:
    said = books.transactions(5)
    books.send(said)
    books.read(threads)
    # Rows that fit no order.
    forged = Connector(books.connector.prefix).transaction(
        900, Change("given", {"id": 1, "amount": 5}, "u")
    )
    late = books.transactions(1)
    books.send([*forged[:-1], *late])
    with pytest.raises(SourceError, match="cannot be put together") as caught:
        books.read(threads)
    assert "split_transactions to accept" in caught.value.remedy
    books.configure(split_transactions="accept")
    books.read(threads)
    assert books.there() == books.expected([*said, *forged, *late])
    books.configure(transaction_topic=f"{books.connector.prefix}.transaction")
    with pytest.raises(IdentityChanged, match="with the transaction topic none"):
        books.read(threads)
