"""The capture process: sessions one after another, until it is told to stop or must not go on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from penstock.backoff import Backoff
from penstock.cadence import paced
from penstock.changelog.changelog import ChangeLog
from penstock.model.error_transport import error_to_json
from penstock.model.errors import (
    LogUnavailable,
    PenstockError,
    PipelineBusy,
    SourceUnavailable,
)
from penstock.source.capture.link import Link
from penstock.source.capture.say import say
from penstock.source.capture.stop import Stop

_STAND_BY_SECONDS = paced(5.0)


class NotYetError(Exception):
    """A session cannot begin yet, and nobody has to hear of it: another try in so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


def run_sessions(
    log: ChangeLog, stop: Stop, session: Callable[[], None], *, stands_by: bool
) -> None:
    """Call ``session`` until it returns or ``stop``; raises what a person has to look at.

    What may pass by itself is reported, and tried again with pauses that grow. ``stands_by``: while
    another process captures for this pipeline, wait until it has ended.
    """
    log.root.make_private()
    backoff = Backoff()
    while not stop():
        try:
            session()
            return
        except NotYetError as error:
            stop.wait(error.seconds)
        except PipelineBusy as error:
            if not stands_by:
                raise
            stop.link.say({"state": "standing by", "pid": os.getpid(), "error": error.message})
            stop.wait(_STAND_BY_SECONDS)
        except (SourceUnavailable, LogUnavailable) as error:
            pause = backoff.next_pause()
            report = {"state": "reconnecting", "pid": os.getpid(), "at": time.time()}
            stop.link.report(log, {**report, "error": str(error)})
            say(f"{error}; trying again in {pause:.1f} s")
            stop.wait(pause)


def report_failure(link: Link, log: ChangeLog, error: PenstockError) -> None:
    """Leave the reason where `penstock run` and `penstock status` find it."""
    link.report(
        log,
        {
            "state": "failed",
            "pid": os.getpid(),
            "at": time.time(),
            "error": error.message,
            "remedy": error.remedy,
            **error_to_json(error),
        },
    )
