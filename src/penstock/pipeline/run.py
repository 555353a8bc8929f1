"""`penstock run`: one pipeline from its file to its end."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.changelog.changelog import ChangeLog
from penstock.config.models import PipelineConfig
from penstock.destination.contract import Destination
from penstock.destination.registry import make_destination
from penstock.error_policy import Action, decide
from penstock.errors import PenstockError
from penstock.lsn import Frontier
from penstock.pipeline.apply_batch import BatchCommitter, Delivered
from penstock.pipeline.capture_child import CaptureChild
from penstock.postgres.connect import connect
from penstock.postgres.pipeline_lock import PipelineLock
from penstock.postgres.slot import current_wal_lsn
from penstock.postgres.subscription import Subscription, ensure_subscription

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.query import PipelineQuery

_TURN_SECONDS = 0.1
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0
# A capture or query that lived this long had got past what broke it before.
_HEALTHY_SECONDS = 60.0

Stopping = Callable[[], bool]
Observe = Callable[[Delivered], None]


def ignore(_delivered: Delivered) -> None:
    """For those who do not watch."""


class Pipeline:
    """One run of one pipeline. Everything it starts is gone when ``run`` returns or raises."""

    def __init__(
        self,
        config: PipelineConfig,
        file: Path,
        *,
        observe: Observe = ignore,
        say: Callable[[str], None] = print,
    ) -> None:
        self._config = config
        self._file = file
        self._observe = observe
        self._say = say
        self._log = ChangeLog(config.change_log.path)

    def run(
        self,
        stopping: Stopping,
        *,
        until_caught_up: bool = False,
        spark: SparkSession | None = None,
    ) -> Frontier:
        """Deliver until ``stopping()``, or until what was committed at the start is delivered.

        Returns what the destination holds. A session that is passed in is left running.
        """
        application = f"penstock {self._config.name} run"
        with (
            connect(self._config.source.url, application_name=application) as conn,
            PipelineLock(conn, self._config.name),
        ):
            subscription = ensure_subscription(conn, self._config)
            target = current_wal_lsn(conn) if until_caught_up else 0
            with self._open_destination() as destination:
                committer = BatchCommitter(
                    destination, self._log, self._config.name, target, self._observe
                )
                committer.record(self._start(destination, subscription))
                with self._session(spark) as session, self._capture() as capture:
                    self._supervise(session, capture, destination, committer, stopping, target)
            return committer.frontier

    @contextmanager
    def _open_destination(self) -> Iterator[Destination]:
        config = self._config
        destination = make_destination(
            config.destination_type, config.destination_options, config.name
        )
        try:
            destination.open()
            yield destination
        finally:
            destination.close()

    def _start(self, destination: Destination, subscription: Subscription) -> Frontier:
        """Where to go on: what the destination says, else what was last recorded for it."""
        held = destination.committed()
        if held is None and not destination.capabilities.remembers:
            recorded = self._log.reader(self._config.name)
            held = recorded.frontier if recorded else None
        return held or Frontier(0, subscription.start_lsn)

    @contextmanager
    def _session(self, given: SparkSession | None) -> Iterator[SparkSession]:
        if given is not None:
            yield given
            return
        from penstock.spark.session import end_session, make_session

        session = make_session(self._config.name, self._config.spark)
        try:
            yield session
        finally:
            end_session(session)

    @contextmanager
    def _capture(self) -> Iterator[CaptureChild]:
        capture = CaptureChild(self._file, self._log)
        capture.start()
        try:
            yield capture
        finally:
            capture.stop()

    def _supervise(
        self,
        spark: SparkSession,
        capture: CaptureChild,
        destination: Destination,
        committer: BatchCommitter,
        stopping: Stopping,
        target: int,
    ) -> None:
        """Keep query and capture going; returns when it is time to stop."""
        query_pause, capture_pause = _Backoff(), _Backoff()
        while not stopping():
            query = self._query(spark, destination, committer)
            try:
                while not stopping():
                    query.wait(_TURN_SECONDS)
                    if target and committer.frontier.end_lsn >= target:
                        return
                    if capture.ended():
                        self._say("capture ended unexpectedly; starting it again")
                        capture_pause.wait(stopping)
                        capture.start()
            except PenstockError as error:
                if decide(error) is Action.STOP:
                    raise
                self._say(f"{error.message}; going on from {committer.frontier}")
            finally:
                query.stop()
            if not stopping():
                query_pause.wait(stopping)

    def _query(
        self, spark: SparkSession, destination: Destination, committer: BatchCommitter
    ) -> PipelineQuery:
        from penstock.spark.query import PipelineQuery, QuerySettings

        batch = self._config.batch
        settings = QuerySettings(
            self._config.change_log.path,
            batch.max_bytes,
            batch.max_age or destination.capabilities.batch_age,
        )
        return PipelineQuery(
            spark, settings, committer.frontier, destination.task_writer(), committer
        )


class _Backoff:
    """Growing pauses with jitter; small again after a healthy while."""

    def __init__(self) -> None:
        self._pause = _FIRST_PAUSE_SECONDS
        self._last = time.monotonic()

    def wait(self, stopping: Stopping) -> None:
        now = time.monotonic()
        if now - self._last > _HEALTHY_SECONDS:
            self._pause = _FIRST_PAUSE_SECONDS
        end = now + self._pause * random.uniform(0.5, 1.0)  # noqa: S311 (jitter, no secret)
        while time.monotonic() < end and not stopping():
            time.sleep(0.05)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_SECONDS)
        self._last = time.monotonic()
