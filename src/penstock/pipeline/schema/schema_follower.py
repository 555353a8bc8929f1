"""Schema changes, as they come in the stream.

Ordinary batches end before a transaction that changes tables. The driver brings that one itself:
the rows between two changes are written by tasks as always, and the destination commits rows and
changes together, in their order. Then the query goes on behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from penstock.changelog import chain
from penstock.changelog.changelog import Listing
from penstock.changelog.schema_points import SchemaPoint, SchemaPoints
from penstock.changelog.view import LogView
from penstock.destination.contract import Rows, SchemaChange, TaskWriter
from penstock.destination.protocols import FollowsSchema, HoldsTables
from penstock.metrics.written import JobResult, in_turn
from penstock.model.errors import TableChanged, TableRefused
from penstock.model.lsn import Frontier, Position
from penstock.model.schema_change import Difference, TableChange
from penstock.model.schema_policy import FOLLOWED, setting
from penstock.model.table_definition import TableDefinition
from penstock.model.table_state import Catchup, DataSync, FinishedCopy, SyncWait
from penstock.pipeline.run.batch_committer import BatchCommitter
from penstock.pipeline.run.context import RunContext
from penstock.pipeline.tables.registry import TableRegistry
from penstock.pipeline.tables.subscribed_tables import SubscribedTables
from penstock.store import Store
from penstock.transform.filter import Filter
from penstock.transform.floors import Floors
from penstock.transform.section import END, Section
from penstock.transform.transform_check import refused_later

_log = logging.getLogger(__name__)

Held = dict[int, TableDefinition | None]


class SchemaFollower:
    """Brings the transactions that ordinary batches leave out."""

    def __init__(
        self,
        context: RunContext,
        tables: TableRegistry,
        committer: BatchCommitter,
        subscribed: SubscribedTables,
    ) -> None:
        self._session = context.session
        self._destination = context.destination
        self._store = context.store
        self._view = LogView(context.log, context.told())
        self._engine = context.engine
        self._metrics = context.metrics
        self._filter = context.filter
        self._transform = context.transform
        self._policy = context.config.schema_changes.policy
        self._max_bytes = context.config.batch.max_bytes
        self._tables = tables
        self._committer = committer
        self._subscribed = subscribed
        self._points = SchemaPoints(context.log)
        self._enrolled = 0

    def is_due(self) -> bool:
        """Whether nothing is left to do before the next transaction that changes tables."""
        point = self._next(self._view.listing())
        return point is not None and self._committer.read_up_to.end_lsn >= point

    def _next(self, listing: Listing) -> int | None:
        """The commit LSN of the next such transaction, once the log has all of it."""
        point = self._points.next_after(listing, self._committer.read_up_to.commit_lsn)
        if point is None or listing.frontier is None or listing.frontier.commit_lsn < point:
            return None
        return point

    def follow(self, may_go_on: Callable[[], bool]) -> bool:
        """Bring all such transactions that the log has, and what lies between them: a query that is
        started only to end again soon takes longer. No query may be under way.

        False where it may not go on: ``may_go_on`` is asked before each of them.
        """
        self._prepare_left()
        while (point := self._next(listing := self._view.listing())) is not None:
            if not may_go_on():
                return False
            if self._committer.read_up_to.end_lsn < point:
                self._reach(listing, point)
            elif self._enrols(listing, point):
                return False
            else:
                self._bring(listing, point)
        return True

    def _enrols(self, listing: Listing, point: int) -> bool:
        """Whether tables have to take part in the stream first: those that it brings itself, of
        which rows come right behind the change that tells of them.
        """
        if point == self._enrolled or not self._session.tables_come_in_stream():
            return False
        known = self._store.get_table_states()
        told = {oid for p in self._points.of(listing, point) for oid, _ in p.message.tables}
        if told <= known.keys():
            return False
        if self._subscribed.look_now():
            # What is not among them now is left out by a filter, or by a person.
            self._enrolled = point
        return True

    def _prepare_left(self) -> None:
        """The answer to a commit may have been lost: the tables that it changed are as they should
        be where the destination stands, but are not prepared as such.
        """
        left = self._tables.unprepared & self._tables.part.delivered
        if not left:
            return
        standing = self._committer.standing
        tables = [self._store.get_table_schema(o, standing.at(o).end_lsn - 1) for o in left]
        with self._committer.lock:
            self._destination.prepare([table for table in tables if table is not None])
        self._tables.prepared(left)

    def notice(self, seen: TableChanged) -> None:
        """Follow a change of which nothing told but the rows behind it: without event triggers, and
        in sessions that opted out. What the catalogue says now stands in for what it said then.

        Where that does not explain the rows, the table is copied anew, or if tables are not copied,
        what was given is raised. No query may be under way.
        """
        while self._committer.read_up_to.end_lsn < seen.commit_lsn:
            listing = self._view.listing(at_least=Frontier(seen.commit_lsn, 0))
            self._reach(listing, seen.commit_lsn)
        before = self._store.get_table_schema(seen.table, seen.commit_lsn - 1)
        now = _since(before, self._session.definitions_of([seen.table]).get(seen.table))
        change = TableChange(before, now)
        # Whether rows were rewritten with it only triggers tell.
        change = replace(change, is_rewrite=change.may_rewrite())
        position = Position(seen.commit_lsn - 1, 0)
        change = self._judged(change, position, "seen in its rows", {})
        if change.after is None or not change.differences():
            if not self._tables.copy_anew(seen.table):
                raise seen
            _log.warning("%s, and the catalogue does not say how; it is copied anew", seen.message)
            return
        if change.is_rewrite:
            self._tables.copy_soon(seen.table, f"{seen.message}, and its rows may be others")
        self._store.store_table_schemas([change.after], position.commit_lsn)
        told = SchemaChange(
            position, 0, "seen in its rows", (change,), _silent(self._filter, [change])
        )
        self._committer.commit_sections([told], Frontier.before(seen.commit_lsn), JobResult())
        with self._committer.lock:
            self._destination.prepare([change.after])
        self._tell([told])

    def _judged(self, change: TableChange, position: Position, tag: str, held: Held) -> TableChange:
        """What of a change the destination is to follow. ``held`` are tables as the same
        transaction has left them.

        Raises TableRefused where the policy says to stop, or the destination cannot follow.
        """
        if stop := self._policy.stops_at(change):
            raise _stopped(change, stop, position, tag)
        if self._transform is not None and change.before is not None and change.after is not None:
            known = {**self._store.get_table_schemas(), **held}.values()
            refused = refused_later(
                self._transform,
                change.before,
                change.after,
                [table for table in known if table is not None],
                merges=self._destination.capabilities.merges,
                had=change.before.constraints,
            )
            refused = refused or self._refused_parts(change.before, change.after, position)
            if refused is not None:
                raise refused
        change = self._policy.resolved(change)
        follows = isinstance(self._destination, FollowsSchema) or change.before is None
        if not follows and (step := self._policy.shapes_rows(change)):
            raise _not_followed(change, step, position, self._destination.name)
        if self._transform is not None and change.before is not None and change.after is not None:
            again = self._transform.asks_for_copy(change.before, change.after)
            change = replace(change, is_rewrite=change.is_rewrite or again)
        return change

    def _refused_parts(
        self, before: TableDefinition, after: TableDefinition, position: Position
    ) -> TableRefused | None:
        """Why tables that became partitions of another one cannot come with it under the rules."""
        for oid in sorted(set(after.partitions) - set(before.partitions)):
            part = self._store.get_table_schema(oid, position.commit_lsn - 1)
            if part is not None and self._transform is not None:
                refused = self._transform.refused_partition(part, after)
                if refused is not None:
                    return refused
        return None

    def _reach(self, listing: Listing, point: int) -> None:
        """Bring a batch of what comes before ``point``."""
        batch = chain.next_batch(
            listing.segments,
            listing.sizes,
            self._committer.read_up_to,
            self._max_bytes,
            point,
        )
        assert batch is not None  # noqa: S101 (the log is further on than that)
        self._committer.heed_writer(listing)
        writer = self._writer([])
        job = self._engine.write_batch(batch, self._floors(), writer)
        self._committer.commit_sections([Rows(tuple(job.receipts))], batch.frontier, job)

    def _floors(self) -> Floors:
        part = self._tables.part
        return Floors.of_stream(self._committer.standing, part.set_aside, part.known)

    def _writer(self, changes: Sequence[SchemaChange]) -> TaskWriter:
        """For rows behind these changes."""
        if isinstance(self._destination, FollowsSchema):
            return self._destination.section_writer(changes)
        return self._destination.writer()

    def _bring(self, listing: Listing, commit_lsn: int) -> None:
        floors = self._floors()
        describe = self._session.describer()
        points = self._points.of(listing, commit_lsn)
        ask = _Ask(describe, self._session.definitions_of)
        changes = _Changes(self._store, self._judged, floors, ask, self._filter).of(points)
        batch = chain.Batch(
            # The commit record ends further on; how far is of no interest.
            Frontier(commit_lsn, commit_lsn + 1),
            chain.between(listing.segments, listing.sizes, commit_lsn - 1, commit_lsn),
        )
        after = _newest(changes)
        # First, and for this position alone: whoever starts anew finds what holds where it stands.
        self._store.store_table_schemas(after, commit_lsn)
        # Should one be copied before this has come to its end.
        oids = {table.oid for table in after}
        self._tables.to_prepare(oids)
        # Rows that came, went or got new values without changes of rows. Wished for before the
        # commit: whoever starts after it does not see the change again. A copy that begins before
        # it reads what the source holds after it.
        again = {t.oid for change in changes for t in change.tables if t.is_rewrite and t.after}
        again |= self._copied_before(points)
        if again:
            self._store.set_wishes(dict.fromkeys(again, "resync"))
        self._committer.heed_writer(listing)
        sections, jobs = self._sections(batch, floors, points, changes)
        self._committer.commit_sections(sections, batch.frontier, in_turn(jobs))
        with self._committer.lock:
            self._destination.prepare(after)
        self._tables.prepared(oids)
        if isinstance(self._destination, HoldsTables):
            for oid in oids:
                # The destination knows those of this run; earlier ones stay until a copy.
                kept = self._store.get_notes(oid)
                new = [note for note in self._destination.notes(oid) if note not in kept]
                self._tables.note(oid, [*kept, *new])
        self._tell(changes)
        known = self._store.get_table_states()
        touched = [each for point in points for each in point.message.tables]
        # A generated column may keep a table from being published.
        generated = any(c.generated is not None for table in after for c in table.columns)
        if generated or any(oid not in known or document is None for oid, document in touched):
            self._subscribed.look_soon()
        self._session.acknowledge([point.message.version for point in points])

    def _copied_before(self, points: Sequence[SchemaPoint]) -> set[int]:
        """Tables that were changed after the snapshot that they are being copied under."""
        copies, states = self._store.get_copies(), self._store.get_table_states()
        return {
            oid
            for point in points
            for oid, _ in point.message.tables
            if isinstance(states.get(oid), DataSync | FinishedCopy | SyncWait | Catchup)
            and oid in copies
            and copies[oid].first_lsn <= point.position.commit_lsn
        }

    def _sections(
        self,
        batch: chain.Batch,
        floors: Floors,
        points: Sequence[SchemaPoint],
        changes: Sequence[SchemaChange],
    ) -> tuple[list[SchemaChange | Rows], list[JobResult]]:
        bounds = [-1, *(point.position.ordinal for point in points), END]
        sections: list[SchemaChange | Rows] = []
        jobs: list[JobResult] = []
        for number, (before, next_one) in enumerate(pairwise(bounds)):
            if number:
                sections.append(changes[number - 1])
            first = before + 1
            if first < next_one and self._points.has_rows(
                [pointer.segment for pointer in batch.pointers],
                batch.frontier.commit_lsn,
                first,
                next_one,
            ):
                writer = self._writer(changes[:number])
                section = Section(first, next_one)
                jobs.append(self._engine.write_batch(batch, floors, writer, section))
                sections.append(Rows(tuple(jobs[-1].receipts)))
        return sections, jobs

    def _tell(self, changes: Sequence[SchemaChange]) -> None:
        for change in changes:
            for table in change.tables:
                known = table.before or table.after
                assert known is not None  # noqa: S101 (one of both is there)
                self._metrics.schema_changed()
                for difference in table.differences():
                    _log.info(
                        "table %s: %s",
                        known.qualified_name,
                        difference.text,
                        extra={"event": "schema_change", "table": known.qualified_name},
                    )


@dataclass(frozen=True)
class _Ask:
    """What tables were and are: by a document of the source's triggers, or by its catalogue."""

    describe: Callable[[str], Mapping[int, TableDefinition]]
    definitions: Callable[[Sequence[int]], Mapping[int, TableDefinition]]


