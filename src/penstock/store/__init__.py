"""What a pipeline remembers of its tables: states, definitions, targets, copies, wishes."""

from __future__ import annotations

from penstock.config.models import PipelineConfig
from penstock.store.contract import SchemaVersion, Store
from penstock.store.copies import ChunkDone, CopyProgress, Wish
from penstock.store.copy_jobs import SeenWorker, WorkerReport
from penstock.store.memory import MemoryStore
from penstock.store.postgres import PostgresStore

__all__ = [
    "ChunkDone",
    "CopyProgress",
    "MemoryStore",
    "PostgresStore",
    "SchemaVersion",
    "SeenWorker",
    "Store",
    "Wish",
    "WorkerReport",
    "pipeline_store",
]


def pipeline_store(config: PipelineConfig, delivery: str | None = None) -> PostgresStore:
    """The store that a pipeline file asks for; it connects when it is first used. ``delivery`` is
    another one than that of the view.
    """
    name = delivery or config.delivery
    if config.store.url is not None:
        return PostgresStore(config.store.url, name, rules_of=config.name, url_key="store.url")
    return PostgresStore(config.source.url, name, rules_of=config.name, url_key="source.url")
