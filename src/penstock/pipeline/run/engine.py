"""What runs tasks for the driver. ``penstock.spark.engine`` is the one that there is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from penstock.changelog.chain import Batch
from penstock.config.models import PipelineConfig
from penstock.destination.contract import ChunkWriter, TaskWriter
from penstock.metrics.written import CopyResult, JobResult
from penstock.model.lsn import Frontier
from penstock.model.table_schema import TableSchema
from penstock.source.contract import OpenChunk
from penstock.source.copy_plan import Chunk
from penstock.transform.floors import Floors
from penstock.transform.section import Section
from penstock.transform.step import Step


@dataclass(frozen=True)
class TableToCopy:
    """What an executor needs to know of a table whose chunks it copies."""

    table: TableSchema
    where: str | None
    writer: ChunkWriter


class Query(Protocol):
    """Batches of the stream, one after another, until the block ends."""

    @property
    def is_under_way(self) -> bool:
        """Whether it has come as far as reading."""

    def wait(self, seconds: float) -> bool:
        """Wait; True once the query has ended by itself. Raises what made it end."""


@dataclass(frozen=True)
class QueryPart:
    """What a query asks the driver for: first ``floors_at``, then ``writer`` by the thread that
    begins its batches, ``commit`` by the one that commits them.
    """

    writer: Callable[[], TaskWriter]
    floors_at: Callable[[Frontier], Floors]
    """Once for each batch, with where it begins. May wait for tables that join there."""
    commit: Callable[[JobResult, Frontier], None]
    feed: str | None = None
    """The file in which new segments of the log are told (changelog/feed.py), if there is one."""


class Engine(ABC):
    """Runs for as long as its block. Several threads may ask for jobs."""

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    @property
    @abstractmethod
    def parallelism(self) -> int:
        """How many tasks run at a time."""

    @abstractmethod
    def query(
        self, start: Frontier, batch_age: float, part: QueryPart
    ) -> AbstractContextManager[Query]:
        """The stream from ``start`` on, with a batch every ``batch_age`` seconds."""

    @abstractmethod
    def write_batch(
        self, batch: Batch, floors: Floors, writer: TaskWriter, section: Section | None = None
    ) -> JobResult:
        """Write one batch of the log apart from the stream. Raises what a task raised."""

    @abstractmethod
    def copy_chunks(
        self, chunks: Sequence[Chunk], open_chunk: OpenChunk, tables: Mapping[int, TableToCopy]
    ) -> CopyResult:
        """Copy chunks in one task, straight from the source to the destination."""


MakeEngine = Callable[[PipelineConfig, Sequence[Step]], Engine]
"""The steps are those that all changes and copied rows go through."""
