"""An engine without Spark: the same planning and the same tasks, one after another, in the tests'
own process. For what is about drivers, logs and destinations, and not about Spark: a session costs
more than such a test.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from penstock.changelog.chain import Batch
from penstock.changelog.changelog import ChangeLog
from penstock.config.models import PipelineConfig
from penstock.destination.contract import ChunkReceipt, TaskWriter
from penstock.metrics.written import CopyResult, JobResult, together
from penstock.model.error_transport import error_from_text
from penstock.model.errors import PenstockError
from penstock.model.lsn import Frontier
from penstock.pipeline.run.engine import Engine, QueryPart, TableToCopy
from penstock.source.contract import OpenChunk
from penstock.source.copy_plan import Chunk
from penstock.spark.jobs import _CopyChunks
from penstock.spark.source import PenstockStreamReader, _Settings
from penstock.spark.task import ChangesOf, TaskFunction
from penstock.spark.task_input import TaskInput
from penstock.transform.floors import Floors
from penstock.transform.section import Section
from penstock.transform.step import Step

_TURN_SECONDS = 0.05


class LocalEngine(Engine):
    """Made as an engine of Spark is."""

    def __init__(self, config: PipelineConfig, steps: Sequence[Step]) -> None:
        self._config = config
        self._steps = steps
        self._log = ChangeLog.of(config.change_log)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing is held."""

    @property
    def parallelism(self) -> int:
        return 1

    def query(self, start: Frontier, batch_age: float, part: QueryPart) -> LocalQuery:
        return LocalQuery(self, self._config, start, part)

    def write_batch(
        self, batch: Batch, floors: Floors, writer: TaskWriter, section: Section | None = None
    ) -> JobResult:
        own = (floors,) if section is None else (floors, section)
        shares = [TaskInput(batch.pointers, batch.frontier, self._config.batch.buffer_bytes)]
        return self.write(shares, own, writer)

    def write(
        self, shares: Sequence[TaskInput], own: Sequence[Step], writer: TaskWriter
    ) -> JobResult:
        began = time.monotonic()
        task = TaskFunction(writer, ChangesOf(self._log, *own, *self._steps))
        try:
            done = [task.write(share) for share in shares if share.pointers]
        except RuntimeError as error:
            raise error_from_text(str(error)) or error from None
        return JobResult(
            [receipt for receipt, _ in done],
            together(written for _, written in done),
            began,
            time.monotonic(),
        )

    def copy_chunks(
        self, chunks: Sequence[Chunk], open_chunk: OpenChunk, tables: Mapping[int, TableToCopy]
    ) -> CopyResult:
        result, written = _CopyChunks(open_chunk, tables, self._steps)(chunks)
        if error := error_from_text(result.decode()):
            raise error
        receipts = [
            ChunkReceipt(rows, size, bytes.fromhex(content))
            for rows, size, content in json.loads(result)
        ]
        return CopyResult(receipts, written)


class LocalQuery:
    """One batch after another, in a thread: planned as Spark's source does it."""

    def __init__(
        self, engine: LocalEngine, config: PipelineConfig, start: Frontier, part: QueryPart
    ) -> None:
        self._engine = engine
        self._part = part
        self._buffer = config.batch.buffer_bytes
        options = {
            "path": config.change_log.path,
            "mode": "pointers",
            "start": json.dumps(start.to_json()),
            **({"delivery": config.delivery} if config.is_one_of_many else {}),
        }
        schema: Any = None
        self._reader = PenstockStreamReader(_Settings.of(options), schema)
        self._at = start
        self._ending = threading.Event()
        self._failure: PenstockError | None = None
        self._thread = threading.Thread(target=self._run, name="local query", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.set()
        self._thread.join()

    @property
    def is_under_way(self) -> bool:
        return True

    def wait(self, seconds: float) -> bool:
        self._thread.join(seconds)
        if self._failure is not None:
            raise self._failure
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._ending.wait(_TURN_SECONDS):
                self._batch()
        except PenstockError as error:
            self._failure = error
        except Exception as error:
            self._failure = PenstockError(f"{type(error).__name__}: {error}")

    def _batch(self) -> None:
        end = Frontier.from_json(self._reader.latestOffset())
        if end <= self._at:
            return
        parts: Any = self._reader.partitions(self._at.to_json(), end.to_json())
        shares = [TaskInput(part.pointers, end, self._buffer) for part in parts]
        job = self._engine.write(shares, (self._part.floors_at(self._at),), self._part.writer())
        self._at = end
        self._part.commit(job, end)
