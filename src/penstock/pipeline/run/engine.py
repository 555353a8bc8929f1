"""What runs tasks for the driver. ``penstock.spark.engine`` is the one that there is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from penstock.changelog.chain import Batch
from penstock.config.models import PipelineConfig
from penstock.destination.contract import ChunkWriter, TaskWriter
from penstock.metrics.written import CopyResult, JobResult
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
    def check(self) -> None:
        """Raise SparkLost where that which runs tasks is gone. Takes as long as an answer takes."""

    @property
    def batch_work(self) -> int | None:
        """A number that grows while tasks of a batch work; None where no batch is being written, or
        nobody can tell.
        """
        return None

    @property
    def lacks_executors(self) -> bool:
        """Whether a batch is to be written, and nobody is there who could."""
        return False

    @abstractmethod
    def cancellable(self) -> AbstractContextManager[Callable[[], None]]:
        """For the jobs of the thread that enters: another one may call what it gives, and the job
        under way ends with an error.
        """

    @abstractmethod
    def write_batch(
        self, batch: Batch, floors: Floors, writer: TaskWriter, section: Section | None = None
    ) -> JobResult:
        """Write one batch of the log. Raises what a task raised. Without rows there is no job."""

    @abstractmethod
    def copy_chunks(
        self, chunks: Sequence[Chunk], open_chunk: OpenChunk, tables: Mapping[int, TableToCopy]
    ) -> CopyResult:
        """Copy chunks in one task, straight from the source to the destination."""


MakeEngine = Callable[[PipelineConfig, Sequence[Step]], Engine]
"""The steps are those that all changes and copied rows go through."""
