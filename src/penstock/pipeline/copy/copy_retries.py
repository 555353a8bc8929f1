"""What is tried again while tables are copied: counted, and not at once."""

from __future__ import annotations

import threading

from penstock.backoff import Backoff
from penstock.metrics.pipeline_metrics import Metrics
from penstock.model.errors import PenstockError


class CopyRetries:
    """For the thread that copies."""

    def __init__(self, metrics: Metrics, stopping: threading.Event) -> None:
        self._metrics = metrics
        self._stopping = stopping
        self._pause = Backoff()

    def count(self, error: PenstockError) -> None:
        """Count what is begun again."""
        self._metrics.failed("copy", error)
        self._metrics.retried("copy")

    def wait(self) -> None:
        """A pause that grows from one failure to the next."""
        self._pause.wait(self._stopping.is_set)

    def reset(self) -> None:
        """Something succeeded."""
        self._pause = Backoff()
