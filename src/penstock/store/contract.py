"""What every store promises, and the cache that all of them share.

Tables are known by their oid in the source, and everything belongs to one pipeline, by its name.
Reads come from the cache alone: ``load_*`` fill it at start-up, and again whenever somebody else
(`penstock tables`) may have written. Writes go to the store first and then to the cache, so the
cache never knows of something that a restart would not find.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Self

from penstock.model.errors import StoreError
from penstock.model.publication_state import PublicationState
from penstock.model.table_definition import TableDefinition
from penstock.model.table_state import Errored, TableState, transition
from penstock.store.copies import CopyStore
from penstock.store.copy_jobs import JobStore

# Nobody asks where nothing is told.
_MOST_PASSED = 10_000


@dataclass(frozen=True)
class StateRecord:
    """A table's state, and since when it has it by the store's clock."""

    state: TableState
    since: datetime


@dataclass(frozen=True)
class SchemaVersion:
    """A table's definition as it holds from the transaction with commit LSN ``lsn`` on."""

    lsn: int
    definition: TableDefinition


class Store(CopyStore, JobStore):
    """One pipeline's states, schemas and notes, its copies, and the jobs of workers. May be
    shared by threads.

    Raises StoreUnavailable where another try may succeed, StoreError for everything else.
    """

    def __init__(self, pipeline: str, rules_of: str | None = None) -> None:
        super().__init__(pipeline, rules_of)
        self._states: dict[int, StateRecord] = {}
        self._passed: deque[tuple[int, TableState]] = deque(maxlen=_MOST_PASSED)
        self._schemas: dict[int, list[SchemaVersion]] = {}
        self._notes: dict[int, tuple[str, ...]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def open(self) -> None:
        """Make the store ready for use, and fill the cache."""
        with self._lock:
            self._set_up()
            self.load_table_states()
            self.load_table_schemas()
            self.load_notes()
            self.load_copies()
            self.load_wishes()
            self.load_rules()

    # -- states ----------------------------------------------------------------------------------

    def load_table_states(self) -> int:
        """Read all states anew; how many there are. One small query: cheap enough to poll."""
        with self._lock:
            self._states = self._read_states()
            return len(self._states)

    def get_table_state(self, table: int) -> TableState | None:
        """The table's state; None for a table that has none yet."""
        record = self._states.get(table)
        return None if record is None else record.state

    def get_table_states(self) -> dict[int, TableState]:
        return {table: record.state for table, record in self._states.items()}

    def get_state_since(self, table: int) -> datetime | None:
        """Since when the table has its state."""
        record = self._states.get(table)
        return None if record is None else record.since

    def update_table_state(self, table: int, state: TableState) -> None:
        """Go on to ``state``, if table_state.transition allows it; the one before is kept.

        What counts is the state in the store, also where the cache has another. A new error of an
        errored table takes the place of the old one, so that the state before an error is never
        another error.
        """
        self.update_table_states({table: state})

    def update_table_states(self, states: Mapping[int, TableState]) -> None:
        """The same for many tables, at once: all of them, or where one may not, none."""
        with self._lock:
            self._states = {**self._states, **self._write_states(states)}
            self._passed.extend(states.items())

    def move_on(
        self, tables: Iterable[int], before: type[TableState], state: TableState
    ) -> list[int]:
        """Bring those of the tables that are at ``before`` to ``state``, all at once; which those
        are. Others have gone elsewhere meanwhile, by another thread or before a crash.
        """
        with self._lock:
            here = [oid for oid in tables if isinstance(self.get_table_state(oid), before)]
            if here:
                self.update_table_states(dict.fromkeys(here, state))
            return here

    def take_passed_states(self) -> list[tuple[int, TableState]]:
        """The states that tables were brought to here since this was last asked, in order, and at
        the end those that they have now: others may have brought them there.
        """
        with self._lock:
            passed = [*self._passed, *self.get_table_states().items()]
            self._passed.clear()
            return passed

    def rollback_table_state(self, table: int) -> TableState:
        """Give up the table's state for the one before it, and return that.

        Raises StoreError where there is none.
        """
        return self._take_back(table, only_errored=False)

    def retry_table(self, table: int) -> TableState:
        """Put an errored table back into the state before its error, and return that.

        Raises StoreError for a table that is not errored (any more).
        """
        return self._take_back(table, only_errored=True)

    def _take_back(self, table: int, *, only_errored: bool) -> TableState:
        with self._lock:
            record = self._take_back_state(table, only_errored=only_errored)
            self._states = {**self._states, table: record}
            return record.state

    # -- schemas ---------------------------------------------------------------------------------

    def load_table_schemas(self) -> int:
        """Read all definitions anew; of how many tables."""
        with self._lock:
            self._schemas = self._read_schemas()
            return len(self._schemas)

    def get_table_schema(self, table: int, lsn: int | None = None) -> TableDefinition | None:
        """The newest definition, or the one that held for commit LSN ``lsn``."""
        versions = self._schemas.get(table, [])
        end = len(versions) if lsn is None else bisect_right(versions, lsn, key=_lsn)
        return versions[end - 1].definition if end else None

    def get_schema_versions(self, table: int) -> tuple[SchemaVersion, ...]:
        """All definitions of a table, oldest first."""
        return tuple(self._schemas.get(table, ()))

    def get_table_schemas(self) -> dict[int, TableDefinition]:
        """The newest definition of each table."""
        return {table: versions[-1].definition for table, versions in self._schemas.items()}

    def store_table_schema(self, definition: TableDefinition, lsn: int) -> None:
        """Keep a definition that holds from commit LSN ``lsn`` on.

        Nothing is written where the same one holds there already; another one of just that LSN is
        replaced.
        """
        self.store_table_schemas([definition], lsn)

    def store_table_schemas(self, definitions: Iterable[TableDefinition], lsn: int) -> None:
        """The same for many tables, at once: all of them or none."""
        definitions = list(definitions)
        with self._lock:
            self._write_schemas(definitions, lsn)
            schemas = dict(self._schemas)
            for definition in definitions:
                versions = [v for v in schemas.get(definition.oid, []) if v.lsn != lsn]
                before = bisect_right(versions, lsn, key=_lsn)
                if before == 0 or not versions[before - 1].definition.says_the_same(definition):
                    insort(versions, SchemaVersion(lsn, definition), key=_lsn)
                schemas[definition.oid] = versions
            self._schemas = schemas

    def find_table(self, schema: str, name: str) -> int | None:
        """The oid of the table of that name, by the newest definitions.

        Of a table that was dropped and made again under its name, the younger one.
        """
        found = [
            (versions[-1].lsn, table)
            for table, versions in self._schemas.items()
            if (versions[-1].definition.schema, versions[-1].definition.name) == (schema, name)
        ]
        return max(found)[1] if found else None

    # -- notes -----------------------------------------------------------------------------------

    def load_notes(self) -> dict[int, tuple[str, ...]]:
        """What the destination could not make of tables (an index, say), and why, read anew."""
        with self._lock:
            self._notes = self._read_notes()
            return dict(self._notes)

    def get_notes(self, table: int) -> tuple[str, ...]:
        return self._notes.get(table, ())

    def set_notes(self, table: int, notes: Sequence[str]) -> None:
        """Keep these in place of those that were kept before; none where there are none."""
        with self._lock:
            self._write_notes(table, notes)
            self._notes = {**self._notes, table: tuple(notes)}

    # -- the publications ------------------------------------------------------------------------

    def load_publication(self) -> PublicationState | None:
        """What the publications were when this was last written; None before that."""
        with self._lock:
            return self._read_publication()

    def set_publication(self, state: PublicationState) -> None:
        """All that was lost before the publications came to this has been seen to."""
        with self._lock:
            self._write_publication(state)

    # -- whole tables, and the pipeline as a whole ------------------------------------------------

    def forget_tables(self, tables: Iterable[int]) -> None:
        """Remove all that is kept of tables that left. Rules stay: they are about names."""
        gone = set(tables)
        with self._lock:
            self._remove_tables(gone)
            self._states = {t: v for t, v in self._states.items() if t not in gone}
            self._schemas = {t: v for t, v in self._schemas.items() if t not in gone}
            self._notes = {t: v for t, v in self._notes.items() if t not in gone}
            self._copies = {t: v for t, v in self._copies.items() if t not in gone}
            self._wishes = {t: v for t, v in self._wishes.items() if t not in gone}

    def forget_pipeline(self, *, with_rules: bool = True) -> bool:
        """Remove all that is kept of this pipeline; whether there was anything. Rules are those of
        all of its destinations: they stay while there are others.
        """
        with self._lock:
            removed = self._remove_pipeline(with_rules=with_rules)
            self._states, self._schemas, self._notes = {}, {}, {}
            self._copies, self._wishes, self._rules = {}, {}, {}
            return removed

    # -- what a store does -----------------------------------------------------------------------

    def close(self) -> None:
        """Let go of what is held."""

    def _set_up(self) -> None:
        """Make or bring up to date what the store consists of."""

    @abstractmethod
    def _read_states(self) -> dict[int, StateRecord]: ...

    @abstractmethod
    def _write_states(self, states: Mapping[int, TableState]) -> dict[int, StateRecord]: ...

    @abstractmethod
    def _take_back_state(self, table: int, *, only_errored: bool) -> StateRecord: ...

    @abstractmethod
    def _read_schemas(self) -> dict[int, list[SchemaVersion]]:
        """By table, each list in the order of its LSNs."""

    @abstractmethod
    def _write_schemas(self, definitions: Sequence[TableDefinition], lsn: int) -> None: ...

    @abstractmethod
    def _read_notes(self) -> dict[int, tuple[str, ...]]: ...

    @abstractmethod
    def _write_notes(self, table: int, notes: Sequence[str]) -> None: ...

    @abstractmethod
    def _read_publication(self) -> PublicationState | None: ...

    @abstractmethod
    def _write_publication(self, state: PublicationState) -> None: ...

    @abstractmethod
    def _remove_tables(self, tables: Collection[int]) -> None: ...

    @abstractmethod
    def _remove_pipeline(self, *, with_rules: bool) -> bool: ...

    # -- what all stores say of a request that cannot be met --------------------------------------

    def _name(self, table: int) -> str:
        definition = self.get_table_schema(table)
        return f"table {definition.qualified_name}" if definition else f"the table with oid {table}"

    def _next_state(self, table: int, old: TableState | None, new: TableState) -> None:
        """Raise StoreError, which names the table, where it may not go from old to new."""
        try:
            transition(old, new)
        except StoreError as error:
            name = self._name(table)
            raise StoreError(
                f"{name[0].upper()}{name[1:]}: {error.message}", remedy=error.remedy
            ) from None

    def _require_previous(
        self, table: int, chain: list[StateRecord], *, only_errored: bool
    ) -> StateRecord:
        """The state before the last of a table's states; raises where it may not come back."""
        where = f"{self._name(table)} of pipeline {self.pipeline}"
        if not chain:
            raise StoreError(f"The store holds no state of {where}.")
        current = chain[-1].state
        if only_errored and not isinstance(current, Errored):
            raise StoreError(
                f"There is nothing to retry: {where} is {current.phase}, not errored.",
                remedy="`penstock tables list` shows which tables are errored, and why.",
            )
        if len(chain) < 2:
            raise StoreError(
                f"There is no state before {current.phase} to roll back to: it is the first one "
                f"of {where}."
            )
        return chain[-2]


def _lsn(version: SchemaVersion) -> int:
    return version.lsn
