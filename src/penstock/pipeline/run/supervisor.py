"""What the main thread sees to while batches come and go."""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.backoff import Backoff
from penstock.destination.protocols import CountsByItself
from penstock.model.error_policy import Action, decide
from penstock.model.errors import PenstockError
from penstock.pipeline.copy.copy_manager import CopyManager
from penstock.pipeline.copy.copy_progress import CopyView
from penstock.pipeline.run.context import RunContext
from penstock.pipeline.run.watched import Watched
from penstock.pipeline.tables.subscribed_tables import SubscribedTables
from penstock.source.contract import Capture

Stopping = Callable[[], bool]
"""Whether it is time to stop."""

_log = logging.getLogger(__name__)


class Supervisor:
    """Sees to it that everything runs beside the query, and that nobody takes this pipeline for a
    stopped one. ``observe_copies`` is told now and then how far copies are.
    """

    def __init__(
        self,
        context: RunContext,
        capture: Capture,
        subscribed: SubscribedTables,
        copies: CopyManager | None,
        watched: Watched,
        observe_copies: Callable[[list[CopyView]], None],
    ) -> None:
        self._session = context.session
        self._destination = context.destination
        self._metrics = context.metrics
        self._capture = capture
        self._subscribed = subscribed
        self._copies = copies
        self._watched = watched
        self._observe_copies = observe_copies
        self._pause = Backoff()

    @property
    def is_settled(self) -> bool:
        """Whether the copies have nothing left to make at the destination."""
        return self._copies is None or self._copies.is_settled

    def turn(self, stopping: Stopping) -> None:
        """Called by the main thread several times a second; raises what ends the run."""
        with self._metrics.health.asking("the source"):
            self._session.keep()
        self._watched.look()
        if isinstance(self._destination, CountsByItself):
            # Without a batch that would notice: nobody may write to the source for hours.
            self._destination.check_beside()
        self._subscribed.reconcile()
        if self._copies is not None:
            self._copies.check()
            self._copies.show(self._observe_copies)
        if self._capture_ended():
            self._metrics.retried("capture")
            _log.warning(
                "capture ended unexpectedly; starting it again",
                extra={"event": "capture_restarted"},
            )
            self._pause.wait(stopping)
            self._capture.start()

    def _capture_ended(self) -> bool:
        try:
            return self._capture.ended()
        except PenstockError as error:
            if decide(error) is not Action.RETRY:
                raise
            self._metrics.failed("capture", error)
            _log.warning(error.message, extra={"event": "capture_failed"})
            return True
