"""What the driver does with one micro-batch's receipts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from penstock.changelog.changelog import Listing
from penstock.changelog.reader_record import ReaderRecord
from penstock.destination.contract import Rows, SchemaChange
from penstock.destination.protocols import FollowsSchema, TakesPieces
from penstock.failpoints import failpoint
from penstock.metrics.written import JobResult
from penstock.model.errors import (
    BatchAgain,
    DestinationUnavailable,
    IdentityChanged,
    LogError,
    PenstockError,
    SourceError,
    SourceUnavailable,
    StoreError,
)
from penstock.model.lsn import NOTHING, Frontier
from penstock.model.source_identity import SeenSource, SourceIdentity
from penstock.model.watermarks import Watermarks
from penstock.pipeline.run.context import RunContext
from penstock.pipeline.run.held import expect_source, held_by
from penstock.pipeline.run.setback import go_on_from
from penstock.pipeline.tables.registry import TableRegistry

Commit = Callable[[Watermarks], None]

# They are asked for soon.
_MOST_TRUNCATES = 10_000
# By then a connection that was lost is noticed, and made anew.
_EXCHANGED_SECONDS = 3.0
_LOOK_SECONDS = 0.1
_LOCKED_SECONDS = 5.0


@dataclass(frozen=True)
class Delivered:
    """One batch that the destination holds durably: since when, and how many seconds before that
    its job began, and ended.
    """

    frontier: Frontier
    tasks: int
    at: float
    job_began: float = 0.0
    job_ended: float = 0.0


class BatchCommitter:
    """Commits batches to the destination, then lets capture confirm them.

    Batches of the stream and those that bring single tables on come from two threads; they are
    committed one at a time.
    """

    def __init__(
        self,
        context: RunContext,
        *,
        wanted_lsn: int = 0,
        observe: Callable[[Delivered], None] = lambda _: None,
    ) -> None:
        """``wanted_lsn`` is where capture is to say that it has got; ``observe`` is called for
        every batch, by the thread that commits.
        """
        self._context = context
        self._session = context.session
        self._destination = context.destination
        self._log = context.log
        self._metrics = context.metrics
        self._wanted_lsn = wanted_lsn
        self._observe = observe
        self._in_doubt: tuple[JobResult, Frontier] | None = None
        """A batch whose commit failed, and where the destination stands if it holds it after all:
        then nobody brings it again, and it is counted when that is known.
        """
        self._read_up_to = NOTHING
        self._set_aside: Collection[int] = ()
        self.is_unsure = True
        """Whether nobody knows where the destination stands, until it is asked."""
        self.failed_aside = False
        """Whether a commit beside the stream failed since: it is the stream that asks, and of an
        idle source it commits nothing that would tell it.
        """
        self._placed: dict[int, Frontier] = {}
        self._truncates: dict[tuple[int, int], None] = {}
        self._kept: frozenset[int] = frozenset()
        """Those that were placed and not freed since, also if nobody else says that they wait."""
        self.lock = threading.RLock()
        """Held while something is committed: who changes the destination otherwise takes it."""
        self.standing = Watermarks()
        self._seen: SeenSource | None = None
        self._writer, self._timeline = 0, 0
        self.record = ReaderRecord(self._log, context.config.delivery)
        """What capture, and whoever looks at the log, knows of the destination."""
        recorded = self._log.reader(context.config.delivery)
        self.record.begin = recorded.begin if recorded else None
        self._said = recorded.frontier if recorded else NOTHING
        """How far the destination was when it said that for the last time, in any run."""
        self._begin = NOTHING

    def take_up(
        self,
        begin: Frontier,
        known: Collection[int],
        set_aside: Collection[int],
        waiting: Mapping[int, Frontier | None],
    ) -> Watermarks:
        """Ask the destination where it stands, before a query reads on from there.

        ``begin`` is where it stands if it does not know. ``known`` are all tables; ``waiting`` are
        those that are set aside while their changes wait, and where they stood when that began, as
        far as known.
        """
        return self._take_up(self.held(), begin, known, set_aside, waiting)

    def _take_up(
        self,
        held: Watermarks | None,
        begin: Frontier,
        known: Collection[int],
        set_aside: Collection[int],
        waiting: Mapping[int, Frontier | None],
    ) -> Watermarks:
        with self.lock:
            # What was placed since the last commit is newer than what the destination knows, and so
            # is that a table was let go: the destination hears of that with the next commit.
            told = {**(held.behind if held else {}), **self._placed}
            delivered = frozenset(known) - frozenset(set_aside)
            wanted = {*delivered, *waiting, *self._kept}
            # A source that could not be asked now is compared with what was known before.
            known_source = held.source if held and held.source else self.standing.source
            standing = Watermarks(
                held.frontier if held else begin,
                {oid: at for oid, at in told.items() if oid in wanted},
                self._as_captured(self._seen.identity if self._seen else known_source),
            )
            for oid, at in waiting.items():
                places = [*filter(None, [at, told.get(oid)])]
                standing = standing.placed({oid: max(places, default=standing.frontier)})
            self.standing = standing = standing.together(set_aside)
            self._said = standing.frontier
            self._settle_doubt(held)
            self._set_aside = frozenset(set_aside)
            self._read_up_to = standing.start(set_aside)
            self.is_unsure = self.failed_aside = False
            self._record()
            return standing

    def resume(self, begin: Frontier, tables: TableRegistry) -> None:
        """Go on where the destination stands, or if it does not know, where it was last seen; at
        ``begin`` where nobody has seen it. Called by the main thread while no query is under way.

        Raises IdentityChanged where it holds what came from another source.
        """
        self.record.look()
        self._begin, held = begin, self.held()
        self._meet(held or Watermarks())
        if self._lacks(held):
            at = held.frontier if held else begin
            go_on_from(at, self._said, held, self._context, tables)
        part = tables.take_part()
        standing = self._take_up(held, begin, part.known, part.set_aside, part.waiting)
        tables.joined(standing.behind)

    def is_overtaken(self) -> bool:
        """Whether another driver, which does not know yet that it has lost its lock, has brought on
        a destination that does not remember where it stands: what that one delivered may be gone
        from the log.
        """
        remembers = self._destination.capabilities.remembers
        return not remembers and self.record.is_overtaken(self._said)

    def is_set_back(self) -> bool:
        """Whether the destination holds less than it has said before, or does not answer: then what
        went wrong there means nothing until ``resume`` has asked it.
        """
        try:
            return self._lacks(self.held())
        except DestinationUnavailable:
            return True

    def _lacks(self, held: Watermarks | None) -> bool:
        at = held.frontier if held else self._begin
        remembers = self._destination.capabilities.remembers
        return remembers and at.end_lsn < self._said.end_lsn

    def heed_source(self) -> bool:
        """Called by the main thread before the source is asked for anything that matters: whenever
        it was connected anew, it must still be the one that positions are of. False where that
        cannot be said now. Raises IdentityChanged where it is another one.
        """
        return self._meet(self.standing)

    def behind(self, error: PenstockError) -> PenstockError:
        """What is behind an error that ends the run. A source that was exchanged shows in many
        ways, such as a store that is gone with it, and not first in what it says of itself.
        """
        until = time.monotonic() + _EXCHANGED_SECONDS
        while isinstance(error, SourceError | StoreError) and time.monotonic() < until:
            try:
                self._session.keep()
                self._meet(self.standing)
            except PenstockError as found:
                return found if isinstance(found, IdentityChanged) else error
            time.sleep(_LOOK_SECONDS)
        return error

    def _meet(self, held: Watermarks) -> bool:
        try:
            seen = self._session.seen()
        except SourceUnavailable:
            return False
        if seen is not self._seen:
            expect_source(seen, held, self._log)
            with self.lock:
                self._seen = seen
                self.standing = replace(self.standing, source=self._as_captured(seen.identity))
        return True

    def heed_writer(self, listing: Listing) -> None:
        """Called with what the log lists, before anything of it is committed. A source may have
        been promoted, and capture may know of it before us: positions in what it has written since
        are of the later timeline.
        """
        if listing.writer == self._writer:
            return
        timeline = self._log.timeline()
        with self.lock:
            self._writer, self._timeline = listing.writer, max(self._timeline, timeline)
            self.standing = replace(self.standing, source=self._as_captured(self.standing.source))

    def _as_captured(self, source: SourceIdentity | None) -> SourceIdentity | None:
        return source and source.since(self._timeline)

    def held(self) -> Watermarks | None:
        """Where the destination stands or, if it does not know, where it was last seen; once what
        is being committed is.
        """
        with self.lock, self._metrics.health.asking("the destination"):
            return held_by(self._destination, self._log)

    @property
    def read_up_to(self) -> Frontier:
        """Where the reading goes on: all that comes before was committed."""
        return self._read_up_to

    def __call__(self, job: JobResult, frontier: Frontier) -> None:
        self._go_on(frontier, job, partial(self._destination.commit, job.receipts))

    def commit_sections(
        self, sections: Sequence[SchemaChange | Rows], frontier: Frontier, job: JobResult
    ) -> None:
        """Commit a transaction with schema changes, between which its rows stand; ``job`` are all
        that wrote them.
        """
        destination = self._destination
        if isinstance(destination, FollowsSchema):
            self._go_on(frontier, job, partial(destination.commit_sections, sections))
        else:
            # Changes of tables that it brings were refused before: these are of no interest to it.
            self(job, frontier)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock, for the thread that commits the stream's batches: after a while without
        what the destination has taken of the next one, since who holds it may wait there for that.
        """
        while not self.lock.acquire(timeout=_LOCKED_SECONDS):
            if isinstance(self._destination, TakesPieces):
                self._destination.undo_pieces()
        try:
            yield
        finally:
            self.lock.release()

    def _go_on(self, frontier: Frontier, job: JobResult, commit: Commit) -> None:
        with self.locked():
            if frontier < self._read_up_to:
                raise LogError(
                    f"a batch would take the destination back from {self._read_up_to} to "
                    f"{frontier}; nothing of it was committed",
                    remedy="this is a bug in Penstock: please report it, with the change log's "
                    "listing (`penstock log inspect`)",
                )
            standing = self.standing.after(frontier, self._set_aside)
            failpoint("driver.before_commit")
            began, moves = time.monotonic(), standing.frontier > self.standing.frontier
            self._in_doubt = (job, standing.frontier) if moves else None
            self._commit(commit, standing)
            self._in_doubt = None
            self._note_truncates(job)
            failpoint("driver.committed")
            self._read_up_to = frontier
            self._record()
        self._metrics.committed(job, standing.frontier, began)
        now = time.monotonic()
        self._observe(
            Delivered(
                standing.frontier, len(job.receipts), time.time(), now - job.began, now - job.ended
            )
        )

    def _settle_doubt(self, held: Watermarks | None) -> None:
        if self._in_doubt is not None and held is not None and held.frontier >= self._in_doubt[1]:
            self._metrics.committed(*self._in_doubt, time.monotonic())
            self._note_truncates(self._in_doubt[0])
        self._in_doubt = None

    def was_truncated(self, table: int, xid: int) -> bool:
        """Whether the destination holds a TRUNCATE of the table by that transaction, as far as this
        run has brought it.
        """
        return (table, xid) in self._truncates

    def _note_truncates(self, job: JobResult) -> None:
        self._truncates.update(dict.fromkeys(job.written.truncates))
        for old in [*self._truncates][:-_MOST_TRUNCATES]:
            del self._truncates[old]

    def commit_aside(self, job: JobResult, tables: Mapping[int, Frontier]) -> None:
        """Commit a batch that brings only ``tables`` on, each to where it stands then."""
        with self.lock:
            commit = partial(self._destination.commit, job.receipts)
            try:
                self._commit(commit, self.standing.placed(tables))
            except PenstockError:
                self.failed_aside = True
                raise
            self._note_truncates(job)
            self._record()
        self._metrics.replayed(job.written)

    def place(self, tables: Mapping[int, Frontier]) -> None:
        """Set tables aside, and say where they stand; the next commit tells the destination."""
        with self.lock:
            # Also those that came after the query had begun: batches do not bring them on.
            self._set_aside = frozenset((*self._set_aside, *tables))
            self._placed.update(tables)
            self._kept |= tables.keys()
            self.standing = self.standing.placed(tables)
            self.want(max((at.end_lsn for at in tables.values()), default=0))

    def want(self, lsn: int) -> None:
        """Capture is to say when it has got there, also if nothing happens in the source."""
        with self.lock:
            self._wanted_lsn = max(self._wanted_lsn, lsn)
            self._record()

    def release(self, tables: Collection[int]) -> None:
        """Batches bring these tables on from now on; they stand where the next one begins."""
        with self.lock:
            self._set_aside = frozenset(self._set_aside) - frozenset(tables)

    def free(self, tables: Collection[int]) -> None:
        """Keep nothing for these tables any more."""
        with self.lock:
            self._placed = {oid: at for oid, at in self._placed.items() if oid not in tables}
            self._kept -= frozenset(tables)
            self.standing = self.standing.freed(tables)
            self._record()

    def _commit(self, commit: Commit, standing: Watermarks) -> None:
        if self.is_unsure:
            raise BatchAgain("the last commit failed, and the destination was not asked since")
        try:
            commit(standing)
        except PenstockError:
            # It may have been committed nevertheless.
            self.is_unsure = True
            raise
        self.standing = standing
        self._said = standing.frontier
        self._placed = {}

    def _record(self) -> None:
        """Tell capture what the destination holds and no query reads any more: one may have begun
        further back, for a table that was given up since.
        """
        held = min(self.standing.low, self._read_up_to)
        # What the destination does not remember, this alone knows.
        durable = not self._destination.capabilities.remembers
        stream = self.standing.frontier if self.standing.frontier > held else None
        self.record.say(held, self._wanted_lsn, self.standing.source, stream, durable=durable)
