"""Every destination that is shipped, as the suite makes it."""

from __future__ import annotations

from tests.contract.adapters import (
    Adapter,
    DiscardAdapter,
    MemoryAdapter,
    NdjsonFilesAdapter,
    ParquetFilesAdapter,
    PostgresAppendAdapter,
    PostgresMergeAdapter,
    StdoutAdapter,
    TypedDiscardAdapter,
)
from tests.contract.family_adapters import MemoryTablesAdapter, MemoryVersionedAdapter
from tests.contract.kafka_adapter import KafkaAdapter, TransactionalKafkaAdapter
from tests.contract.kinesis_adapter import AggregatedKinesisAdapter, KinesisAdapter

ADAPTERS: dict[str, type[Adapter]] = {
    "memory": MemoryAdapter,
    "memory-tables": MemoryTablesAdapter,
    "memory-versioned": MemoryVersionedAdapter,
    "discard": DiscardAdapter,
    "discard-typed": TypedDiscardAdapter,
    "stdout": StdoutAdapter,
    "files-parquet": ParquetFilesAdapter,
    "files-ndjson": NdjsonFilesAdapter,
    "postgres-merge": PostgresMergeAdapter,
    "postgres-append": PostgresAppendAdapter,
    "kafka-plain": KafkaAdapter,
    "kafka-transactional": TransactionalKafkaAdapter,
    "kinesis": KinesisAdapter,
    "kinesis-aggregated": AggregatedKinesisAdapter,
}
