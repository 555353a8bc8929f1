"""Asks a destination that nothing was delivered to for a while whether it is still there."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from penstock.cadence import paced
from penstock.destination.registry import make_destination
from penstock.model.errors import PenstockError
from penstock.pipeline.run.context import RunContext

_LOOK_SECONDS = paced(15.0)
_END_SECONDS = 1.0


class DestinationWatch:
    """For the health of a run alone, in a thread of its own, while it is entered.

    An idle pipeline writes nothing, and one whose commit takes long cannot say whether the server
    works or is gone. So ``check`` is asked of a second instance, which has connections of its own.
    """

    def __init__(self, context: RunContext) -> None:
        config = context.config
        self._health = context.metrics.health
        self._destination = make_destination(
            config.destination_type, config.destination_options, config.delivery
        )
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-watch", daemon=True)

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
        self._thread.join(_END_SECONDS)
        if not self._thread.is_alive():
            self._destination.close()

    def look(self) -> None:
        """Ask, unless something was delivered just now."""
        reason = None
        if self._health.undelivered_seconds >= _LOOK_SECONDS:
            try:
                with self._health.asking("the destination"):
                    self._destination.check()
            except PenstockError as error:
                reason = f"the destination does not answer: {error.message}"
        self._health.trouble("destination", reason)

    def _run(self) -> None:
        while not self._ending.wait(_LOOK_SECONDS):
            self.look()
