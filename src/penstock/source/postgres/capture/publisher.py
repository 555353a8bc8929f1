"""Cuts and publishes segments on a thread of its own, so that reading never waits for the disk.

A reader that pauses lets the server's send buffer fill, and a walsender that has to wait for it
does so message by message.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from penstock.changelog.writer import LogWriter
from penstock.failpoints import failpoint
from penstock.model.lsn import Frontier
from penstock.model.table_schema import TableSchema
from penstock.source.capture.say import say
from penstock.source.contract import OnSegment
from penstock.source.postgres.capture.assemble import Assembler, Collected

ShareTables = Callable[[dict[int, TableSchema]], None]


class Publisher:
    """At most one segment is under way: what is held in memory stays bounded.

    While one is, the assembler's state belongs to it.
    """

    def __init__(
        self,
        assembler: Assembler,
        writer: LogWriter,
        share_tables: ShareTables,
        published: OnSegment,
    ) -> None:
        self._published = published
        self._assembler = assembler
        self._writer = writer
        self._share_tables = share_tables
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="publish")
        self._under_way: Future[None] | None = None
        self._is_open = False
        """Whether the last segment ends inside a transaction."""
        self.messages = 0
        self.received_bytes = 0
        self.transactions = 0
        self.left_out = 0
        self.forged = 0
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

    def publish(self, *, also_empty: bool = False) -> None:
        """Cut what was collected and publish it, after the one before it.

        Raises what went wrong with that one. Without rows there is nothing to publish, unless
        ``also_empty``, or where it ends a transaction that the log has left open: then the segment
        says how far the log is.
        """
        self.wait()
        self._under_way = self._pool.submit(self._publish, self._assembler.collect(), also_empty)

    def wait(self, seconds: float | None = None) -> None:
        """Until nothing is under way, or for so long. Raises what went wrong with it."""
        if self._under_way is None:
            return
        wait([self._under_way], seconds)
        if self._under_way.done():
            done, self._under_way = self._under_way, None
            done.result()

    def close(self) -> None:
        """Let what is under way finish; whether it succeeded no longer matters to the caller."""
        self._pool.shutdown(wait=True)

    def _tell_of_forged(self, count: int) -> None:
        if count and not self.forged:
            say(
                "somebody sends logical messages that pretend to tell of schema changes; "
                "they are left out and counted (docs/security.md)"
            )
        self.forged += count

    def _publish(self, collected: Collected, also_empty: bool) -> None:
        cut = self._assembler.cut(collected)
        self.messages += cut.messages
        self.received_bytes += sum(map(len, collected.chunks))
        self.transactions += cut.transactions
        self.left_out += cut.left_out
        self._tell_of_forged(cut.forged)
        # Before the rows: whoever sees a row may ask what its table looks like.
        self._share_tables(self._assembler.tables)
        ends_open = self._is_open and cut.transactions > 0
        if not cut.has_rows and not also_empty and not ends_open:
            return
        failpoint("capture.before_publish")
        name = self._writer.publish(
            cut.segment,
            cut.frontier,
            is_open=cut.is_open,
            has_schema_changes=cut.has_schema_changes,
        )
        self._is_open = cut.is_open
        self._published(str(name), self._writer.size_of(name))
        self.changes += cut.segment.rows.num_rows
        self.bytes += cut.segment.rows.nbytes
        failpoint("capture.published")
