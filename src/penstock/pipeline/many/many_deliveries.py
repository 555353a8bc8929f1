"""`penstock run` of a file with several destinations: one capture, and a process for each of them.

A destination that is slow, broken or stuck has its own driver and its own JVM, so it holds back no
other. What they share is the change log, and capture, which this process starts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path

from penstock.backoff import Backoff
from penstock.cadence import paced
from penstock.changelog.changelog import ChangeLog
from penstock.changelog.shared_listing import shared_feed
from penstock.config.models import PipelineConfig
from penstock.metrics.of_many import ManyMetrics
from penstock.model.error_policy import Action, decide
from penstock.model.errors import PenstockError
from penstock.pipeline.many.delivery_child import DeliveryChild, stop_all
from penstock.pipeline.run.beginning import begin_all
from penstock.pipeline.run.supervisor import Stopping
from penstock.source.capture_elsewhere import CaptureElsewhere
from penstock.source.contract import Capture, SourceSession
from penstock.source.registry import make_source

_TURN_SECONDS = 0.1
_LOOK_SECONDS = paced(1.0)
# Each start costs a JVM: what a person has to mend is not tried more often than this.
_LONGEST_PAUSE = 300.0

_log = logging.getLogger(__name__)


class ManyDeliveries:
    """One run of all destinations. Everything it starts is gone when ``run`` returns or raises."""

    def __init__(
        self,
        views: Sequence[PipelineConfig],
        file: Path,
        metrics: ManyMetrics | None = None,
        *,
        captures: bool = True,
    ) -> None:
        """``captures``: capture runs as a child; else somebody else has started it."""
        self._captures = captures
        self._config = views[0]
        self._file = file
        names = [view.destination_name for view in views]
        self._metrics = metrics or ManyMetrics(self._config.name, names)
        self._names = names
        self._pauses = {name: Backoff(longest=_LONGEST_PAUSE) for name in names}
        self._due: dict[str, float] = {}
        """When a destination is started again that has failed."""
        self._said: dict[str, str] = {}
        self._capture_pause = Backoff()
        self._next_look = 0.0

    def run(self, stopping: Stopping, *, until_caught_up: bool = False) -> list[str]:
        """Until ``stopping()``, or until each destination holds what was committed at the start.

        Returns the destinations that did not get there.
        """
        source = make_source(self._config)
        log = ChangeLog.of(self._config.change_log)
        log.root.make_private()
        with (
            source.session("run", supervises=True) as session,
            shared_feed(log, told=self._captures) as feed,
        ):
            begin_all(self._config, log, session.subscribe())
            capture: Capture = CaptureElsewhere(log)
            if self._captures:
                capture = source.capture(self._file, None if feed is None else feed.add)
            options = ["--until-caught-up"] if until_caught_up else []
            # One listing is for all: each of them would pay for its own.
            options += [] if feed is None else ["--feed", str(feed.path)]
            children = [
                DeliveryChild(self._file, name, *options, on_metrics=self._metrics.runs_at)
                for name in self._names
            ]
            capture.start()
            try:
                for child in children:
                    child.start()
                return self._watch(session, capture, children, stopping, until_caught_up)
            finally:
                stop_all(children)
                capture.stop()

    def _watch(
        self,
        session: SourceSession,
        capture: Capture,
        children: list[DeliveryChild],
        stopping: Stopping,
        until_caught_up: bool,
    ) -> list[str]:
        over: dict[str, int] = {}
        while not stopping() and len(over) < len(children):
            session.keep()
            self._look(session, capture)
            self._see_to_capture(capture, stopping)
            for child in children:
                if child.name in over:
                    continue
                if child.name in self._due:
                    self._start_when_due(child)
                elif (code := child.ended()) is not None:
                    if until_caught_up:
                        over[child.name] = code
                        self._tell(child, code)
                    else:
                        self._failed(child, code)
            time.sleep(_TURN_SECONDS)
        return [name for name, code in over.items() if code]

    def _failed(self, child: DeliveryChild, code: int) -> None:
        pause = self._pauses[child.name].next_pause()
        self._due[child.name] = time.monotonic() + pause
        self._tell(child, code, f"It is started again in {pause:.0f} s; the others go on.")

    def _tell(self, child: DeliveryChild, code: int, and_then: str = "") -> None:
        failure = child.failure
        why = f"its process ended with {code}" if failure is None else failure.message
        self._metrics.ended(child.name, why if code else "it holds all that it was to get")
        if not code and not and_then:
            return
        remedy = "" if failure is None or not failure.remedy else f" What to do: {failure.remedy}"
        # What was said before need not be said at length each time.
        said = f"{why.rstrip('.')}.{remedy}"
        shown = "the same again." if self._said.get(child.name) == said else said
        self._said[child.name] = said
        _log.warning(
            "destination %s: %s",
            *(child.name, f"{shown} {and_then}".rstrip()),
            extra={"event": "destination_failed", "destination": child.name},
        )

    def _start_when_due(self, child: DeliveryChild) -> None:
        if time.monotonic() >= self._due[child.name]:
            del self._due[child.name]
            child.start()

    def _look(self, session: SourceSession, capture: Capture) -> None:
        """What capture says, for the metrics. Nothing that goes wrong here matters."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK_SECONDS
        metrics = self._metrics.capture
        reason = None
        try:
            metrics.source_is_at(session.position())
        except PenstockError as error:
            reason = f"the source does not answer: {error.message}"
        metrics.health.trouble("source", reason)
        reason = None
        try:
            metrics.captured(capture.report())
        except PenstockError as error:
            reason = f"the change log cannot be read: {error.message}"
        metrics.health.trouble("disk", reason)
        metrics.health.turned(has_work=False)

    def _see_to_capture(self, capture: Capture, stopping: Stopping) -> None:
        try:
            if not capture.ended():
                return
        except PenstockError as error:
            if decide(error) is not Action.RETRY:
                raise
            _log.warning(error.message, extra={"event": "capture_failed"})
        self._metrics.capture.retried("capture")
        _log.warning(
            "capture ended unexpectedly; starting it again", extra={"event": "capture_restarted"}
        )
        self._capture_pause.wait(stopping)
        capture.start()
