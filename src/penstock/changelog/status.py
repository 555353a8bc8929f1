"""How a change log stands: what it holds, who reads it, what capture last said."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.changelog import chain
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
    waiting: dict[str, int] = field(default_factory=dict)
    """How many bytes of the log each reader has not got yet."""

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
                    "waiting_bytes": self.waiting.get(name),
                }
                for name, state in self.readers.items()
            },
            "capture": self.capture,
        }


def read_log_status(log: ChangeLog) -> LogStatus:
    """An empty status where there is none yet."""
    listing, readers = log.list(), log.all_readers()
    return LogStatus(
        frontier=listing.frontier,
        segments=len(listing.segments),
        total_bytes=listing.total_bytes,
        readers=readers,
        capture=log.capture_report(),
        waiting={
            name: chain.waiting_bytes(listing.segments, listing.sizes, reader.frontier)
            for name, reader in readers.items()
        },
    )