class _Changes:
    """What the messages of one transaction mean for the tables that are followed."""

    def __init__(
        self,
        store: Store,
        judged: Callable[[TableChange, Position, str, Held], TableChange],
        floors: Floors,
        ask: _Ask,
        wanted: Filter | None,
    ) -> None:
        self._store = store
        self._filter = wanted
        self._judged = judged
        self._floors = floors
        self._ask = ask
        self._held: Held = {}
        self._overtaken: set[int] = set()
        self._rewritten: set[int] = set()

    def of(self, points: Sequence[SchemaPoint]) -> list[SchemaChange]:
        self._rewritten = {
            oid for p in points if p.message.is_rewrite for oid, _ in p.message.tables
        }
        return [self._of(point) for point in points]

    def _of(self, point: SchemaPoint) -> SchemaChange:
        if point.message.failure is None:
            tables = tuple(
                self._change(point, oid, document)
                for oid, document in point.message.tables
                if self._floors.wants(oid, point.position.commit_lsn)
            )
            tables += tuple(self._with_rewritten_partitions(point, {t.oid for t in tables}))
        else:
            tables = tuple(self._untold(point, point.message.failure))
        return SchemaChange(
            point.position,
            point.commit_micros,
            point.message.tag,
            tables,
            _silent(self._filter, tables),
        )

    def _change(self, point: SchemaPoint, oid: int, document: str | None) -> TableChange:
        before = self._held.get(oid) or self._store.get_table_schema(
            oid, point.position.commit_lsn - 1
        )
        after = None if document is None else self._ask.describe(document).get(oid)
        is_rewrite = point.message.is_rewrite or self._has_rewritten_partitions(after)
        if before is not None and after is not None:
            if self._is_overtaken(point, before):
                # Nobody knows how many steps lie between. What is gone by now is told as such.
                now = self._ask.definitions([oid]).get(oid)
                after, is_rewrite = now or before, True
            after = replace(after, version=point.message.version)
        change = TableChange(before, after, is_rewrite)
        change = self._judged(change, point.position, point.message.tag, self._held)
        if change.moves_partitions(are_new=point.message.tag == "CREATE TABLE"):
            change = replace(change, is_rewrite=True)
        self._held[oid] = change.after
        return change

    def _has_rewritten_partitions(self, table: TableDefinition | None) -> bool:
        return table is not None and not self._rewritten.isdisjoint(table.partitions)

    def _with_rewritten_partitions(
        self, point: SchemaPoint, told: Collection[int]
    ) -> Iterator[TableChange]:
        """Roots of partitions that were rewritten, and of which nothing else may be told."""
        if not point.message.is_rewrite:
            return
        lsn = point.position.commit_lsn
        for oid in self._store.get_table_schemas().keys() - self._held.keys() - set(told):
            before = self._store.get_table_schema(oid, lsn - 1)
            if self._has_rewritten_partitions(before) and self._floors.wants(oid, lsn):
                change = TableChange(before, before, is_rewrite=True)
                change = self._judged(change, point.position, point.message.tag, self._held)
                self._held[oid] = change.after
                yield change

    def _is_overtaken(self, point: SchemaPoint, before: TableDefinition) -> bool:
        """Whether who told of the table did not see the change that made it what it was before:
        both were under way at once.
        """
        oid = before.oid
        if oid not in self._overtaken:
            seen = point.message.seen.get(oid)
            # What is older than all that it tells of may be another log's, and is no news to it.
            if not seen or before.version <= min(seen) or before.version in seen:
                return False
            # What else its transaction tells may lack the same.
            self._overtaken.add(oid)
            _log.warning(
                "table %s was changed by two transactions at once, of which %s did not see the "
                "other; what it is now is asked for, and its rows are copied anew",
                before.qualified_name,
                point.message.tag,
                extra={"event": "schema_change_overtaken", "table": before.qualified_name},
            )
        return True

    def _untold(self, point: SchemaPoint, failure: str) -> Iterator[TableChange]:
        """What may have changed where the source's triggers could not tell: every table that looks
        different now, and those that they know were rewritten. Nobody knows how many steps lie
        between, so their rows are copied anew.
        """
        lsn = point.position.commit_lsn
        rewritten = {oid for oid, _ in point.message.tables}
        known = [oid for oid in self._store.get_table_states() if self._floors.wants(oid, lsn)]
        now = self._ask.definitions(known)
        _log.warning(
            "the source's triggers could not tell what %s changed (%s); all tables are looked at",
            point.message.tag,
            failure,
            extra={"event": "schema_change_untold"},
        )
        for oid, table in now.items():
            before = self._held.get(oid) or self._store.get_table_schema(oid, lsn - 1)
            is_rewritten = oid in rewritten or not rewritten.isdisjoint(table.partitions)
            if is_rewritten or before != table:
                change = TableChange(before, _since(before, table), is_rewrite=True)
                change = self._judged(change, point.position, point.message.tag, self._held)
                self._held[oid] = change.after
                yield change


