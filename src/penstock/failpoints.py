"""Named places at which tests make a process die or fail.

``PENSTOCK_FAILPOINTS="capture.published=kill:3,task.written=error"`` kills the process with SIGKILL
at the third pass of the first place and raises at the first pass of the second. With
``PENSTOCK_FAILPOINT_DIR`` set, each fires once in all processes together, so that a restarted
process gets past it. Without the variable a place costs one dictionary look-up.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

PLACES = (
    "capture.received",
    "capture.before_publish",
    "capture.published",
    "capture.before_confirm",
    "task.read",
    "task.written",
    "copy.read",
    "copy.written",
    "driver.before_commit",
    "driver.committed",
)
"""Those that every pipeline passes. A destination declares its own: ``Destination.failpoints``."""

WORKER_PLACES = (
    "worker.leased",
    "worker.copied",
    "worker.handed_in",
    "worker.committed",
    "worker.noted",
)
"""Those on the way of chunks that workers copy; the last two are the driver's."""

_ROOMS = {place.partition(".")[0] for place in (*PLACES, *WORKER_PLACES)}


def _parse(text: str) -> dict[str, tuple[str, int]]:
    """Raises ValueError for what cannot be meant. Whether a destination has a place that it is said
    to have is for the registry of destinations to say: they are not known down here.
    """
    points = {}
    for entry in filter(None, text.split(",")):
        name, _, action = entry.partition("=")
        kind, _, count = action.partition(":")
        count = count or "1"
        room, _, place = name.partition(".")
        known = name in (*PLACES, *WORKER_PLACES) if room in _ROOMS else room and place
        if not known or kind not in ("kill", "error") or not count.isdecimal():
            raise ValueError(
                f"PENSTOCK_FAILPOINTS: {entry!r} is not PLACE=kill|error[:PASS]; "
                f"places: {', '.join((*PLACES, *WORKER_PLACES))}, and DESTINATION.PLACE"
            )
        points[name] = (kind, int(count))
    return points


_points = _parse(os.environ.get("PENSTOCK_FAILPOINTS", ""))


def failpoint(name: str) -> None:
    """Die or fail here if the environment says so."""
    if name not in _points:
        return
    kind, count = _points[name]
    if count > 1:
        _points[name] = (kind, count - 1)
        return
    del _points[name]
    folder = os.environ.get("PENSTOCK_FAILPOINT_DIR")
    if folder:
        try:
            Path(folder, name).touch(exist_ok=False)
        except FileExistsError:
            return
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise RuntimeError(f"failpoint {name}")


def destination_points() -> list[str]:
    """Those that are set and that a destination must have declared. The registry asks for them."""
    return [name for name in _points if name.partition(".")[0] not in _ROOMS]
