"""An engine that runs tasks in the test's own process, without Spark.

What the driver and a destination do does not depend on where tasks run, and starting a query on
Spark costs seconds of processor time. Tests of Spark itself, of crashes and of whole commands run
on Spark; those of tables, schemas and values run here. Writers are pickled as Spark would.
"""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar, cast

import pyarrow as pa
import pytest

from penstock.changelog.chain import Batch, Pointer
from penstock.changelog.changelog import ChangeLog
from penstock.config.models import PipelineConfig
from penstock.destination.contract import LanedWriter, LanePart, TaskWriter
from penstock.metrics.written import CopyResult, JobResult, Written, together
from penstock.model.error_transport import error_from_text
from penstock.model.lsn import Frontier
from penstock.pipeline.copy.chunk_task import ChunkTask, copy_result
from penstock.pipeline.run.engine import Engine, QueryPart, TableToCopy
from penstock.source.contract import OpenChunk
from penstock.source.copy_plan import Chunk
from penstock.spark.query import _Commits
from penstock.spark.source import PenstockStreamReader, _Settings, _Share, share_out
from penstock.spark.task import ChangesOf, TaskFunction, metered
from penstock.spark.task_input import TaskInput
from penstock.transform.floors import Floors
from penstock.transform.section import Section
from penstock.transform.step import Step

T = TypeVar("T")

_POLL_SECONDS = 0.02
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

    def query(self, start: Frontier, batch_age: float, part: QueryPart) -> ThreadsQuery:
        return ThreadsQuery(self, self._config, start, batch_age, part)

    def write_batch(
        self, batch: Batch, floors: Floors, writer: TaskWriter, section: Section | None = None
    ) -> JobResult:
        own = (floors,) if section is None else (floors, section)
        shares = [s for s in share_out(batch.pointers, self._width) if s]
        return self.run(shares, batch.frontier, own, writer)

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

    def run(
        self,
        shares: Sequence[tuple[Pointer, ...]],
        frontier: Frontier,
        own: Sequence[Step],
        writer: TaskWriter,
    ) -> JobResult:
        """One batch: a task a share, one after another; lanes are brought together before."""
        began = time.monotonic()
        size = self._config.batch.buffer_bytes
        inputs = [TaskInput(share, frontier, size) for share in shares if share]
        changes_of = ChangesOf(self._log, *own, *self._steps)
        try:
            if isinstance(writer, LanedWriter) and len(inputs) > 1:
                done = self._by_lanes(inputs, writer, changes_of)
            else:
                done = [self._write(_sent(TaskFunction(writer, changes_of)), i) for i in inputs]
        except RuntimeError as error:
            raise error_from_text(str(error)) or error from None
        written = together(each for _, each in done)
        return JobResult([receipt for receipt, _ in done], written, began, time.monotonic())

    def _write(self, task: TaskFunction, given: TaskInput) -> tuple[bytes, Written]:
        with _ONE_TASK:
            return task.write(given)

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


class ThreadsQuery:
    """One batch after another, in a thread of its own, until the block ends."""

    def __init__(
        self,
        engine: ThreadsEngine,
        config: PipelineConfig,
        start: Frontier,
        batch_age: float,
        part: QueryPart,
    ) -> None:
        self._engine = engine
        self._part = part
        self._at = start
        self._age = batch_age
        self._commits = _Commits(part.commit)
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self.is_under_way = False
        self._reader = PenstockStreamReader(_settings(config, start, part), pa.schema([]))
        self._thread = threading.Thread(target=self._run, name="penstock-batches", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._commits.end()

    def wait(self, seconds: float) -> bool:
        self._commits.check()
        self._thread.join(seconds)
        if self._failure is not None:
            raise self._commits.failure or self._failure
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                began = time.monotonic()
                if not self._batch():
                    self._stopping.wait(_POLL_SECONDS)
                else:
                    self._stopping.wait(max(0.0, self._age - (time.monotonic() - began)))
        except RuntimeError as error:
            self._failure = error_from_text(str(error)) or error
        except BaseException as error:
            self._failure = error

    def _batch(self) -> bool:
        end = Frontier.from_json(self._reader.latestOffset())
        # As with Spark, there is always a first batch, also of nothing.
        is_first, self.is_under_way = not self.is_under_way, True
        if (end == self._at and not is_first) or self._stopping.is_set():
            return False
        shares = self._reader.partitions(self._at.to_json(), end.to_json())
        floors = self._part.floors_at(self._at)
        writer = self._part.writer()
        pointers = [share.pointers for share in shares if isinstance(share, _Share)]
        result = self._engine.run(pointers, end, (floors,), writer)
        self._at = end
        self._commits.begin(result, end)
        return True


def _settings(config: PipelineConfig, start: Frontier, part: QueryPart) -> _Settings:
    options = {
        "path": config.change_log.path,
        "storageOptions": json.dumps(config.change_log.revealed_options),
        "mode": "pointers",
        "start": json.dumps(start.to_json()),
        "maxBytesPerTrigger": str(config.batch.max_bytes),
        "maxGrowth": str(config.batch.max_growth),
        "bufferBytes": str(config.batch.buffer_bytes),
        "parallelism": "2",
        **({} if part.feed is None else {"feed": part.feed}),
        **({"delivery": config.delivery} if config.is_one_of_many else {}),
    }
    return _Settings.of(options)


def _sent(what: T) -> T:
    """As an executor gets it."""
    return cast(T, pickle.loads(pickle.dumps(what)))  # noqa: S301 (our own)
