"""How often a storage is asked and written to beside the changes themselves."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from penstock.cadence import paced


@dataclass(frozen=True)
class Pace:
    """Seconds between two of a kind. On object storage each of them is a request to pay for
    (docs/object_storage.md).
    """

    list_busy: float
    """Readers look for new segments this often while they find some."""
    list_idle: float
    """And this often once they have found none for a while."""
    notice: float
    """No longer ago whoever plans batches has listed what he goes by, or somebody for him."""
    fence: float
    """A writer looks whether another one has taken over."""
    readers: float
    """A reader's position is written, and read."""
    report: float
    """Capture says how it is."""
    advance: float
    """Capture says how far the WAL is, while it holds nothing for the pipeline."""
    quiet: float
    """Not seconds but a part of ``segment_age``: so long after the last segment the next one ends,
    where the line is quiet.
    """


FOLDER = Pace(
    list_busy=0.0,
    list_idle=0.0,
    notice=0.0,
    fence=0.0,
    readers=0.0,
    report=paced(1.0),
    advance=paced(5.0),
    quiet=0.25,
)
OBJECTS = Pace(
    list_busy=0.6,
    list_idle=2.0,
    notice=4.0,
    fence=2.0,
    readers=10.0,
    report=10.0,
    advance=30.0,
    quiet=inf,
)
