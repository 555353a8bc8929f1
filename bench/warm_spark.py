"""A warm Spark session in a process of its own, which runs one pipeline or job after another.

Apart from the bench itself, so that what is counted as the pipeline's CPU and memory is only the
pipeline's.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from bench.server import BenchError
from bench.spark_jobs import CopyTimes, JdbcJob, Job, SnapshotJob
from penstock.config.models import SparkConfig
from penstock.model.errors import PenstockError
from penstock.pipeline.run.batch_committer import Delivered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bench.spark_lakes import MergeJob

_STOP_SECONDS = 60.0
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class _Ready:
    """The session is up, or the pipeline has ended as asked."""


@dataclass(frozen=True)
class _Failed:
    message: str
    remedy: str


@dataclass(frozen=True)
class _Result:
    """What a job came to."""

    value: Any


@dataclass(frozen=True)
class _Run:
    """A pipeline is to be run."""

    file: Path
    captures: bool


class WarmSpark:
    """The parent's end. Inside ``with`` the session is up; afterwards all of it is gone.

    The session is as a pipeline's, unless ``config`` says otherwise.
    """

    def __init__(self, folder: Path, config: SparkConfig | None = None) -> None:
        self._folder = folder
        context = multiprocessing.get_context("spawn")
        self._connection, self._theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(self._theirs, folder, config or SparkConfig()), daemon=True
        )
        self.delivered: list[Delivered] = []
        """What the pipeline that runs, or ran last, has delivered so far."""

    @property
    def pid(self) -> int:
        pid = self._process.pid
        if pid is None:
            raise BenchError("The Spark session was never started.", remedy="Use it with `with`.")
        return pid

    def __enter__(self) -> Self:
        # Ctrl-C reaches the whole foreground group, but the order of stopping is ours to decide.
        # Ignored before the start, for the time until the child has a session of its own.
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._process.start()
        finally:
            signal.signal(signal.SIGINT, handler)
        # The child has its own copy now; while we held one too, its end would never reach us.
        self._theirs.close()
        try:
            self._await_ready()
        except BaseException:
            # Not ready, it does not listen yet; its JVM ends when it does.
            self._process.terminate()
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def start(self, file: Path, *, captures: bool = True) -> None:
        """Begin to run a pipeline; it runs until ``stop``. Without ``captures`` it reads the log
        that is there.
        """
        self.delivered = []
        self._connection.send(_Run(file, captures))

    def stop(self) -> None:
        """End the pipeline, in order."""
        self._connection.send(None)
        self._await_ready()

    def copy(self, job: SnapshotJob, patience: float) -> CopyTimes:
        """Copy, and wait for its end."""
        result: CopyTimes = self._result_of(job, patience)
        return result

    def read_jdbc(self, job: JdbcJob, patience: float) -> float:
        """Read, and wait for its end; the seconds that it took."""
        result: float = self._result_of(job, patience)
        return result

    def merge(self, job: MergeJob, patience: float) -> tuple[float, int]:
        """Merge a change log, and wait for its end; the seconds that it took, and the rows."""
        result: tuple[float, int] = self._result_of(job, patience)
        return result

    def pump(self, seconds: float = 0.0) -> None:
        """Take in what was delivered, waiting at most so long for more; raises what broke."""
        while self._connection.poll(seconds):
            seconds = 0.0
            if self._receive():
                raise BenchError(
                    "The pipeline ended before it was told to.",
                    remedy="Look at what was printed above.",
                )

    def delivery_of(self, commit_lsn: int, patience: float) -> Delivered:
        """Wait until everything up to a commit is delivered."""
        deadline = time.monotonic() + patience
        seen = 0
        while True:
            for delivered in self.delivered[seen:]:
                if delivered.frontier.commit_lsn >= commit_lsn:
                    return delivered
            seen = len(self.delivered)
            if time.monotonic() > deadline:
                raise BenchError(
                    f"The pipeline did not deliver everything within {patience:g} s.",
                    remedy="Try a smaller SCALE; if it recurs, it is a bug of Penstock.",
                )
            self.pump(_POLL_SECONDS)

    def _result_of(self, job: Job, patience: float) -> Any:
        self._connection.send(job)
        if not self._connection.poll(patience):
            raise BenchError(
                f"A copy did not come to its end within {patience:g} s.",
                remedy="Try a smaller SCALE; if it recurs, it is a bug of Penstock.",
            )
        return self._message().value

    def _await_ready(self) -> None:
        while not self._receive():
            pass

    def _message(self) -> Any:
        try:
            message = self._connection.recv()
        except (EOFError, ConnectionError):
            raise BenchError(
                "The process with the Spark session died.",
                remedy="Look at what was printed above; lack of memory is a usual cause.",
            ) from None
        if isinstance(message, _Failed):
            raise BenchError(message.message, remedy=message.remedy)
        return message

    def _receive(self) -> bool:
        """Handle one message; True if the child is ready for the next pipeline."""
        message = self._message()
        if isinstance(message, Delivered):
            self.delivered.append(message)
            return False
        return True

    def _end(self) -> None:
        self._connection.close()
        self._process.join(_STOP_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(connection: Connection, folder: Path, config: SparkConfig) -> None:
    """The child: whatever arrives while a pipeline runs, or the parent's end, stops it."""
    os.setsid()
    # Spark leaves folders behind in the working directory.
    os.chdir(folder)
    from penstock.spark.session import make_session

    try:
        session = make_session("bench", config)
        try:
            connection.send(_Ready())
            while True:
                asked = connection.recv()
                if isinstance(asked, Job):
                    result = asked.run(session, connection.poll)
                    connection.send(_Result(result))
                else:
                    _run(connection, asked, session)
        finally:
            session.stop()
    except (EOFError, ConnectionError):
        return
    except PenstockError as error:
        connection.send(_Failed(error.message, error.remedy))


def _run(connection: Connection, asked: _Run, session: SparkSession) -> None:
    from penstock.config.load import load_pipeline
    from penstock.pipeline.run.pipeline import Observers, Pipeline
    from penstock.spark.engine import SparkEngine

    def observe(delivered: Delivered) -> None:
        # A parent that is gone stops the pipeline; no need to fail its last batch as well.
        with suppress(ConnectionError):
            connection.send(delivered)

    pipeline = Pipeline(
        load_pipeline(asked.file),
        asked.file,
        partial(SparkEngine, session=session),
        observers=Observers(delivered=observe),
        captures=asked.captures,
    )
    pipeline.run(connection.poll)
    connection.recv()
    connection.send(_Ready())
