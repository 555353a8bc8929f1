"""`source: {type: kafka, …}` of the pipeline file: topics in place of a database."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from penstock.config.librdkafka import Setting, all_but
from penstock.config.models import CopyConfig, PipelineConfig, SourceConfig
from penstock.config.quantities import Size

# What the guarantees rest on.
_OWN = frozenset(
    {
        *("bootstrap.servers", "metadata.broker.list", "group.id", "group.instance.id"),
        *("enable.auto.commit", "enable.auto.offset.store", "auto.offset.reset"),
        *("isolation.level", "enable.partition.eof", "allow.auto.create.topics"),
    }
)


class KafkaSourceConfig(SourceConfig):
    """Topics that Penstock or Debezium wrote.

    ``topics`` are names, or patterns that begin with ``^``. ``incomplete`` is about topics whose
    first messages are gone, ``on_malformed`` about messages that cannot be read, ``on_truncate``
    about a TRUNCATE that stands in no order with the rows of its table, ``split_transactions``
    about destinations that promise whole ones. ``transaction_topic`` is where Debezium marks
    transactions, which are put together then; ``transaction_bytes`` is how much of them is held
    meanwhile. ``url`` is that of the store, where the pipeline's lock is: no key of the file. Rows
    are never copied: they are in the topics.
    """

    type: Literal["kafka"] = "kafka"
    brokers: str = Field(min_length=1)
    topics: list[Annotated[str, Field(min_length=1)]] = Field(min_length=1)
    format: Literal["penstock", "debezium"] = "penstock"
    schema_topic: str | None = Field(default=None, min_length=1)
    group: str | None = Field(default=None, min_length=1)
    incomplete: Literal["refuse", "accept"] = "refuse"
    split_transactions: Literal["refuse", "accept"] = "refuse"
    transaction_topic: str | None = Field(default=None, min_length=1)
    transaction_bytes: Size = 256 * 2**20
    on_malformed: Literal["stop", "leave_out"] = "stop"
    on_truncate: Literal["stop", "leave_out"] = "stop"
    # repr=False: passwords are among them.
    client: Annotated[dict[str, Setting], all_but(_OWN)] = Field(default_factory=dict, repr=False)
    copy_rows: CopyConfig | None = Field(default=None, alias="copy")

    @field_validator("copy_rows", mode="before")
    @classmethod
    def _no_copy(cls, value: object) -> None:
        if value not in (None, False):
            raise PydanticCustomError(
                "kafka_copy",
                "a kafka source copies nothing: rows that were there are in its topics; leave it "
                "out",
            )

    @model_validator(mode="after")
    def _schema_topic_is_known(self) -> KafkaSourceConfig:
        if self.format == "penstock" and self.schema_topic is None:
            raise PydanticCustomError(
                "schema_topic",
                "format penstock needs schema_topic: the topic in which the pipeline that writes "
                "the topics announces its tables (its destination.schema_topic)",
            )
        return self

    @model_validator(mode="after")
    def _transactions_are_marked(self) -> KafkaSourceConfig:
        if self.transaction_topic is None:
            return self
        if self.format == "penstock":
            raise PydanticCustomError(
                "transaction_topic",
                "transaction_topic is for format debezium: Penstock writes no markers of "
                "transactions into topics; remove it",
            )
        if self.transaction_topic == self.schema_topic:
            raise PydanticCustomError(
                "transaction_topic", "transaction_topic and schema_topic are two topics"
            )
        if self.transaction_bytes > 2**30:
            # What the rows of one transaction take in a segment counts in 32 bits.
            raise PydanticCustomError("transaction_bytes", "transaction_bytes is 1GiB at most")
        return self


class KafkaPipelineConfig(PipelineConfig):
    """A pipeline that reads topics. Its store cannot be in the source, and holds its lock."""

    source: KafkaSourceConfig

    @model_validator(mode="before")
    @classmethod
    def _lock_in_the_store(cls, data: Any) -> Any:
        source = data.get("source") if isinstance(data, dict) else None
        if not isinstance(source, dict):
            return data
        if "url" in source:
            raise PydanticCustomError(
                "kafka_url", "source.url is for a Postgres source; a kafka source has brokers"
            )
        store = data.get("store")
        url = store.get("url") if isinstance(store, dict) else None
        if url is None:
            raise PydanticCustomError(
                "kafka_store",
                "a kafka source needs store.url: a Postgres database that holds the pipeline's "
                "lock and the states of its tables",
            )
        return {**data, "source": {**source, "url": url}}


def pipeline_model(document: Any) -> type[PipelineConfig]:
    """What a file is checked by: its ``source.type`` says."""
    source = document.get("source") if isinstance(document, dict) else None
    if isinstance(source, dict) and source.get("type") == "kafka":
        return KafkaPipelineConfig
    return PipelineConfig
