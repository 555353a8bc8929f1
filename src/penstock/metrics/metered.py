"""Counting and timing one task, while it runs. A table and a piece at a time, never a row."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

from penstock.metrics.written import Pair, Written
from penstock.pgoutput.tuples import ROW_OPS

if TYPE_CHECKING:
    from penstock.decode.changes import ChangeSet
    from penstock.destination.contract import LanedWriter, LanePart, Receipt

Item = TypeVar("Item")
Stage = Literal["read", "encode", "shuffle", "write"]

_END = object()


class Metered:
    """Measures one task; ``written`` is right once the task has come to its end."""

    def __init__(self, retries: int = 0) -> None:
        self.written = Written(retries=retries)

    @contextmanager
    def stage(self, name: Stage) -> Iterator[None]:
        """Time that passes inside counts for this stage, without that of stages inside of it."""
        seconds = self.written.seconds
        began, others = time.perf_counter(), sum(seconds.values())
        try:
            yield
        finally:
            spent = time.perf_counter() - began - (sum(seconds.values()) - others)
            seconds[name] = seconds.get(name, 0.0) + spent

    def timed(self, name: Stage, items: Iterable[Item]) -> Iterator[Item]:
        """The same items; the time that it takes to get them counts for the stage."""
        source = iter(items)
        while True:
            with self.stage(name):
                item = next(source, _END)
            if item is _END:
                return
            yield item  # type: ignore[misc]

    def changes(
        self, changes: Iterable[ChangeSet], filtered: Callable[[], Counter[Pair]]
    ) -> Iterator[ChangeSet]:
        """The same changes, counted; ``filtered`` is asked at the end what else there was."""
        for some in self.timed("read", changes):
            self._count(some)
            yield some
        self.written.filtered += filtered()

    def parts(self, parts: Iterable[LanePart]) -> Iterator[LanePart]:
        """The same parts of lanes, counted."""
        for part in self.timed("encode", parts):
            self.written.messages += part.messages
            self.written.message_bytes += part.size
            yield part

    def sent(self, writer: LanedWriter, parts: Iterable[LanePart]) -> Receipt:
        """Let the writer send them; what had to be sent again, or reached nobody, is counted."""
        receipt, resent, unroutable = writer.send(parts)
        self.written.resent += resent
        self.written.unroutable += unroutable
        return receipt

    def _count(self, changes: ChangeSet) -> None:
        counts, last = self.written.changes, self.written.commit_micros
        for table in changes.tables:
            name, ops = table.table.qualified_name, table.op
            for op, text in ROW_OPS.items():
                if count := int(np.count_nonzero(ops == op)):
                    counts[name, text] += count
            if len(table):
                # In position order: the last one is the newest.
                last = max(last, int(table.commit_micros[-1]))
        for event in changes.truncates:
            for truncated in event.tables:
                counts[truncated.qualified_name, "truncate"] += 1
            self.written.truncates |= {(table.oid, event.stamp.xid) for table in event.tables}
            last = max(last, event.stamp.commit_micros)
        for message in changes.messages:
            counts["", "message"] += 1
            last = max(last, message.stamp.commit_micros)
        self.written.commit_micros = last
