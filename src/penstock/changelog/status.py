"""How a change log stands: what it holds, who reads it, what capture last said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.changelog.changelog import ChangeLog, ReaderState
from penstock.model.lsn import Frontier


@dataclass(frozen=True)
class LogStatus:
    """A moment of a log."""

    frontier: Frontier | None
    segments: int
    total_bytes: int
    readers: dict[str, ReaderState]
    capture: dict[str, Any] | None

    def to_json(self) -> dict[str, Any]:
        return {
            "end": self.frontier.to_json() if self.frontier else None,
            "segments": self.segments,
            "bytes": self.total_bytes,
            "readers": {
                name: {
                    **state.frontier.to_json(),
                    "updated_at": state.updated_at,
                    "by": state.by,
                }
                for name, state in self.readers.items()
            },
            "capture": self.capture,
        }


def read_log_status(log: ChangeLog) -> LogStatus:
    """An empty status where there is none yet."""
    listing = log.list()
    return LogStatus(
        frontier=listing.frontier,
        segments=len(listing.segments),
        total_bytes=listing.total_bytes,
        readers=log.all_readers(),
        capture=log.capture_report(),
    )
