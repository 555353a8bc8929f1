"""`penstock copy` with all its workers: processes that end with it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from penstock.backoff import Backoff
from penstock.cadence import paced
from penstock.config.models import PipelineConfig
from penstock.model.error_policy import Action, decide
from penstock.model.table_state import DataSync, Init
from penstock.pipeline.copy.copy_progress import CopyView, copy_views
from penstock.pipeline.many.delivery_child import TiedProcess, stop_all
from penstock.pipeline.workers.copy_worker import Stopping
from penstock.store import Store

_TURN_SECONDS = 0.1
_LOOK_SECONDS = paced(1.0)


class WorkerPool:
    """Keeps so many workers going. One that dies is started again, after a pause that grows."""

    def __init__(self, config: PipelineConfig, file: Path, count: int) -> None:
        only = ["--only", config.destination_name] if config.is_one_of_many else []
        command = [sys.executable, "-m", "penstock", "copy", str(file), *only]
        self._workers = [TiedProcess(f"worker {n + 1}", command) for n in range(count)]
        self._pauses = {worker: Backoff() for worker in self._workers}
        self._next_start = dict.fromkeys(self._workers, 0.0)

    def run(
        self,
        store: Store,
        stopping: Stopping,
        observe: Callable[[list[CopyView]], None],
        *,
        until_copied: bool,
    ) -> None:
        """Until it is to stop; with ``until_copied``, until no table waits for its rows. Raises why
        a worker gave up, where another try would not help.
        """
        next_look = 0.0
        try:
            while not stopping():
                self._keep()
                if time.monotonic() >= next_look:
                    next_look = time.monotonic() + _LOOK_SECONDS
                    store.load_table_states()
                    store.load_table_schemas()
                    store.load_copies()
                    observe(copy_views(store))
                    if until_copied and is_copied(store):
                        return
                time.sleep(_TURN_SECONDS)
        finally:
            stop_all(self._workers)

    def _keep(self) -> None:
        for worker in self._workers:
            if worker.pid is not None and worker.ended() is None:
                continue
            failure = worker.failure
            if failure is not None and decide(failure) is Action.STOP:
                raise failure
            now = time.monotonic()
            if worker.pid is None:
                worker.start()
            elif self._next_start[worker] == 0.0:
                self._next_start[worker] = now + self._pauses[worker].next_pause()
            elif now >= self._next_start[worker]:
                self._next_start[worker] = 0.0
                worker.start()


def is_copied(store: Store) -> bool:
    """Whether there are tables, and none of them waits for its rows."""
    states = store.get_table_states().values()
    return bool(states) and not any(isinstance(state, Init | DataSync) for state in states)
