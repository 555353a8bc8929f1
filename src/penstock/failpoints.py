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

NAMES = (
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
    "files.staged",
    "files.manifest_written",
    "kafka.handed_over",
    "kafka.lane_committed",
    "kinesis.called",
    "postgres.staged",
    "postgres.merged",
    "postgres.committed",
    "postgres.truncated",
    "postgres.chunk_written",
)


def _parse(text: str) -> dict[str, tuple[str, int]]:
    points = {}
    for entry in filter(None, text.split(",")):
        name, _, action = entry.partition("=")
        kind, _, count = action.partition(":")
        count = count or "1"
        if name not in NAMES or kind not in ("kill", "error") or not count.isdecimal():
            raise ValueError(
                f"PENSTOCK_FAILPOINTS: {entry!r} is not PLACE=kill|error[:PASS]; "
                f"places: {', '.join(NAMES)}"
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
