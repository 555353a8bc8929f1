"""The subscription manager: which tables are followed, compared again and again with what the
pipeline file and `penstock tables add | remove` ask for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from penstock.cadence import paced
from penstock.destination.protocols import HoldsTables, TablesFailAlone, TakesCopies
from penstock.model.errors import (
    BatchAgain,
    DestinationError,
    DestinationUnavailable,
    SourceUnavailable,
    StoreUnavailable,
    TableRefused,
    refused_alone,
)
from penstock.model.lsn import Frontier
from penstock.model.table_definition import TableDefinition
from penstock.model.table_name import TableName
from penstock.model.table_state import Errored, Init, Ready, SyncDone, TableState
from penstock.pipeline.copy.schema_copy import awaits_schema
from penstock.pipeline.run.batch_committer import BatchCommitter
from penstock.pipeline.run.context import RunContext
from penstock.pipeline.tables.lost_changes import LostChanges
from penstock.pipeline.tables.partition_files import PartitionFiles
from penstock.pipeline.tables.registry import TableRegistry
from penstock.pipeline.tables.sibling_schemas import SiblingSchemas
from penstock.source.contract import Reconciled, Subscription
from penstock.transform.transform_check import refused_later

_LOOK_SECONDS = paced(2.0)

_log = logging.getLogger(__name__)


class SubscribedTables:
    """Enrols new tables and lets others go."""

    def __init__(
        self, context: RunContext, tables: TableRegistry, committer: BatchCommitter
    ) -> None:
        self._config = context.config
        self._session = context.session
        self._destination = context.destination
        self._store = context.store
        self._tables = tables
        self._committer = committer
        self._transform = context.transform
        self._copies = context.config.source.copy_rows is not None
        self._rules: dict[tuple[str, str], Any] | None = None
        self._skipped: dict[TableName, str] = {}
        self._lost = LostChanges(context, tables, committer)
        self._leaving: set[int] = set()
        self._gone: dict[int, int] = {}
        self._held_back: frozenset[int] = frozenset()
        self._next_look = self._next_time = 0.0
        self._has_looked = False
        self._partitions = PartitionFiles(context, tables, committer)
        self._schemas = SiblingSchemas(context)

    def enrol(self, subscription: Subscription, begin: Frontier) -> None:
        """At the start: all tables that are published. Those that are so no longer are let go by
        and by: what was written to them before comes first. ``begin`` is where the destination
        began.
        """
        held = self._committer.held() if self._config.is_one_of_many else None
        self._take_in(subscription.tables, begin.end_lsn, held.frontier if held else begin)
        published = self._session.published()
        states = self._store.get_table_states()
        gone = self._known(
            oid
            for oid, state in states.items()
            if oid not in published and not isinstance(state, Init | Errored)
        )
        self._prepare(gone, gone.values())

    @property
    def is_settled(self) -> bool:
        """Whether no table waits to come or to go, or to be looked at."""
        return not self._gone and not self._held_back and self._partitions.is_settled

    def look_soon(self) -> None:
        """Something in the source tells that there may be other tables."""
        self._next_look = self._next_time = 0.0

    def look_now(self) -> bool:
        """Look at once; False where somebody cannot be asked now."""
        self.look_soon()
        self._has_looked = False
        self.reconcile()
        return self._has_looked

    def reconcile(self) -> None:
        """Called often; looks now and then. What cannot be asked now is asked the next time.

        Raises IdentityChanged where a session that was lost has found another source.
        """
        if not self._committer.heed_source():
            return
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        try:
            self._partitions.look()
            rules = self._store.load_rules()
            if rules == self._rules and now < self._next_time:
                return
            self._next_time = now + self._config.source.tables.reconcile
            before = self._committer.standing.frontier
            found = self._session.reconcile(rules)
            self._rules = rules
            self._heed(found, before)
            self._has_looked = True
        except (SourceUnavailable, StoreUnavailable):
            return

    def _heed(self, found: Reconciled, before: Frontier) -> None:
        for name, why in found.skipped.items():
            if self._skipped.get(name) != why:
                _log.warning(
                    "table %s matches and is not followed: %s",
                    name,
                    why,
                    extra={"event": "table_skipped", "table": str(name)},
                )
        self._skipped = dict(found.skipped)
        known = set(self._store.get_table_states())
        new = {oid: name for oid, name in found.published.items() if oid not in known}
        # A name that another table has at the destination is free once that one was renamed there
        # or let go.
        taken = self._names()
        self._held_back = frozenset(oid for oid, name in new.items() if name in taken)
        new = {oid: name for oid, name in new.items() if oid not in self._held_back}
        if self._held_back:
            self._next_time = 0.0
        if new:
            if not self._copies:
                # Its changes begin where the stream stood before it was published.
                self._committer.place(dict.fromkeys(new, before))
            self._take_in(list(new.values()), self._session.position(), before)
            _log.info("following %s from now on", _listed(new.values()))
        if back := (self._leaving & found.published.keys()) | (found.added.keys() & known):
            # What changed meanwhile did not come.
            self._store.set_wishes(dict.fromkeys(back, "resync" if self._copies else None))
            self._leaving -= back
        self._lost.heed_publication(found, known - found.moved.keys())
        if found.moved and self._copies:
            # Updates and deletes were not followed before, or will not be: begin with what is.
            self._store.set_wishes(dict.fromkeys(found.moved, "resync"))
        self._withdraw({oid: why for oid, why in found.withdrawn.items() if oid in known})
        self._lost.heed_columns(found)
        gone = known - found.published.keys() - found.withdrawn.keys()
        # What takes the name of a table that was dropped takes its place.
        names = {*found.published.values()}
        replaced = {oid for oid in gone if names & self._names([oid])}
        self._let_go(self._passed(gone), replaced)
        # Last: whoever dies before that finds the same losses again.
        self._lost.remember(found)

    def _withdraw(self, tables: Mapping[int, str]) -> None:
        """Tables that had to leave the publication wait until they can be followed again."""
        states = self._store.get_table_states()
        for oid, why in tables.items():
            if isinstance(states[oid], Ready | SyncDone):
                self._tables.refuse(
                    TableRefused(
                        f"{self._tables.name(oid)} is not published any more: {why}, so that "
                        "published its UPDATE and DELETE fail in the application, or come without "
                        "a key",
                        remedy="give it a replica identity without generated columns (ALTER TABLE "
                        "… REPLICA IDENTITY DEFAULT or USING INDEX): then it is published and "
                        "copied anew by itself; or exclude it",
                        table=oid,
                    )
                )
            elif not isinstance(states[oid], Errored) and self._store.get_wish(oid) is None:
                self._store.set_wishes({oid: "cancelled"})

    def _names(self, oids: Collection[int] | None = None) -> set[TableName]:
        """What tables are called where the destination stands."""
        schemas = self._store.get_table_schemas()
        wanted = schemas.keys() if oids is None else oids
        return {TableName(schemas[o].schema, schemas[o].name) for o in wanted if o in schemas}

    def _passed(self, gone: Collection[int]) -> set[int]:
        """Those of which nothing is to come any more."""
        self._gone = {oid: at for oid, at in self._gone.items() if oid in gone}
        if new := [oid for oid in gone if oid not in self._gone]:
            lsn = self._session.position()
            self._committer.want(lsn)
            self._gone.update(dict.fromkeys(new, lsn))
        if self._gone:
            self._next_time = 0.0
        reached = self._committer.read_up_to.end_lsn
        return {
            oid
            for oid, at in self._gone.items()
            if at <= reached or oid in self._leaving or not self._tables.is_delivered(oid)
        }

    def _take_in(self, names: Collection[TableName], lsn: int, since: Frontier) -> None:
        """``since`` is where the stream stands, from which on changes of new tables come."""
        found = self._session.definitions(list(names))
        known = self._known([table.oid for table in found])
        # One whose name another table still has comes later.
        others = self._names() if known else set()
        new = [
            table
            for table in found
            if table.oid not in known and TableName(table.schema, table.name) not in others
        ]
        new = list(self._schemas.as_of(new, since))
        self._prepare(known, [known[t.oid] for t in found if t.oid in known] + new)
        # No commit begins at the byte before: whoever stands at the LSN itself is past that.
        self._tables.enrol(new, lsn - 1)
        self._heed_rules(new)
        if isinstance(self._destination, HoldsTables):
            for table in new:
                self._tables.note(table.oid, self._destination.notes(table.oid))

    def _heed_rules(self, tables: Sequence[TableDefinition]) -> None:
        """Tables that came while the pipeline runs, and that rules do not suit, are set aside."""
        if self._transform is None:
            return
        known = {**self._store.get_table_schemas(), **{table.oid: table for table in tables}}
        merges = self._destination.capabilities.merges
        for table in tables:
            refused = refused_later(self._transform, None, table, known.values(), merges=merges)
            if refused is None:
                continue
            if not isinstance(self._destination, TablesFailAlone):
                raise refused
            self._tables.refuse(refused)

    def _prepare(self, known: Collection[int], tables: Iterable[TableDefinition]) -> None:
        # Those that a copy begins for are made what they are then (copy_admission.py).
        states = self._store.get_table_states()
        waiting = {oid for oid in known if isinstance(states[oid], Init)}
        tables = list(tables)
        if awaits_schema(self._destination):
            waiting |= {table.oid for table in tables if table.oid not in known}
        self._tables.to_prepare(waiting)
        tables = [table for table in tables if table.oid not in waiting]
        with self._committer.lock:
            try:
                self._destination.prepare(tables)
            except DestinationUnavailable:
                raise
            except DestinationError:
                if not states or not isinstance(self._destination, TablesFailAlone):
                    raise
                self._prepare_each(tables, states)

    def _prepare_each(
        self, tables: Sequence[TableDefinition], states: Mapping[int, TableState]
    ) -> None:
        """Those that do not fit are set aside. What is new may need types that others have brought
        at an earlier state: its copy begins with that.
        """
        for table in tables:
            try:
                with refused_alone(table.oid):
                    self._destination.prepare([table])
            except TableRefused as error:
                if table.oid in states:
                    self._tables.refuse(error)
                elif self._copies:
                    self._tables.to_prepare([table.oid])
                else:
                    raise

    def _known(self, oids: Iterable[int]) -> dict[int, TableDefinition]:
        """Tables that were followed before, as the destination has them: the source may have gone
        further since, of which the stream tells.
        """
        held = self._committer.held()
        states = self._store.get_table_states()
        found = {}
        for oid in oids:
            if (state := states.get(oid)) is None:
                continue
            at = None
            if isinstance(state, Ready | SyncDone | Errored):
                at = None if held is None else held.at(oid)
            schema = self._store.get_table_schema(oid, at and at.end_lsn - 1)
            if schema is not None:
                found[oid] = schema
        return found

    def _let_go(self, oids: Collection[int], replaced: Collection[int]) -> None:
        """What is followed no longer leaves the state and, as configured, the destination; those
        that are ``replaced`` make room there.

        A table that is being copied comes to rest first, and one that the stream brings on leaves
        it: what is left of it at the destination must not change any more. Then it is looked at
        again.
        """
        self._tables.leave(oids)
        if not oids:
            return
        oids = {oid for oid in self._at_rest(oids) if not self._tables.is_delivered(oid)}
        self._next_time = 0.0
        if not oids:
            return
        schemas = self._store.get_table_schemas()
        gone = [schemas[oid] for oid in oids if oid in schemas]
        for table in gone:
            try:
                # Alone: a batch's rows may be in the table already, in a transaction that waits.
                with self._committer.lock:
                    self._remove(table, is_replaced=table.oid in replaced)
            except DestinationUnavailable:
                raise  # looked at again
            except BatchAgain:
                oids.discard(table.oid)  # so is this one
            except DestinationError as error:
                _log.warning("%s; the destination keeps %s", error.message, table.qualified_name)
        if not oids:
            return
        self._store.forget_tables(oids)
        self._committer.free(oids)
        self._gone = {oid: at for oid, at in self._gone.items() if oid not in oids}
        names = [TableName(table.schema, table.name) for table in gone if table.oid in oids]
        _log.info("following %s no longer", _listed(names))

    def _remove(self, table: TableDefinition, *, is_replaced: bool) -> None:
        """What the pipeline file wants done with a table that left. One that is replaced goes from
        a destination that holds tables, whatever the file says.
        """
        destination = self._destination
        action = self._config.source.tables.on_remove
        if is_replaced and destination.capabilities.merges:
            action = "drop"
        if action == "drop":
            if not isinstance(destination, HoldsTables):
                raise DestinationError(f"destination {destination.name} cannot drop tables")
            destination.drop_table(table)
        elif action == "truncate":
            if not isinstance(destination, TakesCopies):
                raise DestinationError(f"destination {destination.name} cannot empty tables")
            destination.truncate_table(table)
        if action != "drop" and isinstance(destination, HoldsTables):
            destination.let_go(table)

    def _at_rest(self, oids: Collection[int]) -> set[int]:
        states = self._store.get_table_states()
        moving = {
            oid
            for oid in oids
            if not isinstance(states[oid], Ready | Errored)
            or (self._copies and self._tables.is_delivered(oid))
        }
        if not moving:
            return set(oids)
        claims = self._store.load_claims()
        # Whoever takes a copy looks at the wish first: later than that, nobody does.
        resting = {
            oid for oid in moving if self._store.get_wish(oid) == "cancelled" and oid not in claims
        }
        if moving - resting:
            self._store.set_wishes(dict.fromkeys(moving - resting, "cancelled"))
            self._leaving |= moving - resting
        return set(oids) - (moving - resting)


def _listed(names: Collection[TableName]) -> str:
    shown = sorted(map(str, names))
    if len(shown) > 5:
        return f"{', '.join(shown[:5])} and {len(shown) - 5} more tables"
    return ", ".join(shown)
