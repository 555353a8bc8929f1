"""An engine that runs tasks in the test's own process, without Spark.

What the driver and a destination do does not depend on where tasks run, and starting a query on
Spark costs seconds of processor time. Tests of Spark itself, of crashes and of whole commands run
on Spark; those of tables, schemas and values run here. Writers are pickled as Spark would.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar, cast

import pytest

from penstock.changelog.chain import Batch, Pointer
from penstock.changelog.changelog import ChangeLog
from penstock.config.models import PipelineConfig
from penstock.destination.contract import LanedWriter, LanePart, TaskWriter
from penstock.metrics.written import CopyResult, JobResult, Written, together
from penstock.model.error_transport import error_from_text
from penstock.pipeline.copy.chunk_task import ChunkTask, copy_result
from penstock.pipeline.run.engine import Engine, TableToCopy
from penstock.source.contract import OpenChunk
from penstock.source.copy_plan import Chunk
from penstock.spark.source import share_out
from penstock.spark.task import ChangesOf, WriteTask, metered
from penstock.spark.task_input import TaskInput
from penstock.transform.floors import Floors
from penstock.transform.section import Section
from penstock.transform.step import Step

T = TypeVar("T")

# A worker of Spark's has one task at a time, and keeps sessions for the next one.
_ONE_TASK = threading.Lock()


@dataclass(frozen=True)
class Threads:
    """Where tasks run. A batch has up to ``width`` of them."""

    width: int = 2


@pytest.fixture
def threads() -> Threads:
    """In the place of a Spark session, for ``pipeline_on`` and ``engine_on``."""
    return Threads()


class ThreadsEngine(Engine):
    """Runs for as long as its block, as Spark does."""

    def __init__(self, config: PipelineConfig, steps: Sequence[Step], *, width: int = 2) -> None:
        self._config = config
        self._steps = steps
        self._width = width
        self._log = ChangeLog.of(config.change_log)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    @property
    def parallelism(self) -> int:
        return self._width

    def check(self) -> None:
        pass

    @contextmanager
    def cancellable(self) -> Iterator[Callable[[], None]]:
        yield lambda: None

    def write_batch(
        self, batch: Batch, floors: Floors, writer: TaskWriter, section: Section | None = None
    ) -> JobResult:
        own = (floors,) if section is None else (floors, section)
        shares = [s for s in share_out(batch.pointers, self._width) if s]
        return self._run(shares, own, writer)

    def copy_chunks(
        self, chunks: Sequence[Chunk], open_chunk: OpenChunk, tables: Mapping[int, TableToCopy]
    ) -> CopyResult:
        copy, written = _sent(ChunkTask(open_chunk, tables, self._steps)), Written()
        try:
            with _ONE_TASK:
                result = copy.run(tuple(chunks), written)
        except RuntimeError as error:
            raise error_from_text(str(error)) or error from None
        return copy_result(result, written)

    def _run(
        self, shares: Sequence[tuple[Pointer, ...]], own: Sequence[Step], writer: TaskWriter
    ) -> JobResult:
        """One batch: a task a share, one after another; lanes are brought together before."""
        began = time.monotonic()
        size = self._config.batch.buffer_bytes
        inputs = [TaskInput(share, size) for share in shares]
        changes_of = ChangesOf(self._log, *own, *self._steps)
        try:
            if isinstance(writer, LanedWriter) and len(inputs) > 1:
                done = self._by_lanes(inputs, writer, changes_of)
            else:
                done = [self._write(_sent(WriteTask(writer, changes_of)), i) for i in inputs]
        except RuntimeError as error:
            raise error_from_text(str(error)) or error from None
        written = together(each for _, each in done)
        return JobResult([receipt for receipt, _ in done], written, began, time.monotonic())

    def _write(self, task: WriteTask, given: TaskInput) -> tuple[bytes, Written]:
        with _ONE_TASK:
            return task(given)

    def _by_lanes(
        self, inputs: Sequence[TaskInput], writer: LanedWriter, changes_of: ChangesOf
    ) -> list[tuple[bytes, Written]]:
        lanes: dict[int, list[LanePart]] = {}
        done: list[tuple[bytes, Written]] = []
        for given in inputs:
            meter = metered()
            encoder, changes = _sent((writer, changes_of))
            with _ONE_TASK:
                for part in meter.parts(encoder.encode(changes(given, meter))):
                    lanes.setdefault(part.lane, []).append(part)
            done.append((b"", meter.written))
        for _, parts in sorted(lanes.items()):
            meter = metered()
            parts.sort(key=lambda part: part.first)
            with _ONE_TASK:
                done.append((meter.sent(_sent(writer), iter(parts)), meter.written))
        return [each for each in done if each[0]] or done


def _sent(what: T) -> T:
    """As an executor gets it."""
    return cast(T, pickle.loads(pickle.dumps(what)))  # noqa: S301 (our own)
