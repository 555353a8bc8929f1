"""Which failpoints a pipeline passes, by its destination."""

from __future__ import annotations

from penstock.failpoints import NAMES

DESTINATIONS = ("files", "kafka", "kinesis", "postgres")
"""Those that have failpoints of their own."""
COPY_NAMES = ("copy.read", "copy.written", "postgres.truncated", "postgres.chunk_written")
"""Those that only a pipeline passes that copies tables."""


def passed_failpoints(destination: str, *, copies: bool = False) -> tuple[str, ...]:
    """All but other destinations' own."""
    others = {*DESTINATIONS} - {destination}
    return tuple(
        name
        for name in NAMES
        if name.partition(".")[0] not in others and (copies or name not in COPY_NAMES)
    )
