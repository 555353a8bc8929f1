"""A Spark session that starts while a command does other things first."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from threading import Thread

from pyspark.sql import SparkSession

from penstock.config.models import SparkConfig
from penstock.model.errors import PenstockError
from penstock.spark.jobs import Done, run_tasks
from penstock.spark.session import end_session, start_session


class EarlySession:
    """Starts as soon as it is made, in a thread of its own, and runs an empty task: so the Python
    processes are there, too, when the first batch comes. ``take`` is for one thread.
    """

    def __init__(self, name: str, config: SparkConfig) -> None:
        self._name = name
        self._config = config
        self._session: Future[SparkSession] = Future()
        self._is_taken = False
        Thread(target=self._start, name="Spark's start", daemon=True).start()

    def take(self) -> SparkSession:
        """Wait for it. It is the caller's to end. Raises what has kept it from starting."""
        self._is_taken = True
        return self._session.result()

    def drop(self) -> None:
        """End it, unless somebody has taken it. Waits for one that is still starting, so that
        nothing of it is left behind.
        """
        if not self._is_taken and self._session.exception() is None:
            end_session(self._session.result())

    def _start(self) -> None:
        try:
            session = start_session(self._name, self._config)
        except BaseException as error:
            self._session.set_exception(error)
            return
        self._session.set_result(session)
        if self._config.master.startswith("local"):
            # Whoever comes first waits for nothing but his own; what is wrong he finds out himself.
            with suppress(PenstockError):
                run_tasks(session, [0], _nothing)


@contextmanager
def early_session(name: str, config: SparkConfig) -> Iterator[EarlySession]:
    """For as long as the block, which may take it."""
    session = EarlySession(name, config)
    try:
        yield session
    finally:
        session.drop()


def _nothing(_task: int) -> Done:
    from penstock.metrics.written import Written

    return b"", Written()
