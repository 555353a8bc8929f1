"""Messages of many partitions, put together to the transactions that they are of. Pure.

Transactions are completed in the order of their ENDs, which is that of their commits. One
connector writes the rows of each partition in that order, too. So the rows of the next transaction
stand first in each partition, and what is taken of a partition is always its beginning.

Debezium sends messages again after it was restarted, from some point on, in the same order and
with the same ids. A row is a repeated one if its transaction and its number there are held already;
or if it does not stand behind the last row that was taken of its partition, by the commit before
its transaction and its number there. A row that does, and is of a transaction that was completed,
was not counted by its END. Everything that fits neither this nor the order is refused by name.

An END that comes again may count fewer rows: a Debezium that was restarted between two changes of
one LSN (the delete and the insert that an update of a key is) goes on behind both, and counts one.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, NoReturn, TypeVar

from penstock.model.errors import SourceError
from penstock.source.kafka.marks import End, RowMark
from penstock.source.kafka.offsets import Ended, Partition

Message = TypeVar("Message")

BESIDE = 500
"""About what a message takes here beside its own bytes."""

_SHOWN = 5

Places = Callable[[str], "Collection[Partition] | None"]
"""The partitions in which rows of a table stand, as far as they are there; None for a table whose
topic is not read: nobody waits for its rows.
"""

_REMEDY = (
    "Let one connector write the topics, and nobody else; keep them without compaction and with a "
    "retention that is longer than this pipeline is ever behind. To go on without whole "
    "transactions, remove source.transaction_topic and set source.split_transactions to accept: "
    "the rows are taken one by one then. To have them whole again, begin anew with topics without "
    "the old messages: `penstock destroy FILE`, then `penstock run FILE`"
)


@dataclass(slots=True)
class HeldMessage(Generic[Message]):
    """``message`` is None where it is left out: it was sent again, or says nothing."""

    place: Partition
    offset: int
    message: Message | None
    size: int = 0
    mark: RowMark | None = None
    end: End | None = None
    epoch: int | None = None


@dataclass(frozen=True)
class Release(Generic[Message]):
    """What may be taken now, in this order: one message that is of no transaction, or a whole
    transaction with its END.
    """

    entries: list[HeldMessage[Message]]
    end: HeldMessage[Message] | None = None


@dataclass(frozen=True)
class Waiting:
    """``xid`` is the transaction that nothing comes before; ``topics`` where more of it must come.
    ``lacks`` is what, in words.
    """

    xid: int
    topics: tuple[str, ...]
    lacks: str


@dataclass
class _Held:
    """What has come of a transaction."""

    rows: dict[int, tuple[Partition, RowMark]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    at: Counter[Partition] = field(default_factory=Counter)
    size: int = 0


def _is_part(counts: Mapping[str, int], of: Mapping[str, int]) -> bool:
    return all(count <= of.get(table, 0) for table, count in counts.items())


class TransactionAssembler(Generic[Message]):
    """``boundaries`` is the partition with BEGIN and END, ``ended`` the last END whose rows were
    taken, ``limit`` how many bytes are held before no more is asked for. ``tops`` are the last rows
    that were taken of each partition, as ``RowMark.position``.
    """

    def __init__(
        self,
        boundaries: Partition,
        ended: Ended,
        limit: int,
        places: Places,
        tops: Mapping[Partition, tuple[int, int, int]],
    ) -> None:
        self._tops = dict(tops)
        self._boundaries = boundaries
        self._ended = ended
        self._limit = limit
        self._places = places
        self._queues: dict[Partition, deque[HeldMessage[Message]]] = {}
        self._sizes: Counter[Partition] = Counter()
        self._held: dict[int, _Held] = {}
        self._ends: deque[HeldMessage[Message]] = deque()
        self._end_of: dict[int, End] = {}
        self._last: dict[Partition, RowMark] = {}
        self._lacks: list[str] = []
        """Tables of the next transaction of which rows lacked when all of them were looked at."""
        self.size = 0
        self.repeated = 0

    def add(self, entry: HeldMessage[Message]) -> Iterator[Release[Message]]:
        """Take the next message of a partition; what may be taken since. Raises SourceError."""
        if entry.mark is not None:
            self._add_row(entry, entry.mark)
        elif entry.end is not None:
            self._add_end(entry, entry.end)
        queue = self._queues.setdefault(entry.place, deque())
        queue.append(entry)
        self._sizes[entry.place] += entry.size
        self.size += entry.size
        if len(queue) == 1:
            yield from self._loose(entry.place)
        yield from self._whole()

    def again(self) -> Iterator[Release[Message]]:
        """Called now and then: what may be taken since topics came or went. Raises SourceError for
        a transaction of which something cannot come any more.
        """
        self._lacks = []
        yield from self._whole()

    def wanted(self) -> frozenset[Partition] | None:
        """The partitions to read on; None for all of them. Where much is held, only those that the
        next transaction lacks something of. Raises SourceError for one that is too large.
        """
        if self.size <= self._limit:
            return None
        if not self._ends:
            return frozenset({self._boundaries})
        end = self._next_end()
        places = [
            place
            for _, _, places in self._lacking(end)
            for place in places
            if not self._is_past(place, end)
        ]
        read = {f"of it in {place}": self._sizes[place] for place in places}
        read["of it"] = self._held.get(end.xid, _Held()).size
        most = max(read, key=lambda what: read[what])
        if read[most] > self._limit:
            raise SourceError(
                f"transaction {end.xid} is too large to be put together: {read[most]:,} bytes "
                f"{most} were read (with what stands between its rows), and not all of it; "
                f"{self._limit:,} may be held",
                remedy="set source.transaction_bytes to more than its messages have, if capture "
                "has the memory; or read the topics without whole transactions, as follows. "
                + _REMEDY,
            )
        return frozenset(places)

    def waiting(self) -> Waiting | None:
        """What is waited for; None where nothing is. Raises SourceError where it cannot come."""
        for place, queue in self._queues.items():
            if queue and (mark := queue[0].mark) and mark.after < self._ended.lsn:
                self._refuse(
                    f"the message at offset {queue[0].offset} of {place} is of transaction "
                    f"{mark.xid}, whose END has not come before that of transaction "
                    f"{self._ended.xid}, which was committed after it"
                )
        if self._ends:
            end = self._next_end()
            lacking = self._lacking(end)
            shown, more = lacking[:_SHOWN], len(lacking) - _SHOWN
            held = self._held.get(end.xid, _Held()).counts
            rows = ", ".join(
                f"{end.counts[table] - held[table]} of {end.counts[table]} rows of {table}"
                for _, table, _ in shown
            )
            return Waiting(
                end.xid,
                tuple(topic for topic, _, _ in shown),
                rows + (f" and rows of {more} more tables" if more > 0 else ""),
            )
        heads = [q[0] for q in self._queues.values() if q and q[0].mark is not None]
        first = min(heads, key=lambda entry: entry.mark.after if entry.mark else 0, default=None)
        if first is None or first.mark is None:
            return None
        return Waiting(first.mark.xid, (self._boundaries.topic,), "its END")

    # -- what comes ------------------------------------------------------------------------------

    def _add_row(self, entry: HeldMessage[Message], mark: RowMark) -> None:
        held = self._held.get(mark.xid)
        known = None if held is None else held.rows.get(mark.order)
        what = f"the message at offset {entry.offset} of {entry.place}"
        if known is not None:
            place, other = known
            if (place, other.lsn, other.collection) != (entry.place, mark.lsn, mark.collection):
                self._refuse(
                    f"{what} is number {mark.order} of transaction {mark.xid}, and so is another "
                    f"one in {place}"
                )
            self._leave_out(entry)
        elif entry.place in self._tops and not mark.is_behind(self._tops[entry.place]):
            self._expect_known(what, mark.xid, mark.millis)
            self._leave_out(entry)
        elif mark.lsn < self._ended.lsn and mark.after < self._ended.lsn:
            self._expect_known(what, mark.xid, mark.millis)
            self._refuse_uncounted(what, entry.place.topic, mark)
        else:
            self._expect_order(what, entry.place, mark)
            held = self._held.setdefault(mark.xid, _Held())
            held.rows[mark.order] = entry.place, mark
            held.counts[mark.collection] += 1
            held.at[entry.place] += 1
            held.size += entry.size
            self._last[entry.place] = mark

    def _expect_order(self, what: str, place: Partition, mark: RowMark) -> None:
        last = self._last.get(place)
        if last is None:
            return
        if mark.xid == last.xid and last.xid in self._held:
            is_behind = mark.order > last.order
        else:
            is_behind = mark.after > last.after
        if not is_behind:
            self._refuse(
                f"{what} is number {mark.order} of transaction {mark.xid}, which does not come "
                f"behind number {last.order} of transaction {last.xid}, the one before it"
            )

    def _add_end(self, entry: HeldMessage[Message], end: End) -> None:
        what = f"the END of transaction {end.xid} at offset {entry.offset} of {entry.place}"
        if end.lsn <= self._ended.lsn:
            self._expect_known(what, end.xid, end.millis)
            if self._ended.lacks(end.lsn):
                self._refuse(
                    f"{what} stands before that of transaction {self._ended.xid}, which was "
                    "completed, and was never there"
                )
            self._leave_out(entry)
        elif (known := self._end_of.get(end.lsn)) is not None:
            if known.xid != end.xid or not _is_part(end.counts, known.counts):
                self._refuse(f"{what} says something else than the one that came before")
            self._leave_out(entry)
        elif self._ends and end.lsn < self._ends[-1].end.lsn:  # type: ignore[union-attr]
            self._refuse(f"{what} comes behind that of a later transaction")
        else:
            self._ends.append(entry)
            self._end_of[end.lsn] = end

    def _expect_known(self, what: str, xid: int, millis: int) -> None:
        """What was sent again was committed before, by the clock, too."""
        if millis > self._ended.millis:
            self._refuse(
                f"{what} (transaction {xid}) stands before the last transaction that was completed "
                f"({self._ended.xid}), and was committed later: it comes from another server, or "
                "from one that was restored to an earlier state"
            )

    def _leave_out(self, entry: HeldMessage[Message]) -> None:
        self.repeated += 1
        entry.message, entry.mark, entry.end = None, None, None
        entry.size = min(entry.size, BESIDE)

    # -- what may go -----------------------------------------------------------------------------

    def _loose(self, place: Partition) -> Iterator[Release[Message]]:
        """Messages of no transaction that nothing stands before."""
        queue = self._queues[place]
        while queue and queue[0].mark is None and queue[0].end is None:
            yield Release([self._pop(place)])

    def _whole(self) -> Iterator[Release[Message]]:
        """All that is complete, and messages of no transaction that stand behind it."""
        while (whole := self._completed()) is not None:
            yield whole
            for place in {each.place for each in (*whole.entries, whole.end) if each is not None}:
                yield from self._loose(place)

    def _completed(self) -> Release[Message] | None:
        if not self._ends:
            return None
        end = self._next_end()
        if self._still_lacks(end):
            return None
        if lacking := self._lacking(end):
            for topic, table, places in lacking:
                if places and all(self._is_past(place, end) for place in places):
                    count = self._held.get(end.xid, _Held()).counts[table]
                    self._refuse(
                        f"transaction {end.xid} has {end.counts[table]} rows of {table}, and "
                        f"{count} of them stand in {topic}, before those of later transactions"
                    )
            self._lacks = [table for _, table, _ in lacking]
            return None
        held = self._held.pop(end.xid, _Held())
        if unknown := held.counts.keys() - end.counts.keys():
            self._refuse(
                f"rows of {min(unknown)} name transaction {end.xid}, whose END does not know them"
            )
        if (most := max(held.rows, default=0)) > end.total:
            self._refuse(
                f"number {most} of transaction {end.xid} was read, and its END counts "
                f"{end.total} (Debezium was restarted among changes of one LSN)"
            )
        entries = self._popped(end, held)
        self._ends.popleft()
        del self._end_of[end.lsn]
        self._ended = self._ended.then(end.xid, end.lsn, end.millis)
        return Release(entries, self._pop(self._boundaries))

    def _pop(self, place: Partition) -> HeldMessage[Message]:
        entry = self._queues[place].popleft()
        self._sizes[place] -= entry.size
        self.size -= entry.size
        return entry

    def _popped(self, end: End, held: _Held) -> list[HeldMessage[Message]]:
        """The rows in their order, and what stands between them in a partition."""
        found: list[tuple[int, HeldMessage[Message]]] = []
        for place, rows in held.at.items():
            order, left = 0, rows
            while left:
                entry = self._pop(place)
                if entry.mark is not None:
                    if entry.mark.xid != end.xid:
                        self._refuse(
                            f"the message at offset {entry.offset} of {place} is of transaction "
                            f"{entry.mark.xid}, and stands before rows of transaction {end.xid}, "
                            "whose END came first"
                        )
                    order = entry.mark.order
                    left -= 1
                    self._tops[place] = entry.mark.position
                found.append((order, entry))
        # Sorting keeps the order of those that are equal.
        return [entry for _, entry in sorted(found, key=lambda each: each[0])]

    def _still_lacks(self, end: End) -> bool:
        """Asked for each message, so it looks at one table: END may name a thousand."""
        held = self._held.get(end.xid, _Held()).counts
        while self._lacks and held[self._lacks[-1]] >= end.counts[self._lacks[-1]]:
            self._lacks.pop()
        return bool(self._lacks)

    def _lacking(self, end: End) -> list[tuple[str, str, Collection[Partition]]]:
        """The topics and tables of which rows have to come."""
        held = self._held.get(end.xid, _Held()).counts
        found = []
        for table, count in end.counts.items():
            if held[table] > count:
                self._refuse(
                    f"transaction {end.xid} has {count} rows of {table}, says its END, and "
                    f"{held[table]} were read"
                )
            if held[table] < count and (places := self._places(table)) is not None:
                topic = next((place.topic for place in places), f"the topic of {table}")
                found.append((topic, table, places))
        return found

    def _is_past(self, place: Partition, end: End) -> bool:
        """Whether rows of later transactions were read there."""
        last = self._last.get(place)
        return last is not None and last.xid != end.xid and last.after >= end.lsn

    def _next_end(self) -> End:
        end = self._ends[0].end
        assert end is not None  # noqa: S101 (only those that have one are put there)
        return end

    def _refuse_uncounted(self, what: str, topic: str, mark: RowMark) -> NoReturn:
        why, remedy = "its END did not count it", _REMEDY
        if topic not in {place.topic for place in self._tops}:
            why += f", or source.topics did not name {topic} then"
            remedy = f"If it was added, take {topic} out of source.topics again. {_REMEDY}"
        self._refuse(
            f"{what} is number {mark.order} of transaction {mark.xid}, which was completed without "
            f"it: {why}",
            remedy,
        )

    def _refuse(self, what: str, remedy: str = _REMEDY) -> NoReturn:
        raise SourceError(
            f"source kafka: transactions cannot be put together: {what}", remedy=remedy
        )
