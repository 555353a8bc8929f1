"""What is being copied, and how a table leaves that: refused, given up, or begun again."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from penstock.model.errors import RowsRefused, TableRefused
from penstock.model.lsn import Frontier
from penstock.model.table_definition import TableDefinition
from penstock.model.table_state import Init, TableState
from penstock.model.watermarks import Watermarks
from penstock.pipeline.copy.copy_queue import CopyQueue
from penstock.pipeline.copy.copy_settings import CopySettings
from penstock.pipeline.tables.registry import TableRegistry
from penstock.source.contract import Snapshot
from penstock.store import Store

_log = logging.getLogger(__name__)


@dataclass
class Reading:
    """Tables that are read under one snapshot; ``is_gone`` once that is there no more."""

    number: int
    snapshot: Snapshot
    tables: set[int] = field(default_factory=set)
    is_gone: bool = False


class Positions(Protocol):
    """Where the stream stands, and what it keeps for tables that are copied."""

    @property
    def standing(self) -> Watermarks: ...

    def place(self, tables: Mapping[int, Frontier]) -> None: ...

    def free(self, tables: Collection[int]) -> None: ...


class CopyState:
    """The tables that this worker copies: their chunks in ``queue``, the snapshots that they are
    read under in ``readings``, and those whose chunks are all written in ``finishing``.
    """

    def __init__(
        self,
        store: Store,
        tables: TableRegistry,
        positions: Positions,
        settings: CopySettings,
    ) -> None:
        self._store = store
        self._tables = tables
        self._positions = positions
        self.worker = settings.worker
        self._restarts: dict[int, int] = {}
        self._next_admission: dict[int, float] = {}
        self.queue = CopyQueue(settings.unit_bytes)
        self.readings: dict[int, Reading] = {}
        self.finishing: frozenset[int] = frozenset()
        self.unsure: set[int] = set()
        """Tables that were given up: they may have left the stream before a change of theirs that
        the store knows of, so that their targets may be what they were before it.
        """

    def table_name(self, oid: int) -> str:
        return self._tables.qualified_name(oid)

    def phase(self, *kinds: type[TableState]) -> list[int]:
        states = self._store.get_table_states()
        return [oid for oid, state in states.items() if isinstance(state, kinds)]

    def definitions(self, oids: Collection[int]) -> list[TableDefinition]:
        schemas = self._store.get_table_schemas()
        return [schemas[oid] for oid in oids if oid in schemas]

    @property
    def in_hand(self) -> set[int]:
        return {oid for reading in self.readings.values() for oid in reading.tables}

    def is_busy(self, oid: int) -> bool:
        """Whether something of the table is under way, which has to end first."""
        return self.queue.is_under_way(oid) or oid in self.finishing

    def may_begin(self, oid: int) -> bool:
        """Whether a table that starts again has waited long enough."""
        return time.monotonic() >= self._next_admission.get(oid, 0.0)

    def start_again(self, oids: Collection[int], why: str) -> None:
        for oid in oids:
            times = self._restarts[oid] = self._restarts.get(oid, 0) + 1
            self._next_admission[oid] = time.monotonic() + min(60.0, 0.5 * 2**times)
            _log.warning(
                "%s starts again: %s",
                self._tables.name(oid),
                why,
                extra={"event": "copy_restarted", "table": self._tables.qualified_name(oid)},
            )
        self.give_up(oids)

    def give_up(self, oids: Collection[int]) -> None:
        """Nothing is left of their copies but rows, which the next copy removes first."""
        for oid in oids:
            self.drop(oid)
        self.unsure |= set(oids)
        self._store.update_table_states({oid: Init() for oid in oids})
        self._store.forget_copy(oids)
        self._positions.free(oids)
        self._store.release_claims(self.worker, oids)

    def drop(self, oid: int) -> None:
        self.queue.drop([oid])
        for reading in self.readings.values():
            reading.tables.discard(oid)

    def refuse(self, error: TableRefused | RowsRefused) -> None:
        """Set its table aside, whichever side has refused it."""
        if isinstance(error, RowsRefused):
            error = TableRefused(
                error.message,
                remedy=f"{error.remedy.rstrip('.')}; then run `penstock tables retry` for "
                f"{self.table_name(error.table)}",
                table=error.table,
            )
        self._tables.refuse(error)
        self._store.release_claims(self.worker, [error.table])