def _since(before: TableDefinition | None, now: TableDefinition | None) -> TableDefinition | None:
    """What the catalogue says now: who tells of the next change has to have seen the last one."""
    return now if before is None or now is None else replace(now, version=before.version)


def _stopped(change: TableChange, stop: Difference, position: Position, tag: str) -> TableRefused:
    known = change.before or change.after
    assert known is not None  # noqa: S101 (one of both is there)
    name, key = known.qualified_name, setting(stop.kind)
    choice = "apply" if stop.kind in FOLLOWED else "apply or ignore"
    return TableRefused(
        f"table {name} was changed at {position} ({tag}): {stop.text}; "
        f"schema_changes says to stop at {key}",
        remedy=f"set schema_changes.{key} to {choice} in the pipeline file, start "
        f"`penstock run` again, and run `penstock tables retry` for {name}",
        table=change.oid,
    )


def _not_followed(
    change: TableChange, step: Difference, position: Position, destination: str
) -> TableRefused:
    known = change.before or change.after
    assert known is not None  # noqa: S101 (one of both is there)
    key = setting(step.kind)
    remedy = f"remove table {known.qualified_name} from source.tables, or copy it to another place"
    if step.kind not in FOLLOWED:
        remedy = f"set schema_changes.{key} to ignore in the pipeline file, and start again"
    return TableRefused(
        f"table {known.qualified_name} was changed at {position}: {step.text}; destination "
        f"{destination} does not follow schema changes",
        remedy=remedy,
        table=change.oid,
    )


def _silent(wanted: Filter | None, tables: Sequence[TableChange]) -> frozenset[int]:
    """Tables of whose changes no event is to tell."""
    if wanted is None:
        return frozenset()
    known = [(table.oid, table.after or table.before) for table in tables]
    return frozenset(
        oid for oid, t in known if t is None or not wanted.passes_schema_event(t.schema, t.name)
    )


def _newest(changes: Sequence[SchemaChange]) -> list[TableDefinition]:
    """The tables as they are after all of them."""
    found = {table.oid: table.after for change in changes for table in change.tables}
    return [table for table in found.values() if table is not None]
