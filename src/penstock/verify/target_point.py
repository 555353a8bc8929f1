"""The destination, brought to a position of the source and seen there."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg

from penstock.config.connection_url import ConnectionUrl
from penstock.destination.postgres.progress import Progress, read_progress
from penstock.destination.postgres.sessions.session import destination_errors, open_session
from penstock.model.errors import DestinationError
from penstock.model.lsn import format_lsn
from penstock.verify.snapshot import ComparedSnapshot

_TURN_SECONDS = 0.05

Drive = Callable[[], bool]
"""Brings the destination to the position itself if nobody else does; False if somebody does."""


class TargetPoint:
    """Waits until the destination holds exactly what was committed before a position."""

    def __init__(self, url: ConnectionUrl, application: str, pipeline: str) -> None:
        self._url = url
        self._application = application
        self._pipeline = pipeline

    def reach(
        self, lsn: int, drive: Drive, deadline: float
    ) -> tuple[ComparedSnapshot, Progress, bool]:
        """The destination as it is at ``lsn``, what it says of itself there, and whether it had to
        be driven. The snapshot is open. ``deadline`` is one of time.monotonic().
        """
        drove = False
        with self._connect() as conn:
            while (end := _end(self._progress(conn))) < lsn:
                drove = drive() or drove
                if time.monotonic() > deadline:
                    raise too_slow(lsn, end)
                time.sleep(_TURN_SECONDS)
        snapshot = ComparedSnapshot(self._connect, destination_errors)
        snapshot.open()
        try:
            # Only what the snapshot itself says counts.
            progress = self._progress(snapshot.leader)
            if progress is None or _end(progress) != lsn:
                raise went_past(lsn, _end(progress))
        except BaseException:
            snapshot.close()
            raise
        return snapshot, progress, drove

    def _connect(self) -> psycopg.Connection[Any]:
        return open_session(self._url, self._application, {})

    def _progress(self, conn: psycopg.Connection[Any]) -> Progress | None:
        with destination_errors("asking where the pipeline stands"):
            try:
                return read_progress(conn, self._pipeline)
            except psycopg.errors.UndefinedTable:
                return None


def too_slow(lsn: int, end: int) -> DestinationError:
    return DestinationError(
        f"The destination did not get to {format_lsn(lsn)} in time, where the two sides are to be "
        f"compared; it stands at {format_lsn(end)}.",
        remedy="Look at `penstock status`: the pipeline has to get there. One that is only slow "
        "needs more time: --wait 3600.",
    )


def went_past(lsn: int, end: int) -> DestinationError:
    return DestinationError(
        f"The pipeline went past {format_lsn(lsn)}, where it was to wait (it stands at "
        f"{format_lsn(end)}), so the two sides cannot be compared there.",
        remedy="Run the command again. If it stays so, this machine and the one that runs "
        "the pipeline do not share change_log.path.",
    )


def _end(progress: Progress | None) -> int:
    if progress is None or progress.watermarks is None:
        return 0
    return progress.watermarks.frontier.end_lsn
