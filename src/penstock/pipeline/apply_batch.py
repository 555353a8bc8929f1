"""What the driver does with one micro-batch's receipts."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from penstock.changelog.changelog import ChangeLog
from penstock.destination.contract import Destination, Receipt
from penstock.errors import LogError
from penstock.failpoints import failpoint
from penstock.lsn import NOTHING, Frontier
from penstock.pipeline.standing import Standing


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
        self._read_up_to = NOTHING
        self._set_aside: Collection[int] = ()
        self.standing = Standing()

    def begin(self, standing: Standing, set_aside: Collection[int]) -> None:
        """Take over where the destination stands, before a query reads on from there."""
        self._set_aside = set_aside
        self.standing = standing.without(set_aside)
        self._read_up_to = self.standing.start(set_aside)
        self._record()

    def __call__(self, receipts: list[Receipt], frontier: Frontier) -> None:
        if frontier < self._read_up_to:
            raise LogError(
                f"a batch would take the destination back from {self._read_up_to} to {frontier}; "
                "nothing of it was committed",
                remedy="this is a bug in Penstock: please report it, with the change log's listing "
                "(`penstock log inspect`)",
            )
        standing = self.standing.after(frontier, self._set_aside)
        failpoint("driver.before_commit")
        self._destination.commit(receipts, standing.frontier, standing.behind)
        failpoint("driver.committed")
        self.standing, self._read_up_to = standing, frontier
        self._record()
        self._observe(Delivered(standing.frontier, len(receipts), time.time()))

    def _record(self) -> None:
        """Tell capture what the destination holds."""
        self._log.set_reader(self._reader, self.standing.held, self._wanted_lsn)
