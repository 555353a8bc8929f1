"""The subscription manager: which tables are followed, compared again and again with what the
pipeline file and `penstock tables add | remove` ask for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any

import psycopg

from penstock.config.models import PipelineConfig
from penstock.destination.contract import Destination
from penstock.errors import DestinationError, SourceUnavailable, StoreUnavailable
from penstock.lsn import Frontier
from penstock.pipeline.apply_batch import BatchCommitter
from penstock.pipeline.followed_tables import FollowedTables
from penstock.pipeline.table_state import Errored, Init, Ready, SyncDone
from penstock.postgres.catalogue import TableName
from penstock.postgres.definitions import read_definitions
from penstock.postgres.publications import read_membership
from penstock.postgres.reconcile import Reconciled, reconcile_publication
from penstock.postgres.slot import current_wal_lsn
from penstock.postgres.subscription import Subscription
from penstock.store import Store
from penstock.table_definition import TableDefinition

_LOOK_SECONDS = 2.0


class SubscribedTables:
    """Enrols new tables and lets others go."""

    def __init__(
        self,
        config: PipelineConfig,
        destination: Destination,
        store: Store,
        tables: FollowedTables,
        committer: BatchCommitter,
        say: Callable[[str], None],
    ) -> None:
        self._config = config
        self._destination = destination
        self._store = store
        self._tables = tables
        self._committer = committer
        self._say = say
        self._copies = config.source.copy_rows is not None
        self._publications: tuple[str, ...] = ()
        self._rules: dict[tuple[str, str], Any] | None = None
        self._skipped: dict[TableName, str] = {}
        self._leaving: set[int] = set()
        self._next_look = self._next_time = 0.0

    def enrol(self, conn: psycopg.Connection[Any], subscription: Subscription) -> None:
        """At the start: all tables that are published."""
        self._publications = subscription.publications
        self._take_in(conn, subscription.tables, subscription.start_lsn)
        published = read_membership(conn, self._config.name).homes
        self._let_go(self._store.get_table_states().keys() - published.keys())

    def reconcile(self, conn: psycopg.Connection[Any]) -> None:
        """Called often; looks now and then. What cannot be asked now is asked the next time."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        try:
            rules = self._store.load_rules()
            if rules == self._rules and now < self._next_time:
                return
            self._next_time = now + self._config.source.tables.reconcile
            before = self._committer.standing.frontier
            found = reconcile_publication(conn, self._config, rules)
            self._rules = rules
            self._heed(conn, found, before)
        except (SourceUnavailable, StoreUnavailable, psycopg.OperationalError):
            return

    def _heed(self, conn: psycopg.Connection[Any], found: Reconciled, before: Frontier) -> None:
        for name, why in found.skipped.items():
            if self._skipped.get(name) != why:
                self._say(f"table {name} matches and is not followed: {why}")
        self._skipped = dict(found.skipped)
        known = set(self._store.get_table_states())
        new = {oid: name for oid, name in found.published.items() if oid not in known}
        if new:
            if not self._copies:
                # Its changes begin where the stream stood before it was published.
                self._committer.place(dict.fromkeys(new, before))
            self._take_in(conn, list(new.values()), current_wal_lsn(conn))
            self._say(f"following {_listed(new.values())} from now on")
        if back := self._leaving & found.published.keys():
            # What changed meanwhile did not come.
            self._store.set_wishes(dict.fromkeys(back, "resync" if self._copies else None))
            self._leaving -= back
        if found.moved and self._copies:
            # Updates and deletes were not followed before, or will not be: begin with what is.
            self._store.set_wishes(dict.fromkeys(found.moved, "resync"))
        self._let_go(known - found.published.keys())

    def _take_in(
        self, conn: psycopg.Connection[Any], names: Collection[TableName], lsn: int
    ) -> None:
        found = read_definitions(conn, list(names), self._publications)
        states, known = self._store.get_table_states(), self._known([t.oid for t in found])
        # Those that a copy begins for are made what they are then (copy_admission.py).
        waiting = {oid for oid in known if isinstance(states[oid], Init)}
        self._tables.unprepared |= waiting
        with self._committer.lock:
            self._destination.prepare(
                [known.get(table.oid, table) for table in found if table.oid not in waiting]
            )
        # No commit begins at the byte before: whoever stands at the LSN itself is past that.
        self._tables.enrol([table for table in found if table.oid not in known], lsn - 1)

    def _known(self, oids: Collection[int]) -> dict[int, TableDefinition]:
        """Tables that were followed before, as the destination has them: the source may have gone
        further since, of which the stream tells.
        """
        behind, frontier = self._destination.behind(), self._destination.committed()
        states = self._store.get_table_states()
        found = {}
        for oid in oids:
            if (state := states.get(oid)) is None:
                continue
            at = None
            if isinstance(state, Ready | SyncDone | Errored):
                at = behind.get(oid, frontier)
            schema = self._store.get_table_schema(oid, at and at.end_lsn - 1)
            if schema is not None:
                found[oid] = schema
        return found

    def _let_go(self, oids: Collection[int]) -> None:
        """What is followed no longer leaves the state and, as configured, the destination.

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
        action = self._config.source.tables.on_remove
        gone = [schemas[oid] for oid in oids if oid in schemas]
        for table in gone:
            try:
                if action == "truncate":
                    self._destination.truncate_table(table)
                elif action == "drop":
                    self._destination.drop_table(table)
            except DestinationError as error:
                self._say(f"{error.message}; the destination keeps {table.qualified_name}")
        self._store.forget_tables(oids)
        self._committer.free(oids)
        names = [TableName(table.schema, table.name) for table in gone]
        self._say(f"following {_listed(names)} no longer")

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
