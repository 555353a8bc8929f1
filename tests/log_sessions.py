"""Writers and readers of a log, against the model of what a server sends."""

from __future__ import annotations

from penstock.changelog import chain
from penstock.changelog.changelog import ChangeLog
from penstock.changelog.segment_run import read_runs
from penstock.changelog.view import LogView
from penstock.changelog.writer import LogWriter
from penstock.source.postgres.capture.assemble import Assembler
from tests.stream_model import START, Change, History, describe, read_back


class Session:
    """One capture process: it starts where the log ends and may die at any moment."""

    def __init__(self, log: ChangeLog, history: History) -> None:
        self.writer = LogWriter(log)
        self.start = self.writer.frontier or START
        self.writer.start_at(self.start)
        self._assembler = Assembler(self.start, describe)
        self._left = history.messages(self.start)

    def receive(self, count: int) -> None:
        self._assembler.add(self._left[:count])
        del self._left[:count]

    def publish(self) -> None:
        cut = self._assembler.cut()
        if cut.has_rows or not cut.is_open:
            self.writer.publish(cut.segment, cut.frontier, is_open=cut.is_open)

    def finish(self) -> None:
        self.receive(len(self._left))
        self.publish()


class Reader:
    """Follows the log in batches and remembers what it got. With a ``view`` it lists as a running
    pipeline does; without one all of the log each time.
    """

    def __init__(self, log: ChangeLog, view: LogView | None = None) -> None:
        self._log = log
        self._list = log.list if view is None else view.listing
        self.frontier = START
        self.changes: list[Change] = []

    def read(self, max_bytes: int) -> bool:
        listing = self._list()
        batch = chain.next_batch(listing.segments, listing.sizes, self.frontier, max_bytes)
        if batch is None:
            return False
        assert batch.frontier > self.frontier
        self.frontier = batch.frontier
        for run in read_runs(self._log, batch.pointers, max_bytes):
            self.changes += read_back(run)
        return True
