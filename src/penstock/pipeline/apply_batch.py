"""What the driver does with one micro-batch's receipts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock.changelog.changelog import ChangeLog
from penstock.destination.contract import Destination, Receipt
from penstock.errors import LogError
from penstock.failpoints import failpoint
from penstock.lsn import NOTHING, Frontier


@dataclass(frozen=True)
class Delivered:
    """One batch that the destination holds durably."""

    frontier: Frontier
    tasks: int
    at: float


class BatchCommitter:
    """Commits batches to the destination, then lets capture confirm them."""

    def __init__(
        self,
        destination: Destination,
        log: ChangeLog,
        reader: str,
        wanted_lsn: int,
        observe: Callable[[Delivered], None],
    ) -> None:
        self._destination = destination
        self._log = log
        self._reader = reader
        self._wanted_lsn = wanted_lsn
        self._observe = observe
        self.frontier = NOTHING

    def __call__(self, receipts: list[Receipt], frontier: Frontier) -> None:
        if frontier < self.frontier:
            raise LogError(
                f"a batch would take the destination back from {self.frontier} to {frontier}; "
                "nothing of it was committed",
                remedy="this is a bug in Penstock: please report it, with the change log's listing "
                "(`penstock log inspect`)",
            )
        failpoint("driver.before_commit")
        self._destination.commit(receipts, frontier)
        failpoint("driver.committed")
        self.record(frontier)
        self._observe(Delivered(frontier, len(receipts), time.time()))

    def record(self, frontier: Frontier) -> None:
        """Tell capture what the destination holds."""
        self.frontier = frontier
        self._log.set_reader(self._reader, frontier, self._wanted_lsn)
