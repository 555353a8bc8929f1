"""The demo's pipeline in a thread of its own: signals reach the main thread only."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from penstock.config.metrics_config import ListenAddress
from penstock.config.models import PipelineConfig
from penstock.metrics.pipeline_metrics import Metrics
from penstock.metrics.service import shown_metrics
from penstock.operations.run_record import recorded_run
from penstock.pipeline.copy.copy_progress import CopyView
from penstock.pipeline.run.pipeline import Observers, Pipeline
from penstock.spark.engine import SparkEngine


class _Notes(logging.Handler):
    """Gives a function what is logged."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        self._note(record.getMessage())


class PipelineThread:
    """Starts Spark and runs the pipeline; when it has ended, everything it started is gone.

    Others find it as they find a `penstock run`. ``on_note`` gets what it logs.
    """

    def __init__(self, config: PipelineConfig, file: Path) -> None:
        self._config = config
        self._file = file
        self._metrics = Metrics(config.name)
        observers = Observers(copies=self._see, metrics=self._metrics)
        self._pipeline = Pipeline(config, file, SparkEngine, observers=observers)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pipeline", daemon=True)
        self._failure: BaseException | None = None
        self._notes: list[str] = []
        self.on_note: Callable[[str], None] = lambda _: None
        self.copies: dict[str, CopyView] = {}
        """How far each table's copy was when it was last looked at, by the table's name."""

    def start(self) -> None:
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def check(self) -> None:
        """Raise what made the pipeline end."""
        if self._failure is not None:
            raise self._failure

    def notes(self) -> list[str]:
        """What the pipeline has logged since the last call."""
        said = [*self._notes]
        del self._notes[: len(said)]
        return said

    def ask_to_stop(self) -> None:
        self._stop.set()

    def stop(self) -> None:
        """Stop it in order; returns when it has ended."""
        self.ask_to_stop()
        if self._thread.ident is not None:
            self._thread.join()

    def _see(self, copies: list[CopyView]) -> None:
        self.copies = {copy.table.removeprefix("public."): copy for copy in copies}

    def _note(self, text: str) -> None:
        self._notes.append(text)
        self.on_note(text)

    def _run(self) -> None:
        handler = _Notes(self._note)
        logger = logging.getLogger("penstock")
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
        try:
            free = self._config.metrics.model_copy(update={"listen": ListenAddress("127.0.0.1", 0)})
            with (
                shown_metrics(self._metrics, free, lambda _: None) as url,
                recorded_run(self._config, self._file, url),
            ):
                self._pipeline.run(self._stop.is_set)
        except BaseException as error:
            self._failure = error
        finally:
            logger.removeHandler(handler)
