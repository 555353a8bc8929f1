"""One factor for how often Penstock looks whether something has changed.

``PENSTOCK_CADENCE=0.2`` makes every look and every first pause five times as frequent, in child
processes too. Tests set it; a pipeline in production has no use for it.
"""

from __future__ import annotations

import os

_FACTOR = float(os.environ.get("PENSTOCK_CADENCE", "1"))


def paced(seconds: float) -> float:
    """The seconds between two looks."""
    return seconds * _FACTOR
