"""Publishes segments on a thread of its own, so that reading goes on while the disk syncs."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from penstock.capture.assemble import Cut
from penstock.changelog.changelog import LogWriter
from penstock.failpoints import failpoint
from penstock.lsn import Frontier


class Publisher:
    """At most one segment is under way: what is held in memory stays bounded."""

    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="publish")
        self._under_way: Future[None] | None = None
        self.changes = 0
        self.bytes = 0

    @property
    def frontier(self) -> Frontier | None:
        """What the log durably holds."""
        return self._writer.frontier

    @property
    def busy(self) -> bool:
        """Settles a finished publication; True while one is under way."""
        if self._under_way is not None and self._under_way.done():
            self.wait()
        return self._under_way is not None

    def publish(self, cut: Cut) -> None:
        """Hand a segment over; waits for the one before it and raises what went wrong with it."""
        self.wait()
        self._under_way = self._pool.submit(self._publish, cut)

    def wait(self) -> None:
        if self._under_way is not None:
            under_way, self._under_way = self._under_way, None
            under_way.result()

    def close(self) -> None:
        """Let what is under way finish; whether it succeeded no longer matters to the caller."""
        self._pool.shutdown(wait=True)

    def _publish(self, cut: Cut) -> None:
        failpoint("capture.before_publish")
        self._writer.publish(cut.segment, cut.frontier, is_open=cut.is_open)
        self.changes += cut.segment.rows.num_rows
        self.bytes += cut.segment.rows.nbytes
        failpoint("capture.published")
